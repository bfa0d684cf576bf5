"""The way of a run's states to the browser that it is for, past Gradio's stream.

Gradio takes a value apart and goes through the whole page with each update, on both sides, which
costs as much as the picture itself. So the first value and the last travel with Gradio, and the
first names a wire: a WebSocket over which the states between them come. Where the browser does not
pick it up, as behind a proxy that passes none on, they travel with Gradio too.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from viz.patch import difference

log = logging.getLogger("batchscope.page")

State = dict[str, Any]


class Listener(NamedTuple):
    """A browser that hears a wire: where it is served, and what tells that there is news."""

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event


class Wire:
    """Brings one browser the newest state, as its difference from the one that was told last; it
    skips the states between for a browser that is slow. `on_told` is called after each."""

    def __init__(self, on_told: Callable[[], None]) -> None:
        self.name = secrets.token_urlsafe(16)
        self._on_told = on_told
        self._newest: State | None = None
        self._is_over = False
        self._listener: Listener | None = None

    def send(self, state: State) -> bool:
        """Tell the state, from any thread; False, and nothing, if nobody hears it."""
        self._newest = state
        return self._wake()

    def close(self) -> None:
        """The run is over: what is not told yet comes another way."""
        self._is_over = True
        self._wake()

    def _wake(self) -> bool:
        listener = self._listener
        if listener is not None:
            listener.loop.call_soon_threadsafe(listener.news.set)
        return listener is not None

    async def serve(self, socket: WebSocket) -> None:
        """Tell a browser of the run until it leaves. It has nothing to say: a word ends this."""
        await socket.accept()
        self._listener = Listener(asyncio.get_running_loop(), asyncio.Event())
        hearing = asyncio.create_task(socket.receive())
        telling = asyncio.create_task(self._tell(socket, self._listener.news))
        try:
            await asyncio.wait({hearing, telling}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._listener = None  # from now on its states go with Gradio
            for task in (hearing, telling):
                task.cancel()
            _, failure = await asyncio.gather(hearing, telling, return_exceptions=True)
        has_left = not hearing.cancelled() and hearing.result()["type"] == "websocket.disconnect"
        if has_left:
            return
        if isinstance(failure, Exception):
            log.error("a run can't be told over its wire", exc_info=failure)
        await socket.close()

    async def _tell(self, socket: WebSocket, news: asyncio.Event) -> None:
        told: State | None = None
        while not self._is_over:
            await news.wait()
            news.clear()
            newest = self._newest
            if self._is_over or newest is told:
                continue
            if (change := difference(told, newest)) is not None:
                await socket.send_text(orjson.dumps(change).decode())
                self._on_told()
            told = newest


class Wires:
    """The wires of runs under way that wait to be picked up, each by one browser, and the address
    for it: /wire/NAME. Nobody guesses a name."""

    def __init__(self, on_told: Callable[[], None]) -> None:
        self._on_told = on_told
        self._wires: dict[str, Wire] = {}

    @property
    def route(self) -> WebSocketRoute:
        return WebSocketRoute("/wire/{name}", self._serve)

    @contextmanager
    def open(self) -> Iterator[Wire]:
        """A wire for one run."""
        wire = Wire(self._on_told)
        self._wires[wire.name] = wire
        try:
            yield wire
        finally:
            self._wires.pop(wire.name, None)
            wire.close()

    async def _serve(self, socket: WebSocket) -> None:
        if wire := self._wires.pop(socket.path_params["name"], None):
            await wire.serve(socket)
        else:  # a run that is over already; a browser would tell a refusal as an error
            await socket.accept()
            await socket.close()

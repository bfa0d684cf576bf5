"""The way of a run's states to the browser that it is for, past Gradio's stream.

Gradio takes a value apart and goes through the whole page with each update, on both sides, which
costs as much as the picture itself. So the first value and the last travel with Gradio, and the
first names a wire: a WebSocket over which the states between them come. Where the browser does not
pick it up, as behind a proxy that passes none on, they travel with Gradio too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from viz.patch import difference

State = dict[str, Any]


class Wire:
    """Brings one browser the newest state, as its difference from the one that was told last; it
    skips the states between for a browser that is slow. `on_told` is called after each."""

    def __init__(self, on_told: Callable[[], None]) -> None:
        self.name = secrets.token_urlsafe(16)
        self._on_told = on_told
        self._newest: State | None = None
        self._is_over = False
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_heard(self) -> bool:
        """Whether a browser has picked it up."""
        return self._news is not None

    def send(self, state: State) -> bool:
        """Tell the state, from any thread; False, and nothing, if nobody hears it."""
        self._newest = state
        return self._wake()

    def close(self) -> None:
        """The run is over: what is not told yet comes another way."""
        self._is_over = True
        self._wake()

    def _wake(self) -> bool:
        news = self._news
        if news is not None:
            self._loop.call_soon_threadsafe(news.set)
        return news is not None

    async def serve(self, socket: WebSocket) -> None:
        """Tell a browser of the run until it leaves. It has nothing to say: a word ends this."""
        await socket.accept()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        telling = asyncio.create_task(self._tell(socket, self._news))
        try:
            said = await socket.receive()
        finally:
            self._news = None
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        if said["type"] != "websocket.disconnect":
            await socket.close()

    async def _tell(self, socket: WebSocket, news: asyncio.Event) -> None:
        told: State | None = None
        while not self._is_over:
            await news.wait()
            news.clear()
            newest = self._newest
            if newest is not told and (change := difference(told, newest)) is not None:
                await socket.send_text(orjson.dumps(change).decode())
                self._on_told()
            told = newest
        await socket.close()


class Wires:
    """The wires of all runs under way, and the address under which browsers pick them up, once
    each: /wire/NAME. Nobody guesses a name."""

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
            del self._wires[wire.name]
            wire.close()

    async def _serve(self, socket: WebSocket) -> None:
        wire = self._wires.get(socket.path_params["name"])
        if wire is None or wire.is_heard:
            await socket.close()
            return
        await wire.serve(socket)

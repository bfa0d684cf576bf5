"""One sampler for all who watch the batches of a model, and the addresses that it is read from.

A watcher is told the whole state once and then how it changes, as server-sent events. Each change
is worked out and written once, whoever reads it. Who reads too slowly for that is told the newest
state whole again: nothing piles up for anybody, and nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from engine.served import Served
from viz.patch import difference
from viz.watch.state import BatchWriter, Collecting, batch_line, minutes, queue, whole_state

log = logging.getLogger("batchscope.watch")

FRAME_SECONDS = 0.1
MINUTES_SECONDS = 1.0
"""From one look at the last minutes to the next."""
QUIET_SECONDS = 15.0
"""After so long without news there is a word, so that what lies between closes no connection."""
MOST_WATCHERS = 256

Told = dict[str, Any]


class Sampler:
    """Reads one collector, and writes down what watchers are told of it."""

    def __init__(self, collector: Callable[[], Collecting | None], *, texts: bool) -> None:
        self._collector = collector
        self._texts = texts
        self._prefix = uuid.uuid4().hex[:8]  # numbers begin anew with a server
        self._writers: dict[str, BatchWriter] = {}
        self._replays: dict[str, bytes] = {}
        self._telling = threading.Lock()  # one of a watcher who has just left may not be over
        self._making = threading.Lock()
        self._looked = 0.0
        self._minutes: Told | None = None

    def tell(self) -> Told:
        """`stages` has the stage's value of each batch under way, `batches` a line for each of them
        and then for each of the last that are over, the newest first."""
        collector = self._collector()
        if collector is None:
            return {"stages": {}, "batches": [], "queue": queue(0, 0.0), "minutes": None}
        with self._telling:
            return self._tell(collector)

    def _tell(self, collector: Collecting) -> Told:
        under_way = {self._key(served): served for served in collector.under_way}
        batches = under_way | {self._key(served): served for served in collector.recent}
        running = [key for key, served in batches.items() if served.run.status == "running"]
        self._writers = {
            key: self._writers.get(key) or BatchWriter(batches[key], key=key, texts=self._texts)
            for key in running
        }
        in_order = sorted(batches.items(), key=lambda item: (item[0] in running, item[1].number))
        return {
            "stages": {key: self._writers[key].write(batches[key]) for key in running},
            "batches": [
                batch_line(served, key=key, batch_size=collector.batch_size)
                for key, served in reversed(in_order)
            ],
            "queue": queue(collector.waiting, collector.first_waits),
            "minutes": self._last_minutes(collector),
        }

    def replay(self, key: str) -> bytes | None:
        """The stage's value of a batch that is over, with all that a replay needs, as JSON; None if
        there is no such batch any more. It is made once."""
        collector = self._collector()
        over = {self._key(served): served for served in (collector.recent if collector else ())}
        if key not in over:
            return None
        with self._making:
            if key not in self._replays:
                state = whole_state(over[key], key=key, texts=self._texts)
                made = {kept: text for kept, text in self._replays.items() if kept in over}
                self._replays = made | {key: _json(state).encode()}
            return self._replays[key]

    def _key(self, served: Served) -> str:
        return f"{self._prefix}-{served.number}"

    def _last_minutes(self, collector: Collecting) -> Told | None:
        """Looked at once a second; None before there were any."""
        now = time.monotonic()
        if self._minutes is None or now - self._looked >= MINUTES_SECONDS:
            self._looked = now
            lately = collector.traffic.lately()
            self._minutes = minutes(lately, batch_size=collector.batch_size)
        return self._minutes


class Feed:
    """What all watchers of a model are told. The sampler works as long as there is one of them."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.watchers = 0
        self._sampling: asyncio.Task[None] | None = None
        self._told: Told | None = None
        self._number = 0
        self._change = ""
        self._news = asyncio.Event()

    def join(self) -> None:
        self.watchers += 1
        if self.watchers == 1:
            self._told = None
            self._sampling = asyncio.create_task(self._sample())

    def leave(self) -> None:
        self.watchers -= 1
        if self.watchers == 0:
            self._sampling.cancel()

    async def events(self) -> AsyncIterator[str]:
        """For one watcher, who has joined: the state whole, then each change of it."""
        seen = None
        while True:
            while self._told is None or seen == self._number:
                news = self._news
                try:
                    await asyncio.wait_for(news.wait(), QUIET_SECONDS)
                except TimeoutError:
                    yield ": nothing new\n\n"
            follows = seen is not None and self._number == seen + 1
            seen = self._number
            yield self._change if follows else _event("whole", self._told)

    async def _sample(self) -> None:
        failing = False
        while True:
            try:
                told = await asyncio.to_thread(self.sampler.tell)
                self._publish(told)
                failing = False
            except Exception:
                if not failing:  # of a row only the first is logged
                    log.exception("what is to be watched can't be read")
                failing = True
            await asyncio.sleep(FRAME_SECONDS)

    def _publish(self, told: Told) -> None:
        change = difference(self._told, told)
        if change is None:
            return
        self._change = _event("change", change)
        self._told = told
        self._number += 1
        self._news.set()
        self._news = asyncio.Event()


class Watch:
    """The feeds of a server's models, and the addresses under /watch that they are read from:

    GET /watch/events?model=NAME         what is told, as server-sent events
    GET /watch/batches/KEY?model=NAME    a batch that is over, with its replay

    `collector` finds that of a model; None before its first call. No key is asked for: who reaches
    the page may watch. Prompts and answers are only told where `texts` is set.
    """

    def __init__(
        self,
        collector: Callable[[str], Collecting | None],
        models: Sequence[str],
        *,
        texts: bool = False,
        asks_for_key: bool = False,
    ) -> None:
        self.models = tuple(models)
        self.texts = texts
        self.asks_for_key = asks_for_key
        self.feeds = {
            name: Feed(Sampler(partial(collector, name), texts=texts)) for name in self.models
        }

    @property
    def route(self) -> Mount:
        routes = [Route("/events", self._events), Route("/batches/{key}", self._batch)]
        return Mount("/watch", routes=routes)

    def _feed(self, request: Request) -> Feed:
        name = request.query_params.get("model", self.models[0])
        if name not in self.feeds:
            raise HTTPException(404, "There is no such model here.")
        return self.feeds[name]

    async def _events(self, request: Request) -> Response:
        feed = self._feed(request)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if sum(each.watchers for each in self.feeds.values()) >= MOST_WATCHERS:
            raise HTTPException(503, "As many watch as may: try again later.")
        return WatchStream(feed)

    async def _batch(self, request: Request) -> Response:
        make = self._feed(request).sampler.replay
        state = await asyncio.to_thread(make, request.path_params["key"])
        if state is None:
            raise HTTPException(404, "This batch is not kept any more.")
        return Response(state, media_type="application/json")


class WatchStream(StreamingResponse):
    """A feed on its way to one watcher, who counts as one until the connection ends."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(
            feed.events(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._feed.join()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave()


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {_json(data)}\n\n"


def _json(data: object) -> str:
    """In ASCII: no other character can end a line of an event."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))

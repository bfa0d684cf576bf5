"""What is behind OpenAI's endpoints: each call joins a static batch on a model of the host.

The endpoints themselves are in engine.openai.api.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from engine.collecting import Call, Collector, FullError, News, Over, Report, check_room
from engine.errors import BatchscopeError
from engine.openai.answers import Answer, Shape, Writer
from engine.openai.asked import Asked
from engine.openai.inbox import Inbox
from engine.openai.prepare import check_size, prompt_text
from engine.openai.refusals import of_run, unknown_model
from engine.openai.responses import Responses
from engine.openai.wire import EventStream, event, unless_gone
from engine.requests import Limits
from engine.run import Request as Row
from engine.shelf import ModelShelf
from engine.where import Named

if TYPE_CHECKING:
    from engine.models import LanguageModel

TOKENISERS = 2
"""Calls whose prompts are read at the same time, beside the batch under way."""

Prepare = Callable[[Any, "LanguageModel", Limits], list[Row]]


@dataclass(frozen=True)
class Serving:
    """How calls are collected: for how long a batch waits for more (seconds), its most rows, how
    many requests may wait for one, and as many for their model, and the key that clients must have
    (None: none). So many responses are stored, each for so long."""

    window: float = 0.05
    batch_size: int = 8
    most_waiting: int = 1000
    key: str | None = None
    most_stored: int = 1000
    stored_seconds: float = 3600.0


class Server:
    """A collector for each model that is asked for, and the calls under way."""

    def __init__(
        self,
        shelf: ModelShelf,
        limits: Limits,
        serving: Serving,
        *,
        report: Report | None = None,
        log_prompts: bool = False,
        show_prompts: bool = False,
    ) -> None:
        """`report` is called with each batch that is over; `log_prompts` as for Host. What prompts
        say is known of a batch if it is to be logged or shown."""
        self.shelf = shelf
        self.limits = limits
        self.serving = serving
        self._report = report
        self._log_prompts = log_prompts
        self._read = _read_to_show if log_prompts or show_prompts else _read
        self.collectors: dict[str, Collector] = {}
        self._lock = threading.Lock()
        self.joining = 0  # requests that wait for their model, or to be read
        self._loads: dict[str, asyncio.Task[Named]] = {}
        self._readers = ThreadPoolExecutor(TOKENISERS, thread_name_prefix="openai")
        self._since = int(time.time())
        self.responses = Responses(self, most=serving.most_stored, seconds=serving.stored_seconds)

    def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self.model(name) for name in self.shelf.names]}

    def model(self, name: str) -> dict[str, Any]:
        if name not in self.shelf.names:
            raise unknown_model(name)
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": "batchscope",
        }

    async def answer(self, asked: Asked, http: Request, shape: Shape, prepare: Prepare) -> Response:
        """Run what is asked for in the next batch, and answer whole or in pieces. Before the first
        token there is an ApiError; after it only the stream itself can tell of one."""
        inbox = Inbox(reads_along=bool(asked.stream))
        call, collector = await unless_gone(http, self.join(asked, prepare, inbox))
        answer = Answer(call.requests, choices=asked.choices)
        writer = Writer.of(shape, asked.model, include_usage=asked.include_usage)
        try:
            if asked.stream:
                news = await unless_gone(http, inbox.take())
                if isinstance(news[0], Over):
                    raise of_run(news[0].error)
                events = _events(news, inbox, answer, writer)
                return EventStream(events, leave=partial(collector.leave, call))
            for news in await unless_gone(http, inbox.take()):
                answer.take(news)
            if answer.error:
                raise of_run(answer.error)
            return JSONResponse(writer.whole(answer))
        except BaseException:
            collector.leave(call)
            raise

    async def join(self, asked: Asked, prepare: Prepare, inbox: Inbox) -> tuple[Call, Collector]:
        """Take what is asked for into the next batch, once its model is there. ApiError if it
        can't be."""
        self.model(asked.model)
        check_size(asked, self.limits)
        rows = asked.rows
        try:
            check_room(self.joining, rows, most=self.serving.most_waiting)
        except FullError as error:
            raise of_run(error) from None
        self.joining += rows
        try:
            lm = await self._loaded(asked.model)
            collector = self._collector(lm)
            requests, prompts = await asyncio.get_running_loop().run_in_executor(
                self._readers, self.shelf.where.ask, self._read, lm, prepare, asked, self.limits
            )
            return collector.submit(requests, inbox.tell, prompts=prompts), collector
        except BatchscopeError as error:
            raise of_run(error) from None
        finally:
            self.joining -= rows

    async def _loaded(self, name: str) -> Named:
        """The model, once it is there: all that wait for one share a thread. Raises ModelError."""
        if (lm := self.shelf.loaded(name)) is not None:
            return lm
        if name not in self._loads:
            loading = asyncio.to_thread(lambda: self.shelf.start(name).wait())
            self._loads[name] = asyncio.create_task(loading)
            self._loads[name].add_done_callback(lambda _: self._loads.pop(name))
        return await asyncio.shield(self._loads[name])

    def _collector(self, lm: Named) -> Collector:
        with self._lock:
            if lm.name not in self.collectors:
                self.collectors[lm.name] = Collector(
                    lm,
                    batch_size=self.serving.batch_size,
                    window=self.serving.window,
                    most_waiting=self.serving.most_waiting,
                    seconds=self.limits.run_seconds,
                    where=self.shelf.where,
                    report=self._report,
                    log_prompts=self._log_prompts,
                )
            return self.collectors[lm.name]


def _read(
    lm: LanguageModel, prepare: Prepare, asked: Asked, limits: Limits
) -> tuple[list[Row], list[str]]:
    """What is asked for, in the model's own tokens."""
    return prepare(asked, lm, limits), []


def _read_to_show(
    lm: LanguageModel, prepare: Prepare, asked: Asked, limits: Limits
) -> tuple[list[Row], list[str]]:
    """The same, and what the prompts say, for a log or a page that shows them."""
    rows = prepare(asked, lm, limits)
    return rows, [prompt_text(row, lm) for row in rows]


async def _events(
    news: list[News], inbox: Inbox, answer: Answer, writer: Writer
) -> AsyncIterator[str]:
    """A call as server-sent events, from its first news on."""
    while True:
        for one in news:
            answer.take(one)
            for piece in writer.pieces(one, answer):
                yield event(piece)
        if answer.over:
            break
        news = await inbox.take()
    if answer.error:
        yield event(of_run(answer.error).body)
    yield "data: [DONE]\n\n"

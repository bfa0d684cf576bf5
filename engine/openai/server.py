"""OpenAI's endpoints over the models of a host: each call joins a static batch.

GET  /models, /models/{model}
POST /completions               a list of prompts is one batch
POST /chat/completions          in the model's own chat template
POST /responses                 the same, and kept: GET, POST .../cancel, DELETE
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount

from engine.collecting import Call, Collector, News, Over, Report
from engine.errors import BatchscopeError, ModelError
from engine.openai.answers import Answer, ChatShape, CompletionShape, Shape, Writer
from engine.openai.asked import Asked, ChatAsked, CompletionAsked, ResponseAsked
from engine.openai.door import Door
from engine.openai.inbox import Inbox
from engine.openai.prepare import chat_rows, completion_rows, prompt_text
from engine.openai.refusals import DESCRIBED, ApiError, of_run, refused, unknown_model
from engine.openai.responses import Responses
from engine.openai.wire import EventStream, event, unless_gone
from engine.requests import Limits
from engine.run import Request as Row
from engine.shelf import ModelShelf

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.openai")

PATIENCE = 1.0
"""Seconds between two looks at a model that loads, should a word of it be lost."""
TOKENISERS = 2
"""Calls whose prompts are read at the same time, beside the batch under way."""

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
"""Beside JSON, for a description of the endpoints."""

Prepare = Callable[[Any, "LanguageModel", Limits], list[Row]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Serving:
    """How calls are collected: for how long a batch waits for more (seconds), its most rows, how
    many requests may wait, and the key that clients must have (None: none). So many responses are
    stored, each for so long."""

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
        self._loads: dict[str, asyncio.Task[LanguageModel]] = {}
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
        lm = await self._loaded(asked.model)
        collector = self._collector(lm)
        try:
            rows, prompts = await asyncio.get_running_loop().run_in_executor(
                self._readers, self.shelf.where.ask, self._read, lm, prepare, asked, self.limits
            )
            return collector.submit(rows, inbox.tell, prompts=prompts), collector
        except BatchscopeError as error:
            raise of_run(error) from None

    async def _loaded(self, name: str) -> LanguageModel:
        """The model, once it is there: all that wait for one share a thread."""
        if (lm := self.shelf.loaded(name)) is not None:
            return lm
        if name not in self._loads:
            self._loads[name] = asyncio.create_task(asyncio.to_thread(self._wait_for, name))
            self._loads[name].add_done_callback(lambda _: self._loads.pop(name))
        try:
            return await asyncio.shield(self._loads[name])
        except ModelError as error:
            raise of_run(error) from None

    def _wait_for(self, name: str) -> LanguageModel:
        loading = self.shelf.start(name)
        for _ in loading.messages(threading.Event(), PATIENCE):
            continue
        return loading.result()

    def _collector(self, lm: LanguageModel) -> Collector:
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


def largest_request(limits: Limits) -> int:
    """Bytes of all prompts that one call may have, each character spelt out as JSON does it."""
    return limits.prompts * limits.prompt_characters * len("\\u0000") + 2**16


def mounted(server: Server) -> Mount:
    """The endpoints as they lie beside the page. To Starlette a path ends at a line break, so that
    the page would answer for one that goes on."""
    mount = Mount("/v1", build_api(server))
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    return mount


def build_api(server: Server) -> FastAPI:
    """The endpoints as an app of its own, to be mounted."""
    responses = server.responses
    api = FastAPI(
        title="Batchscope",
        description="OpenAI's endpoints; what is asked for runs in static batches.",
        docs_url=None,
        redoc_url=None,
        responses=DESCRIBED,
        middleware=[
            Middleware(Door, key=server.serving.key, largest=largest_request(server.limits))
        ],
        exception_handlers={
            ApiError: _told,
            RequestValidationError: _malformed,
            HTTPException: _not_offered,
            ClientDisconnect: _left,
            Exception: _failed,
        },
    )

    @api.get("/models")
    async def models() -> dict[str, Any]:
        return server.models()

    @api.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return server.model(name)

    @api.post("/completions", response_model=None, responses=STREAMED)
    async def completions(asked: CompletionAsked, http: Request) -> Response:
        return await server.answer(asked, http, CompletionShape(), completion_rows)

    @api.post("/chat/completions", response_model=None, responses=STREAMED)
    async def chat_completions(asked: ChatAsked, http: Request) -> Response:
        return await server.answer(asked, http, ChatShape(), chat_rows)

    @api.post("/responses", response_model=None, responses=STREAMED)
    async def create_response(asked: ResponseAsked, http: Request) -> Response:
        return await responses.create(asked, http)

    @api.get("/responses/{id}")
    async def retrieve_response(id: str, stream: bool = False) -> dict[str, Any]:
        if stream:
            raise refused("A response that is stored is not streamed here.", param="stream")
        return responses.retrieve(id)

    @api.post("/responses/{id}/cancel")
    async def cancel_response(id: str) -> dict[str, Any]:
        return responses.cancel(id)

    @api.delete("/responses/{id}")
    async def delete_response(id: str) -> dict[str, Any]:
        return responses.delete(id)

    return api


async def _told(_: Request, error: ApiError) -> Response:
    return error.response()


async def _malformed(_: Request, error: RequestValidationError) -> Response:
    """What is wrong and where, without what was sent."""
    errors = error.errors()
    first = errors[0]
    param = str(first["loc"][1])[:80] if len(first["loc"]) > 1 else None
    if first["type"] == "json_invalid":
        return refused("The body is not valid JSON.").response()
    if first["type"] == "missing" and param:
        sentence = f"Missing required parameter: {param}."
    elif first["type"] == "extra_forbidden" and param:
        sentence = f"Unrecognized request argument supplied: {_place(first)}."
    else:
        told = [f"{_place(one)}: {one['msg']}" for one in errors[:MOST_TOLD]]
        sentence = f"{'; '.join(told)}."
    return refused(sentence, param=param).response()


MOST_TOLD = 3
"""Errors of one request that are told; more are kinds that one argument might have had."""


def _place(error: dict[str, Any]) -> str:
    return ".".join(str(part) for part in error["loc"][1:])[:80] or "the body"


async def _not_offered(_: Request, error: HTTPException) -> Response:
    return ApiError(error.status_code, f"{error.detail}.", headers=error.headers).response()


async def _left(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=499)  # nginx's "client closed request"; nobody reads it


async def _failed(_: Request, __: Exception) -> Response:
    return ApiError(500, "The server failed to answer.", code="internal_error").response()

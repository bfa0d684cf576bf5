"""OpenAI's endpoints over HTTP, and how they refuse; what is behind them is engine.openai.server.

GET  /models, /models/{model}
POST /completions               a list of prompts is one batch
POST /chat/completions          in the model's own chat template
POST /responses                 the same, and kept: GET, POST .../cancel, DELETE
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount

from engine.openai.answers import ChatShape, CompletionShape
from engine.openai.asked import ChatAsked, CompletionAsked, ResponseAsked
from engine.openai.door import Door
from engine.openai.prepare import chat_rows, completion_rows
from engine.openai.refusals import DESCRIBED, ApiError, refused
from engine.requests import Limits

if TYPE_CHECKING:
    from engine.openai.server import Server

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
"""Beside JSON, for a description of the endpoints."""
MOST_TOLD = 3
"""Errors of one request that are told; more are kinds that one argument might have had."""


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


def _place(error: dict[str, Any]) -> str:
    return ".".join(str(part) for part in error["loc"][1:])[:80] or "the body"


async def _not_offered(_: Request, error: HTTPException) -> Response:
    return ApiError(error.status_code, f"{error.detail}.", headers=error.headers).response()


async def _left(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=499)  # nginx's "client closed request"; nobody reads it


async def _failed(_: Request, __: Exception) -> Response:
    return ApiError(500, "The server failed to answer.", code="internal_error").response()

"""Why a client gets no answer, in the shape and with the status from which OpenAI's clients make
their exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from engine.collecting import FullError
from engine.errors import BatchscopeError, ModelError, RequestError

DO_NOT_RETRY = {"x-should-retry": "false"}
"""What clients would send again by themselves, to fail again."""
QUOTED = re.compile(r"(: \w+): .*", re.DOTALL)
"""The kind of a foreign error, as in "The model failed in forward 1: ValueError: ...", and what it
says. That is left to the log: it might quote what a model was fed, by any client of the batch."""


class Fault(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """The body of every answer that is none."""

    error: Fault


DESCRIBED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refusal, "description": "What was asked for can't be"},
    "5XX": {"model": Refusal, "description": "The server can't answer now"},
}
"""For a description of the endpoints."""


class ApiError(Exception):
    """An answer that is none. `param` is the argument at fault, `code` what programs go by."""

    def __init__(
        self,
        status: int,
        sentence: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[object, ...]:
        """It may come from another process, where prompts are read."""
        how = {"code": self.code, "param": self.param, "headers": self.headers}
        return partial(ApiError, self.status, self.sentence, **how), ()

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        # What is quoted of a request may be no Unicode text.
        said = {
            "message": self.sentence,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": {name: text and _as_unicode(text) for name, text in said.items()}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def _as_unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def refused(sentence: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """What was asked for can't be."""
    return ApiError(400, sentence, param=param, code=code)


def unknown_model(name: str) -> ApiError:
    return ApiError(
        404, f"The model {name!r:.80} does not exist here.", param="model", code="model_not_found"
    )


def of_run(error: BatchscopeError) -> ApiError:
    """What keeps a request, which was found to be in order, from its answer. All clients of a batch
    are told the same, so that nothing is told that might quote one of them."""
    if isinstance(error, FullError):
        return ApiError(429, str(error), code="rate_limit_exceeded")
    if isinstance(error, RequestError):  # of the memory that was free then
        return ApiError(503, str(error), code="insufficient_memory")
    if isinstance(error, ModelError):
        return ApiError(503, str(error), code="model_unavailable", headers=DO_NOT_RETRY)
    sentence = QUOTED.sub(r"\1.", str(error))
    return ApiError(500, sentence, code="run_failed", headers=DO_NOT_RETRY)

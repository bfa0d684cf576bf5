"""OpenAI's endpoints over HTTP, asked what their own description allows and what it does not."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import requests
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine.errors import RequestError
from tests.mutants import broken_bytes, broken_json
from tests.targets.target import LIMITS, FuzzError, model

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.schemas import BaseSchema

KEPT = ("kept-0", "kept-1", "kept-2")
"""Stand for the newest responses, whose ids only the server knows."""
BUDGETS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
ENDPOINTS = {
    "/completions": {"model": "scripted", "prompt": "Hi", "max_tokens": 2},
    "/chat/completions": {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    },
    "/responses": {"model": "scripted", "input": "Hi", "previous_response_id": "kept-0"},
}
"""A request for each endpoint that takes one."""


class Posted(NamedTuple):
    """A body that its description may not know at all."""

    path: str
    body: bytes


def calls() -> SearchStrategy[Case | Posted]:
    return described() | described() | described() | mutated()


@st.composite
def described(draw: DrawFn) -> Case:
    """A call of any operation, within its description or, in two parts of five, beyond it; most
    name a model that there is, a small budget and a response that is kept, since little is left to
    try where the first look refuses."""
    from schemathesis import GenerationMode

    right, wrong = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
    mode = draw(st.sampled_from([right, right, right, wrong, wrong]))
    operation = draw(st.sampled_from(_operations()))
    case = draw(operation.as_strategy(generation_mode=mode))
    if isinstance(case.body, dict):
        case.body = {name: draw(_likely(name, value)) for name, value in case.body.items()}
    if "id" in (case.path_parameters or {}) and mode is right:
        case.path_parameters["id"] = draw(st.sampled_from(KEPT))
    return case


def mutated() -> SearchStrategy[Posted]:
    documents = [json.dumps(body) for body in ENDPOINTS.values()]
    as_json = broken_json(documents).map(str.encode)
    bodies = as_json | as_json | broken_bytes([document.encode() for document in documents])
    return st.builds(Posted, st.sampled_from(list(ENDPOINTS)), bodies)


def _likely(name: str, value: Any) -> SearchStrategy[Any]:
    """In most cases a value that brings a call further, in the others the generated one."""
    further: dict[str, Any] = {
        "model": "scripted",
        "previous_response_id": KEPT[0],
        "top_k": 5,
        "seed": 7,
        "min_p": 0.1,
        "min_tokens": 0,
        "n": 1,
        "best_of": None,
        "prompt": ["Hi", "a"],
        "repetition_penalty": 1.5,
        **dict.fromkeys(BUDGETS, 3),
    }
    if name not in further or value is None:
        return st.just(value)
    return st.sampled_from([further[name]] * 7 + [value])


def _operations() -> list[Any]:
    return [found.ok() for found in described_api().get_all_operations()]


def described_api() -> BaseSchema:
    """The endpoints as they describe themselves."""
    import schemathesis
    from schemathesis.config import CacheConfig

    from engine.openai.api import build_api
    from engine.openai.server import Server, Serving
    from engine.shelf import ModelShelf

    api = build_api(Server(ModelShelf(["scripted"]), LIMITS, Serving()))
    config = schemathesis.Config(cache=CacheConfig(enabled=False))
    return schemathesis.openapi.from_dict(api.openapi(), config=config)


class Client:
    """Asks one server, and looks at every answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = requests.Session()
        self._kept: deque[str] = deque(["resp_none"] * len(KEPT), maxlen=len(KEPT))

    def ask(self, call: Case | Posted) -> None:
        """Raises RequestError if the answer is a refusal in OpenAI's shape, and FuzzError if it is
        neither that nor what OpenAI's own types take."""
        answer = self._post(call) if isinstance(call, Posted) else self._call(call)
        if answer.status_code >= 500:
            raise FuzzError(f"status {answer.status_code}: {answer.text:.200}")
        if answer.status_code >= 400:
            raise RequestError(refusal(answer.text))
        for said in told(answer.headers.get("content-type", ""), answer.text):
            if said.get("object") == "response":
                self._kept.append(said["id"])

    def _post(self, call: Posted) -> requests.Response:
        kind = {"content-type": "application/json"}
        return self._session.post(self.url + call.path, data=call.body, headers=kind, timeout=30)

    def _call(self, case: Case) -> requests.Response:
        kept = dict(zip(KEPT, self._kept, strict=True))
        given = {**case.as_transport_kwargs(base_url=self.url)}
        for stand_in, id in kept.items():
            given["url"] = given["url"].replace(stand_in, id)
            if isinstance(given.get("json"), dict):
                body = given["json"]
                if body.get("previous_response_id") == stand_in:
                    given["json"] = body | {"previous_response_id": id}
        return self._session.request(**given, timeout=30)


@contextmanager
def served_endpoints() -> Iterator[Client]:
    from tests.clients import chatting, served  # they start Gradio, which few targets need

    with served(chatting(model()), limits=LIMITS, window=0) as here:
        yield Client(f"{here.url}/v1")


def refusal(body: str) -> str:
    """The sentence of a refusal in OpenAI's shape. Raises FuzzError for any other."""
    try:
        (error,) = json.loads(body).values()
        sentence, kind, param, code = (error.pop(n) for n in ("message", "type", "param", "code"))
    except (ValueError, AttributeError, KeyError) as wrong:
        raise FuzzError(f"a refusal of another shape: {body:.200}") from wrong
    right = sentence and kind and isinstance(param, str | None) and isinstance(code, str | None)
    if error or not right or "Traceback" in sentence:
        raise FuzzError(f"a refusal of another shape: {body:.200}")
    return sentence


def told(kind: str, body: str) -> list[dict[str, Any]]:
    """What an answer of this content type says: one object, or each of its events, as OpenAI's own
    types know them. Raises FuzzError where they don't."""
    from pydantic import ValidationError

    try:
        if kind.startswith("text/event-stream"):
            return [_known(_with_an_end(event)) for event in _events(body)]
        return [_known(json.loads(body))]
    except (ValueError, KeyError, ValidationError) as wrong:
        raise FuzzError(f"an answer of another shape: {wrong!s:.300}: {body:.200}") from None


def _events(text: str) -> Iterator[dict[str, Any]]:
    *events, rest = text.split("\n\n")
    if rest:
        raise ValueError(f"an event without an end: {rest:.100}")
    for event in events:
        data = event.rpartition("data: ")[2]
        if data != "[DONE]":
            yield json.loads(data)


def _with_an_end(event: dict[str, Any]) -> dict[str, Any]:
    """A piece of a completion as the last one of a stream, of which alone OpenAI's type tells."""
    if event.get("object") != "text_completion":
        return event
    choices = [
        choice | {"finish_reason": choice["finish_reason"] or "stop"} for choice in event["choices"]
    ]
    return event | {"choices": choices}


def _known(said: dict[str, Any]) -> dict[str, Any]:
    """`said`, if OpenAI's type of its kind takes it."""
    from openai.types import Completion, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter

    if "object" not in said:
        TypeAdapter(ResponseStreamEvent).validate_python(said)
    elif said["object"] == "list":
        for one in said["data"]:
            Model.model_validate(one)
    elif not said.get("deleted"):
        types = {
            "model": Model,
            "text_completion": Completion,
            "chat.completion": ChatCompletion,
            "chat.completion.chunk": ChatCompletionChunk,
            "response": Response,
        }
        types[said["object"]].model_validate(said)
    return said

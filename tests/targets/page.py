"""The same over HTTP, against a page."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine import runfile
from engine.errors import RequestError
from tests.mutants import anything, broken_bytes, broken_json, partly_wrong
from tests.targets import comparisons
from tests.targets.files import prompt_files
from tests.targets.orders import arguments, links, typed
from tests.targets.runs import engine_runs
from tests.targets.target import LIMITS, FuzzError, model
from viz.page.guard import MALFORMED

if TYPE_CHECKING:
    from tests.serving import Visitor


def questions() -> SearchStrategy[tuple[str, Any]]:
    runs = [runfile.dumps(run) for run in engine_runs()]
    record = broken_json(runs) | broken_bytes([run.encode() for run in runs]).map(
        lambda data: data.decode("latin-1")
    )
    export = {
        "record": st.sampled_from(runs),
        "format": st.sampled_from(["svg", "json", "csv", "trace"]),
        "theme": st.sampled_from(["light", "dark"]),
        "step": st.integers(-1, 9),
        "recorded": st.booleans(),
    }
    as_json = record.map(_parsed)
    file = prompt_files().map(
        lambda file: {"name": file[0], "content": base64.b64encode(file[1]).decode()}
    )
    events = st.one_of(
        st.tuples(st.just("press_run"), arguments().map(typed)),
        st.tuples(st.just("run"), arguments().map(lambda values: list(values.values()))),
        st.tuples(st.just("export"), st.tuples(as_json, export["format"], export["theme"])),
        st.tuples(st.just("export"), st.tuples(anything, anything, anything)),
        st.tuples(st.just("choose"), st.tuples(anything)),
        st.tuples(st.just("load"), st.tuples(anything)),
        st.tuples(st.just("forecast"), arguments().map(typed)),
        st.tuples(st.just("press_compare"), arguments().map(typed)),
        st.tuples(st.just("press_measure"), st.tuples()),
        st.tuples(st.just("compare"), arguments().map(lambda values: list(values.values())[:5])),
    )
    return st.one_of(
        events,
        events,
        miscounted(events),
        comparisons.questions(),
        st.tuples(st.just("open_run"), record.map(lambda text: {"record": text}) | anything),
        st.tuples(st.just("export_run"), partly_wrong(export) | anything),
        st.tuples(st.just("open_link"), links().map(lambda text: {"link": text}) | anything),
        st.tuples(st.just("open_prompts"), file | anything),
        st.tuples(st.just("recorded_run"), anything.map(lambda name: {"name": name})),
    )


@st.composite
def miscounted(
    draw: DrawFn, events: SearchStrategy[tuple[str, list[Any]]]
) -> tuple[str, list[Any]]:
    """An event with some of its values left out, or more than it takes."""
    name, data = draw(events)
    kept = draw(st.integers(0, len(data)))
    return name, [*data[:kept], *draw(st.lists(anything, max_size=3))]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


AT_ONCE = ("export", "choose", "forecast")
"""Events that answer where they are asked; the others stream."""


class Caller:
    """A visitor who sends whatever JSON it likes."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._http = visitor.http
        components = self._http.get("/config").json()["components"]
        self._component = {
            function: component["id"]
            for component in components
            for function in component["props"].get("server_fns") or ()
        }

    def ask(self, question: tuple[str, Any]) -> None:
        """Raises RequestError if the answer is a refusal."""
        name, data = question
        session = self._visitor.session = uuid.uuid4().hex
        if name in self._component:
            where = {"component_id": self._component[name], "fn_name": name}
            check(self._post("component_server", data=data, session_hash=session, **where))
            return
        body = {"data": data, "fn_index": self._visitor.ids[name], "session_hash": session}
        if name in AT_ONCE:
            check(self._post(f"run/{name}", **body))
            return
        check(self._post("queue/join", **body))
        with self._visitor.messages() as messages:
            for message, _ in messages:
                _check_text(json.dumps(message))
                if message["msg"] == "process_completed" and not message["success"]:
                    raise RequestError(message["output"]["error"])

    def _post(self, path: str, **body: Any) -> httpx.Response:
        # httpx itself would send neither NaN nor half a surrogate pair.
        content, kind = json.dumps(body), {"content-type": "application/json"}
        return self._http.post(f"/gradio_api/{path}", content=content, headers=kind)


@contextmanager
def page() -> Iterator[Caller]:
    from tests.serving import Visitor, served  # they start Gradio, which only this target needs

    with served(model(), limits=LIMITS) as url:
        yield Caller(Visitor(url))


def check(answer: httpx.Response) -> None:
    """A refusal has status 400 and {"error": sentence}. MALFORMED is no answer to a question that
    keeps to the protocol, as all of these do: it stands for an exception outside of the page."""
    _check_text(answer.text)
    said = answer.json() if answer.headers["content-type"] == "application/json" else None
    error = said.get("error") if isinstance(said, dict) else None
    if answer.status_code >= 500 or answer.text == MALFORMED.body.decode():
        raise FuzzError(f"status {answer.status_code}: {answer.text:.200}")
    if answer.is_error or error:
        raise RequestError(str(error))


def _check_text(text: str) -> None:
    if "Traceback" in text or "Something went wrong" in text:
        raise FuzzError(f"the server failed: {text:.200}")

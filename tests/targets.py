"""What reads a visitor's input: the form, links, prompt files, saved runs; and inputs for it."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import httpx
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine import runfile
from engine.errors import RequestError
from engine.metrics import measure
from engine.orders import Order, PageSettings, make_order, read_link
from engine.promptfile import read_prompts
from engine.requests import Limits, make_requests
from engine.run import Run, until
from engine.static import StaticBatchEngine
from tests.mutants import anything, broken_bytes, broken_json, partly_wrong, texts
from tests.tiny import EOS, scripted_lm, token_ids
from viz.editor.editor import prompts_and_budgets
from viz.recorded import recorded
from viz.slide.slide import slide_svg
from viz.stage.state import stage_state
from viz.table import csv_table
from viz.trace import trace

if TYPE_CHECKING:
    from tests.serving import Visitor

LIMITS = Limits(prompts=4, prompt_characters=200, new_tokens=6, batch_size=3)


class FuzzError(Exception):
    """What should hold for every input does not hold for this one."""


class Target(NamedTuple):
    """Something that reads inputs: `attempt` returns if one is taken, and raises a
    BatchscopeError if it is refused. `ready` holds what an attempt needs, as a context that is
    entered once. One in `rarity` of the examples is its share."""

    inputs: Callable[[], SearchStrategy[Any]]
    attempt: Callable[..., None]
    ready: Callable[[], Any] = nullcontext
    rarity: int = 1


# The form, the endpoint and links: the arguments of make_order


def arguments() -> SearchStrategy[dict[str, Any]]:
    few = st.integers(1, 4)
    return partly_wrong(
        {
            "prompts": st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4),
            "max_new_tokens": few,
            "model": st.none() | st.just("scripted"),
            "batch_size": st.none() | st.integers(1, 3),
            "chat_template": st.booleans(),
            "ignore_eos": st.booleans(),
            "temperature": st.sampled_from([0.0, 1e-8, 0.7, 1e30, 1.7e308]),
            "top_p": st.floats(0, 1, exclude_min=True),
            "top_k": st.integers(0, 300),
            "seed": st.none() | st.integers(-(10**15), 10**15),
            "padding_side": st.sampled_from(["left", "right"]),
            "min_p": st.floats(0, 1),
            "repetition_penalty": st.floats(0.1, 10),
            "min_new_tokens": st.integers(0, 1),
            "stop": st.lists(st.text(min_size=1, max_size=3), max_size=3),
        }
    )


def typed(arguments: dict[str, Any]) -> list[Any]:
    """The same arguments as the page's events bring them: prompt list, model, settings."""
    values = arguments | {"seed": arguments["seed"] if arguments["seed"] is not None else ""}
    prompts, budget = values["prompts"], values["max_new_tokens"]
    if isinstance(prompts, list):
        prompts = [{"prompt": prompt, "max_new_tokens": budget} for prompt in prompts]
    if isinstance(values["stop"], list):
        values["stop"] = "\n".join(map(str, values["stop"]))
    return [prompts, values["model"], *(values[name] for name in PageSettings._fields)]


def ask_for_a_run(inputs: dict[str, Any] | list[Any]) -> None:
    """From a script by name, or typed into the page."""
    if isinstance(inputs, dict):
        order = make_order(LIMITS, **inputs)
    else:
        prompts, model, *settings = inputs
        listed, budgets = prompts_and_budgets(prompts)
        PageSettings.of_prompts(listed, LIMITS)
        asked = PageSettings(*settings).asked()
        order = make_order(LIMITS, prompts=listed, max_new_tokens=budgets, model=model, **asked)
    _shown_as_it_is(order)
    _runs(order)


def _shown_as_it_is(order: Order) -> None:
    """What the page shows of an order asks for that order again."""
    again = make_order(
        LIMITS,
        prompts=[request.prompt for request in order.requests],
        max_new_tokens=[request.max_new_tokens for request in order.requests],
        model=order.model,
        **PageSettings.of_order(order).asked() | {"seed": order.requests[0].seed},
    )
    if again.requests != order.requests:
        raise FuzzError(f"shown as another order: {again}")


def _runs(order: Order) -> None:
    engine = StaticBatchEngine(
        _lm(),
        batch_size=order.batch_size,
        padding_side=order.padding_side,
        chat_template=order.chat_template,
    )
    _comes_back(engine.run(order.requests))


@cache
def _lm() -> Any:
    return scripted_lm([token_ids("a🤗"), [*token_ids("<b>"), EOS], [EOS]])


def open_link(text: str) -> None:
    _shown_as_it_is(read_link(text, LIMITS))


def links() -> SearchStrategy[str]:
    def link(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    asked = arguments().map(json.dumps)
    fine = json.dumps({"prompts": ["Hello"], "stop": ["END"], "seed": 1, "min_p": 0.1})
    broken = broken_bytes([fine.encode(), link(fine).encode()])
    return st.one_of(
        asked.map(link),
        broken_json([fine]).map(link),
        broken.map(lambda data: base64.urlsafe_b64encode(data).decode()),
        broken.map(lambda data: data.decode("latin-1")),
        st.sampled_from(["[", '{"prompts":']).map(lambda text: link(text * 50_000)),
        texts,
    )


# Files of prompts


def prompt_files() -> SearchStrategy[tuple[str, bytes]]:
    files = [
        b'prompt,max_new_tokens\r\nHello,4\r\n"a, ""b""\nc",\r\n',
        b"max_new_tokens;prompt\n4;Hello\n",
        b'{"prompt": "Hello", "max_new_tokens": 4}\n\n"world"\n{"prompt": "x"}\n',
        "\ufeffGrüße 🤗\n\n  中文\r\nlast".encode(),
        "prompt\nGrüße".encode("utf-16"),
    ]
    records = st.lists(
        partly_wrong(
            {"prompt": st.text(min_size=1, max_size=9), "max_new_tokens": st.integers(1, 6)}
        ),
        max_size=5,
    )
    written = records.map(lambda rows: "\n".join(map(json.dumps, rows)).encode("utf-8", "replace"))
    lines = broken_json(['{"prompt": "Hello", "max_new_tokens": 4}']).map(str.encode)
    right = st.sampled_from(["a.txt", "a.csv", "a.jsonl", "b.JSONL"])
    names = st.one_of(right, right, right, texts, texts.map(lambda text: f"{text}.csv"))
    data = st.one_of(broken_bytes(files), written, lines, st.binary(), texts.map(_utf8))
    large = st.sampled_from([b"a\n", b"a,", b'"', b'{"prompt":', b"[", b"1", b"\r", b"\x00"])
    return st.tuples(names, data | large.map(lambda part: part * 200_000))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def open_prompts(file: tuple[str, bytes]) -> None:
    name, data = file
    prompts = read_prompts(data, name, limits=LIMITS)
    make_requests(
        [prompt for prompt, _ in prompts],
        max_new_tokens=[1 if budget is None else budget for _, budget in prompts],
        limits=LIMITS,
    )


# Saved runs


def saved_runs() -> SearchStrategy[str | bytes]:
    runs = [*_engine_runs(), recorded("tutorial"), recorded("size-2")]
    documents = [runfile.dumps(run) for run in runs]
    broken = broken_bytes([document.encode() for document in documents])
    return st.one_of(broken_json(documents), broken, broken, anything.map(json.dumps), st.binary())


def _engine_runs() -> list[Run]:
    return [_at_fixed_times(run) for run in _runs_of_each_status()]


def _runs_of_each_status() -> Iterator[Run]:
    engine = StaticBatchEngine(_lm(), batch_size=2)
    requests = make_requests(
        ["héllo <b>", [1, 2, 3], "x" * 9],
        max_new_tokens=[3, 5, 1],
        temperature=0.5,
        seed=5,
        stop=["a"],
    )
    yield engine.run(requests)
    yield engine.run(make_requests(["a", "b"], max_new_tokens=1, seed=5))
    stream = engine.stream(requests)
    next(stream)
    yield stream.record()
    stream.close()
    yield stream.record()


def _at_fixed_times(run: Run) -> Run:
    """The run with the same times whenever it was made, so that a seed tells all of an input."""
    steps = tuple(
        replace(step, started=0.5 * number, seconds=0.25) for number, step in enumerate(run.steps)
    )
    starts = {step.batch: step.started for step in reversed(steps)}
    batches = tuple(replace(batch, started=starts.get(batch.index)) for batch in run.batches)
    return replace(
        run,
        steps=steps,
        batches=batches,
        started_at="2025-01-01T00:00:00+00:00",
        queued_seconds=0.0,
    )


def open_run(data: str | bytes) -> None:
    _works(runfile.loads(data))


def _comes_back(run: Run) -> None:
    if runfile.loads(runfile.dumps(run)) != run:
        raise FuzzError("a saved run comes back as another")


def _works(run: Run) -> None:
    """A run that was taken is well-formed in everything that is made of it."""
    _comes_back(run)
    for moment in {0, len(run.steps) // 2, len(run.steps)}:
        then = until(run, moment)
        measure(then)
        json.dumps(stage_state(then, key="fuzz"), allow_nan=False).encode()
        ElementTree.fromstring(slide_svg(then).encode())
    json.loads(trace(run).encode(), parse_constant=_refuse_constant)
    csv_table(run).encode()


def _refuse_constant(name: str) -> None:
    raise FuzzError(f"{name} in a trace")


# The same over HTTP, against a page


def questions() -> SearchStrategy[tuple[str, Any]]:
    runs = [runfile.dumps(run) for run in _engine_runs()]
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
    return st.one_of(
        st.tuples(st.just("press_run"), arguments().map(typed)),
        st.tuples(st.just("run"), arguments().map(lambda values: list(values.values()))),
        st.tuples(st.just("export"), st.tuples(as_json, export["format"], export["theme"])),
        st.tuples(st.just("export"), st.tuples(anything, anything, anything)),
        st.tuples(st.just("open_run"), record.map(lambda text: {"record": text}) | anything),
        st.tuples(st.just("export_run"), partly_wrong(export) | anything),
        st.tuples(st.just("open_link"), links().map(lambda text: {"link": text}) | anything),
        st.tuples(st.just("open_prompts"), file | anything),
        st.tuples(st.just("recorded_run"), anything.map(lambda name: {"name": name})),
        st.tuples(st.just("choose"), st.tuples(anything)),
        st.tuples(st.just("load"), st.tuples(anything)),
        st.tuples(st.just("forecast"), arguments().map(typed)),
    )


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
            _check(self._post("component_server", data=data, session_hash=session, **where))
            return
        body = {"data": data, "fn_index": self._visitor.ids[name], "session_hash": session}
        if name in AT_ONCE:
            _check(self._post(f"run/{name}", **body))
            return
        _check(self._post("queue/join", **body))
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

    with served(_lm(), limits=LIMITS) as url:
        yield Caller(Visitor(url))


def _check(answer: httpx.Response) -> None:
    """A refusal has status 400 and {"error": sentence}."""
    _check_text(answer.text)
    said = answer.json() if answer.headers["content-type"] == "application/json" else None
    error = said.get("error") if isinstance(said, dict) else None
    if answer.status_code >= 500:
        raise FuzzError(f"status {answer.status_code}: {answer.text:.200}")
    if answer.is_error or error:
        raise RequestError(str(error))


def _check_text(text: str) -> None:
    if "Traceback" in text or "Something went wrong" in text:
        raise FuzzError(f"the server failed: {text:.200}")


TARGETS = {
    "form": Target(lambda: arguments() | arguments().map(typed), ask_for_a_run),
    "link": Target(links, open_link),
    "promptfile": Target(prompt_files, open_prompts),
    "run": Target(saved_runs, open_run),
    "endpoint": Target(questions, Caller.ask, page, rarity=100),
}

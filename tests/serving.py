"""A launched page for the tests, and visitors that speak its protocol."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from app import build_demo
from engine import models, runfile
from engine.models import LanguageModel
from engine.requests import Limits
from engine.run import Run
from engine.shelf import ModelShelf
from tests.shown import applied, shown_tokens
from tests.tiny import scripted_lm, token_ids
from viz.page.demo import Demo
from viz.stage.packed import unpacked
from viz.stage.state import StageState

DEFAULTS = {
    "batch_size": 4,
    "chat_template": False,
    "ignore_eos": False,
    "temperature": 0,
    "top_p": 1,
    "top_k": 0,
    "seed": "",
    "padding_side": "left",
    "min_p": 0,
    "repetition_penalty": 1,
    "min_new_tokens": 0,
    "stop": "",
}


@contextmanager
def served(*models: LanguageModel, limits: Limits | None = None) -> Iterator[str]:
    """The page over models that are loaded already; yields its address."""
    with served_shelf(shelf_of(*models), limits=limits) as url:
        yield url


def shelf_of(*models: LanguageModel) -> ModelShelf:
    """A shelf that has these models."""
    shelf = ModelShelf([lm.name for lm in models])
    for lm in models:
        shelf.add(lm)
    return shelf


@contextmanager
def served_shelf(shelf: ModelShelf, **options: Any) -> Iterator[str]:
    """A page with these of `build_demo`'s options."""
    with launched(shelf, **options) as demo:
        yield demo.local_url.rstrip("/")


@contextmanager
def launched(shelf: ModelShelf, **options: Any) -> Iterator[Demo]:
    """The same, as what serves it."""
    with patch("gradio.blocks.App.create_app"):  # slow, and launching makes the one that serves
        demo = build_demo(shelf, **options)
    demo.launch(prevent_thread_lock=True, quiet=True)
    try:
        yield demo
    finally:
        demo.close()


@contextmanager
def served_while_loading(monkeypatch: Any, *, seconds: float) -> Iterator[tuple[str, Any]]:
    """A page that offers the models "one" and "two" -> its address, and the event that lets them
    load; it must be set within so many seconds."""
    go_on = threading.Event()

    def load(name, *, on_progress, **_how):
        on_progress(f"Downloading {name}", None)
        assert go_on.wait(seconds)
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    with served_shelf(ModelShelf(["one", "two"])) as url:
        yield url, go_on


def rows_of(prompts: list[str], budgets: list[int] | int) -> list[dict[str, Any]]:
    """The prompt list's value."""
    budgets = budgets if isinstance(budgets, list) else [budgets] * len(prompts)
    return [
        {"prompt": prompt, "max_new_tokens": budget}
        for prompt, budget in zip(prompts, budgets, strict=True)
    ]


class Visitor:
    """One browser session's worth of HTTP: runs, stops, and sees every update's bytes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = uuid.uuid4().hex
        self.http = httpx.Client(base_url=url, timeout=60)
        self.ids = {
            dependency["api_name"]: dependency["id"]
            for dependency in self.http.get("/config").json()["dependencies"]
        }

    def join(self, prompts: list[dict[str, Any]], model: str, **settings: Any) -> None:
        """Press Run."""
        values = DEFAULTS | settings
        self.send("press_run", prompts, model, *(values[name] for name in DEFAULTS))

    def stop(self) -> None:
        """Press Stop."""
        self.call("press_stop").raise_for_status()

    def send(self, name: str, *data: Any) -> str:
        """Let an event begin whose updates `messages` tells -> its id."""
        answer = self.http.post("/gradio_api/queue/join", json=self._body(name, data))
        return answer.raise_for_status().json()["event_id"]

    def call(self, name: str, *data: Any) -> httpx.Response:
        """The answer of an event that answers at once."""
        return self.http.post(f"/gradio_api/run/{name}", json=self._body(name, data))

    @contextmanager
    def messages(self) -> Iterator[Iterator[tuple[dict[str, Any], int]]]:
        """The event stream as (message, bytes on the wire); leaving the block closes the tab, and
        what comes then is a new one's, whose run does not end when the server notices."""
        heartbeat = self.http.stream("GET", f"/gradio_api/heartbeat/{self.session}")
        events = self.http.stream(
            "GET", "/gradio_api/queue/data", params={"session_hash": self.session}
        )
        with heartbeat, events as response:
            yield (
                (json.loads(line[6:]), len(line.encode()) + 2)
                for line in _lines(response)
                if line.startswith("data: ")
            )
        self.session = uuid.uuid4().hex

    def values(self) -> Iterator[Any]:
        """The first output's value after each update of the only event."""
        outputs: list[Any] = []
        with self.messages() as messages:
            for message, _ in messages:
                if message["msg"] == "process_generating":
                    outputs = apply_update(outputs, message["output"]["data"])
                    yield outputs[0]
                elif message["msg"] == "process_completed":
                    assert message["success"], message
                    return

    def frames(self) -> Iterator[Frame]:
        """The values of the outputs after each update, until a run is over."""
        outputs: dict[str, list[Any]] = {}
        with self.messages() as messages:
            for message, size in messages:
                if message["msg"] == "process_generating":
                    event = message["event_id"]
                    update = message["output"]["data"]
                    outputs[event] = apply_update(outputs.get(event, []), update)
                    yield Frame(outputs[event], size)
                elif message["msg"] == "process_completed":
                    assert message["success"], message
                    return

    def run(self, prompts: list[dict[str, Any]], model: str, **settings: Any) -> list[Frame]:
        """Press Run and watch to the end."""
        self.join(prompts, model, **settings)
        return list(self.frames())

    def run_on_wire(
        self, prompts: list[dict[str, Any]], model: str, **settings: Any
    ) -> tuple[list[Frame], Listener]:
        """The same, as a browser does: what comes with Gradio, and what comes over the wire."""
        self.join(prompts, model, **settings)
        frames, listener = [], None
        for frame in self.frames():
            frames.append(frame)
            if frame.drawn and listener is None:
                listener = Listener(self.url, frame.stage["wire"])
        listener.join(20)
        return frames, listener

    def _body(self, name: str, data: Sequence[Any]) -> dict[str, Any]:
        return {"data": data, "fn_index": self.ids[name], "session_hash": self.session}


def _lines(response: httpx.Response) -> Iterator[str]:
    """Lines of an event stream, which "\n" ends; `iter_lines` would also cut a text at U+0085."""
    rest = ""
    for text in response.iter_text():
        *whole, rest = (rest + text).split("\n")
        yield from whole


def wire_address(url: str, name: str) -> str:
    """Where a browser picks up a wire of the page at this address."""
    return f"{url.replace('http', 'ws', 1)}/wire/{name}"


class Listener(threading.Thread):
    """Takes what comes over a run's wire, until the run is over."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self._address = wire_address(url, name)
        self.states: list[StageState] = []
        self.sizes: list[int] = []
        """Of each message, in bytes before it is compressed."""
        self.start()

    def run(self) -> None:
        with suppress(ConnectionClosed), connect(self._address) as socket:
            for message in socket:
                self.sizes.append(len(message.encode()))
                before = self.states[-1] if self.states else None
                self.states.append(applied(before, json.loads(message)))


class Frame:
    """What a visitor sees after one update."""

    def __init__(self, outputs: list[Any], size: int) -> None:
        stage, self.notice, self.run_button, self.stop_button = outputs
        self.stage = unpacked(stage) if isinstance(stage, dict) else stage
        self.size = size

    @property
    def drawn(self) -> bool:
        """Whether the stage shows a run."""
        return isinstance(self.stage, dict) and "logs" in self.stage

    @property
    def tokens(self) -> list[list[tuple[int, str]]]:
        """Of each request, the tokens that the picture shows: ids and texts."""
        return shown_tokens(self.stage)

    @property
    def says(self) -> str:
        return self.notice.get("text", "")

    @property
    def record(self) -> Run:
        """The record of a run that is over, as the page keeps it."""
        return runfile.loads(self.stage["record"])


def apply_update(outputs: list[Any], update: list[Any]) -> list[Any]:
    """Gradio sends the first value whole and then lists of edits, as its client applies them."""
    if not outputs:
        return update
    return [_apply_edits(value, edits) for value, edits in zip(outputs, update, strict=True)]


def _apply_edits(value: Any, edits: list[Any]) -> Any:
    holder = {"value": json.loads(json.dumps(value))}
    for action, path, operand in edits:
        *parents, last = ["value", *path]
        target = holder
        for key in parents:
            target = target[key]
        if action == "replace":
            target[last] = operand
        elif action == "append":
            target[last] += operand
        elif action == "add":
            target.insert(last, operand) if isinstance(target, list) else target.update(
                {last: operand}
            )
        elif action == "delete":
            del target[last]
    return holder["value"]


def wait_for(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Until a condition holds; fails if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        threading.Event().wait(0.01)

"""Saved runs, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine import runfile
from engine.metrics import measure
from engine.requests import make_requests
from engine.run import Run, until
from engine.static import StaticBatchEngine
from tests.mutants import anything, broken_bytes, broken_json
from tests.targets.target import FuzzError, model
from viz.recorded import recorded
from viz.slide.slide import slide_svg
from viz.stage.state import stage_state
from viz.table import csv_table
from viz.trace import trace


def saved_runs() -> SearchStrategy[str | bytes]:
    runs = [*engine_runs(), recorded("tutorial"), recorded("size-2")]
    documents = [runfile.dumps(run) for run in runs]
    broken = broken_bytes([document.encode() for document in documents])
    return st.one_of(broken_json(documents), broken, broken, anything.map(json.dumps), st.binary())


def engine_runs() -> list[Run]:
    return [_at_fixed_times(run) for run in _runs_of_each_status()]


def _runs_of_each_status() -> Iterator[Run]:
    engine = StaticBatchEngine(model(), batch_size=2)
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


def comes_back(run: Run) -> None:
    if runfile.loads(runfile.dumps(run)) != run:
        raise FuzzError("a saved run comes back as another")


def _works(run: Run) -> None:
    """A run that was taken is well-formed in everything that is made of it."""
    comes_back(run)
    for moment in {0, len(run.steps) // 2, len(run.steps)}:
        then = until(run, moment)
        measure(then)
        json.dumps(stage_state(then, key="fuzz"), allow_nan=False).encode()
        ElementTree.fromstring(slide_svg(then).encode())
    json.loads(trace(run).encode(), parse_constant=_refuse_constant)
    csv_table(run).encode()


def _refuse_constant(name: str) -> None:
    raise FuzzError(f"{name} in a trace")

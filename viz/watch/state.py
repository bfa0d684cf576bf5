"""What a collector does, as the Watch tab is told: the stage's value of each batch under way, a
line for each of the last ones, and what the last minutes were like.

Hidden texts are not left to the browser to hide: they are taken out of the record before the
stage's value is written, so none of them is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.run import Run, Step
from engine.served import MINUTES, Lately, Served, Traffic, step_without_texts, without_texts
from viz import words
from viz.stage.state import StageState, StageWriter

ENDED = {"done": "done", "stopped": "stopped", "error": "failed"}


class Collecting(Protocol):
    """What is watched: see engine.collecting."""

    batch_size: int
    traffic: Traffic

    @property
    def waiting(self) -> int: ...
    @property
    def first_waits(self) -> float: ...
    @property
    def under_way(self) -> Sequence[Served]: ...
    @property
    def recent(self) -> Sequence[Served]: ...


class BatchWriter:
    """Writes the stage's values for a batch under way as it grows. Without `texts` nothing that
    anybody wrote or could read is in them."""

    def __init__(self, served: Served, *, key: str, texts: bool) -> None:
        self._texts = texts
        self._steps: list[Step] = []  # without texts, where they are hidden
        self._writer = StageWriter(served.run if texts else without_texts(served.run), key=key)

    def write(self, served: Served) -> StageState:
        """The value for the batch, which has grown since it was written last; when it is over,
        without what a replay needs."""
        shown = served.run if self._texts else self._hidden(served.run)
        return self._writer.write(shown, replay=False) | _beside(served, texts=self._texts)

    def _hidden(self, run: Run) -> Run:
        """Each step is read once."""
        self._steps += map(step_without_texts, run.steps[len(self._steps) :])
        return replace(without_texts(replace(run, steps=())), steps=tuple(self._steps))


def whole_state(served: Served, *, key: str, texts: bool) -> StageState:
    """The stage's value for a batch that is over, with its replay; with its record too, if texts
    may be seen."""
    run = served.run if texts else without_texts(served.run)
    state = StageWriter(run, key=key).write(run) | _beside(served, texts=texts)
    if not texts:
        state.pop("record", None)  # of made-up tokens
    return state


def _beside(served: Served, *, texts: bool) -> StageState:
    shown = {"prompts": list(served.prompts)} if texts and served.prompts else {}
    return {"hidden": not texts, "marks": marks(served), **shown}


def marks(served: Served) -> list[dict[str, Any]]:
    """Of each row: what it waited, which is known from its first token on, and when its client
    left, in words and in seconds since the start of the run (None: it stayed)."""
    batches = {step.batch for step in served.run.steps}
    begun = {row for number in batches for row in served.run.batches[number].requests}
    return [
        {
            "waited": f"waited {words.seconds(waited)}" if row in begun else "",
            "gone": "" if left is None else "✕ client gone",
            "left": left,
        }
        for row, (waited, left) in enumerate(zip(served.queued, served.left, strict=True))
    ]


def batch_line(served: Served, *, key: str, batch_size: int) -> dict[str, Any]:
    """A batch in the list of those that can be looked at."""
    run = served.run
    gone = len(served.left) - served.left.count(None)
    return {
        "key": key,
        "name": f"Batch {served.number}",
        "running": run.status == "running",
        "rows": f"{len(run.requests)} of {batch_size} rows"
        if len(run.batches) == 1
        else f"{len(run.requests)} rows, {len(run.batches)} batches",
        "said": _how_far(run),
        "gone": f"✕ {gone} gone" if gone else "",
    }


def _how_far(run: Run) -> str:
    if run.status == "running":
        if all(batch.started is None for batch in run.batches):
            return "in line for the device"
        return "running"
    if not run.steps:
        return ENDED[run.status]
    took = words.seconds(run.steps[-1].finished)
    steps = words.plural(len(run.steps), "step")
    return f"{steps} in {took}" + ("" if run.status == "done" else f", {ENDED[run.status]}")


def queue(waiting: int, first_waits: float) -> dict[str, Any]:
    """Who waits at this moment."""
    return {
        "waiting": f"{waiting:,}",
        "first": f"the first for {words.seconds(first_waits)}" if waiting else "for a batch",
    }


def minutes(lately: Lately, *, batch_size: int) -> dict[str, Any]:
    """The last minutes, in figures and as a series for the chart."""
    waited = lately.waited
    batches = words.plural(lately.batches, "batch", "batches")
    mean = f"{lately.rows / lately.batches:.1f}" if lately.batches else "n/a"
    rows = words.plural(lately.rows, "row")
    ended = f"{batches} with {rows}" if lately.batches else "No batch ended"
    return {
        "batch_size": batch_size,
        "median": words.seconds(waited.median),
        "p90": words.seconds(waited.p90),
        "longest": words.seconds(waited.largest),
        "mean": mean,
        "fill": [None if rows is None else round(rows, 2) for rows in lately.fill],
        "said": f"{ended} in the last {MINUTES} minutes",
    }

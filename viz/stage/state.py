"""Run -> the value of the stage: the whole state so far, in a form that is cheap to send.

Gradio sends the difference of two values, and a string that only grows travels as what was
appended. So all that grows is one string per batch: `logs[b]`, a line per slot of each forward, and
`times[b]`, the milliseconds of each forward. Everything else changes rarely or is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from math import ceil
from operator import itemgetter
from typing import Any

from engine import runfile
from engine.metrics import Figures, Meter, Waste, history
from engine.run import Batch, End, KVBytes, Run, Step
from viz import words
from viz.explain import TILES, facts, worked_states, worked_tiles

LEGEND = {
    "active": "working",
    "padded": "padding",
    "idle": "idle: ended, still in the batch",
}
ROW_WORDS = {
    "waiting": "waiting",
    "running": "running",
    "eos": "ended · EOS",
    "length": "ended · length",
    "stop": "ended · stop string",
    "cancelled": "stopped",
    "error": "failed",
}
MOST_MOMENTS = 512
MOST_ROWS_TOLD = 16_384

StageState = dict[str, Any]


def stage_state(run: Run, *, key: str, recorded: bool = False) -> StageState:
    """The stage's value for a run of which nothing was shown yet; see `StageWriter`."""
    return StageWriter(run, key=key, recorded=recorded).write(run)


class StageWriter:
    """Writes the stage's values for one run as it grows, each from what came since the last one,
    so that a value costs the engine as little at step 500 as at step 10. `key` tells one run from
    the next; `recorded` labels one that was not made just now.

    logs[b]: "<token id> <text>\\n" per slot of each forward, backslash and newline in the text
    escaped; "\\n" of a slot that generated none.
    tails[i]: what the end of row i released without a token.
    times[b]: "<started>/<seconds> " per forward, both in milliseconds.
    kv[b]: "<live>/<padding>/<dead> " per forward, in bytes.
    A run that is over also has its `record` as JSON, and `moments` for a replay, one every
    `stride` steps: moments[i] is after step min(i * stride, the last). `marks`, if there are any,
    say more of each row: see `viz.watch.state`.
    """

    def __init__(self, run: Run, *, key: str, recorded: bool = False) -> None:
        self._fixed = {
            "key": key,
            "recorded": recorded,
            "prompts": [words.prompt_text(request.prompt) for request in run.requests],
            "budgets": [request.max_new_tokens for request in run.requests],
            "side": run.settings.padding_side,
            "batches": [
                {
                    "requests": list(batch.requests),
                    "lengths": list(batch.prompt_lengths),
                    "names": words.column_names(run, batch)._asdict(),
                }
                for batch in run.batches
            ],
        }
        self._meter = Meter(run)
        self._written = 0
        self._logs = [""] * len(run.batches)
        self._lines = _Lines()
        self._tails: list[str | None] = [None] * len(run.requests)  # of the rows that have ended
        self._times = [""] * len(run.batches)
        self._kv = [""] * len(run.batches)

    def write(self, run: Run, *, replay: bool = True) -> StageState:
        """The value for the run, which has grown since it was written last. Without `replay`, what
        only a run that is over has is left out: it takes long to make, and to send."""
        for batch, steps in groupby(run.steps[self._written :], key=lambda step: step.batch):
            self._add(list(steps), run.batches[batch])
        self._written = len(run.steps)
        figures = self._meter.read(run)
        ends = [row.end for row in figures.rows]
        self._add_tails(run, ends)
        state = {
            **self._fixed,
            "status": run.status,
            "strip": strip(run),
            "ends": ends,
            "logs": list(self._logs),
            "tails": [tail or "" for tail in self._tails],
            "times": list(self._times),
            "kv": list(self._kv),
            **moment(run, figures),
        }
        if replay and run.status != "running":
            every = stride(run)
            state |= {
                "stride": every,
                "moments": moments(run, every=every),
                "record": runfile.dumps(run),
            }
        return state

    def _add(self, steps: Sequence[Step], batch: Batch) -> None:
        """Append neighbouring steps of one batch: each string is copied once."""
        self._times[batch.index] += "".join(
            [f"{1000 * step.started:.1f}/{1000 * step.seconds:.1f} " for step in steps]
        )
        self._kv[batch.index] += "".join(
            [f"{kv.live}/{kv.padding}/{kv.dead} " for kv in (step.kv_bytes for step in steps)]
        )
        lines: list[str] = []
        for step in steps:
            lines += map(self._lines.__getitem__, zip(step.tokens, step.pieces, strict=True))
        self._logs[batch.index] += "".join(lines)

    def _add_tails(self, run: Run, ends: Sequence[End | None]) -> None:
        """Of rows that have ended since the last time: what of the text came with no token."""
        for batch in run.batches:
            seats = enumerate(batch.requests)
            ended = [(s, i) for s, i in seats if ends[i] and self._tails[i] is None]
            if not ended:
                continue
            pieces = [step.pieces for step in run.steps if step.batch == batch.index]
            for slot, request in ended:
                released = len("".join(map(itemgetter(slot), pieces)))
                self._tails[request] = run.texts[request][released:]


def moment(run: Run, figures: Figures) -> dict[str, Any]:
    """What is said about a run at the moment of the figures, which may be an earlier one: heading,
    tiles, counts of slots, a sentence."""
    return {
        "heading": heading(run, figures),
        "summary": words.sentence(run, figures),
        "tiles": tiles(run, figures),
        "counts": worked_states(figures),
    }


def stride(run: Run) -> int:
    """From how many steps to how many a replay has a moment: all of them in ordinary runs (32 rows
    of 512 steps), fewer where they would take long to make and to send. A replay rests only where
    it has one, so what it tells is always of the step that it shows."""
    steps = len(run.steps)
    return max(1, ceil(steps / MOST_MOMENTS), ceil(steps * len(run.requests) / MOST_ROWS_TOLD))


def moments(run: Run, *, every: int = 1) -> list[dict[str, Any]]:
    """The moments after 0, every, 2 * every, ... steps and after the last, for a replay: each as
    `changes` against the moment before it."""
    told: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for figures in history(run, every=every):
        now = moment(run, figures)
        told.append(changes(before, now))
        before = now
    return told


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, down to the leaves. A list of dictionaries as long as before counts as a
    dictionary of its places: {"tiles": {"0": {"value": "54.8"}}}."""
    return {
        name: _difference(before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    }


def _difference(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return changes(old, new)
    if _one_for_one(old, new):
        pairs = enumerate(zip(old, new, strict=True))
        return {str(place): changes(was, now) for place, (was, now) in pairs if was != now}
    return new


def _one_for_one(old: Any, new: Any) -> bool:
    """Whether both are lists of dictionaries, as many."""
    lists = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    return lists and all(isinstance(part, dict) for part in chain(old, new))


def strip(run: Run) -> str:
    """What ran, how and when, on one line."""
    return " · ".join([words.caption(run.model), *words.how_and_when(run)])


def heading(run: Run, figures: Figures) -> list[str]:
    """Two phrases: where the run is at the moment of the figures, and how many rows still work."""
    step = figures.newest
    if figures.status != "running":
        ended = {"done": "Done", "stopped": "Stopped", "error": "Failed"}[figures.status]
        if step is None or len(run.batches) > 1:
            return [ended, ""]
        if figures.status == "done":
            return [f"Done after {words.plural(step.forward, 'step')}", ""]
        return [f"{ended} after step {_step_of(run, step)}", ""]
    if step is None:
        return ["Prefill", "all prompts in one forward"]
    seated = [figures.rows[request].end for request in run.batches[step.batch].requests]
    working = seated.count(None)
    where = f"Batch {step.batch + 1} of {len(run.batches)} · " if len(run.batches) > 1 else ""
    return [
        f"{where}Step {_step_of(run, step)}",
        f"{working} of {words.plural(len(seated), 'row')} still working",
    ]


def _step_of(run: Run, step: Step) -> str:
    last = max([run.requests[index].max_new_tokens for index in run.batches[step.batch].requests])
    return f"{step.forward} of {last}"


def tiles(run: Run, figures: Figures) -> list[dict[str, Any]]:
    """The figures above the picture, one for each of TILES: value, unit, note, what a slide shows
    of the note (`brief`), the parts of a bar, the formula with these numbers (`worked`), and the
    cells of its table (`facts`)."""
    running = figures.status == "running"
    waited = ""
    if len(run.batches) > 1 and figures.mean_waited is not None:
        waited = f" · waited {words.seconds(figures.mean_waited)}"
    decode = f"decode {words.rate(figures.decode_tokens_per_second)}"
    made = {
        "output": _tile(
            words.rate(figures.output_tokens_per_second), "tok/s", f"{decode} tok/s", decode
        ),
        "ttft": _timed_tile(figures.mean_ttft, figures.timed_rows, waited),
        "tpot": _timed_tile(figures.mean_tpot, figures.paced_rows),
        "padding": _waste_tile(figures.padding, "padded", "slots", "no prefill yet", running),
        "idle": _waste_tile(
            figures.idle,
            "idle",
            "slots so far" if running else "slots",
            "no decode yet" if running else "nothing was decoded",
            running,
        ),
        "kv": _kv_tile(figures.kv_bytes, running),
    }
    worked, told = worked_tiles(figures), facts(run, figures)
    return [made[key] | {"worked": worked[key], "facts": told.get(key, "")} for key in TILES]


def _tile(
    value: str, unit: str, note: str, brief: str, bar: list[list[Any]] | None = None
) -> dict[str, Any]:
    return {"value": value, "unit": unit, "note": note, "brief": brief, "bar": bar or []}


def _timed_tile(mean: float | None, rows: int, more: str = "") -> dict[str, Any]:
    value, _, unit = words.seconds(mean).partition(" ")
    return _tile(value, unit, f"mean of {words.plural(rows, 'row')}{more}", "mean")


def _waste_tile(waste: Waste, state: str, what: str, none: str, running: bool) -> dict[str, Any]:
    if waste.fraction is None:
        return _tile("n/a", "", none, "not yet" if running else "no slots", [[state, 0]])
    value, unit = words.percent(waste, 1).split(" ")
    brief = f"{words.rounded(waste.wasted)} of {words.rounded(waste.slots)}"
    bar = [[state, round(waste.fraction, 3)]]
    return _tile(value, unit, words.fraction(waste, what), brief, bar)


def _kv_tile(kv: KVBytes, running: bool) -> dict[str, Any]:
    cache = words.cache(kv)
    note = " · ".join(f"{name} {part}" for name, part in cache.parts.items())
    held = {"active": kv.live, "padded": kv.padding, "idle": kv.dead}
    bar = [[state, round(part / kv.total, 3) if kv.total else 0] for state, part in held.items()]
    brief = "now" if running else "at the end"
    return _tile(cache.total, cache.unit, note, brief, bar)


class _Lines(dict[tuple[int | None, str], str]):
    """What a log says of a token and its text, written once for all their places."""

    def __missing__(self, made: tuple[int | None, str]) -> str:
        token, text = made
        if "\\" in text or "\n" in text:
            text = text.replace("\\", "\\\\").replace("\n", "\\n")
        self[made] = line = "\n" if token is None else f"{token} {text}\n"
        return line

"""Comparison -> the value of the "Compare" tab: lanes, table and sentences.

A value is {"notice", "busy", "shown"}. `shown` None leaves the lanes as they are, so that a refusal
does not wipe out what was measured before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from engine.comparison import Comparison, Engine, Entry, dumps, same_ids
from engine.lanes import Lane, lane_of
from viz import words
from viz.compare.computed import basis_of, computed_lanes, shown_lanes
from viz.compare.lane import COLUMNS, drawn, line, times
from viz.export import file_name

Value = dict[str, Any]

TITLES: dict[Engine, str] = {"serial": "Serial", "static": "Static", "continuous": "Continuous"}
HOW: dict[Engine, str] = {
    "serial": "one by one",
    "static": "in static batches",
    "continuous": "continuously",
}
NO_SCHEDULES: Value = {"basis": None, "computed": None, "why": "", "check": ""}
LONGEST_PROMPT = 200
"""Characters of a prompt that are shown beside a span."""


def compare_value(
    shown: Value | None = None, *, text: str = "", kind: str = "info", busy: bool = False
) -> Value:
    """The value: `shown` as a `CompareWriter` makes it, a line of text, and whether to offer Stop
    instead of Compare."""
    return {"notice": {"text": text, "kind": kind}, "busy": busy, "shown": shown}


@dataclass(frozen=True)
class Measured:
    """A comparison so far, and the lanes of the runs that have given a token."""

    comparison: Comparison
    lanes: dict[Engine, Lane]

    @property
    def done(self) -> dict[Engine, Lane]:
        """Of the runs that came to their end: only these can be compared."""
        over = {run.settings.engine for run in self.comparison.runs if run.status == "done"}
        return {engine: lane for engine, lane in self.lanes.items() if engine in over}

    @property
    def alone(self) -> float | None:
        """How long the requests took one by one, in seconds."""
        serial = self.done.get("serial")
        return serial.figures.wall_seconds if serial else None

    def alone_beside(self, engine: Engine) -> float | None:
        """The same, where the run of that engine can be compared with it."""
        return self.alone if engine in self.done else None


class CompareWriter:
    """The states of one comparison, one after another; a run that is over is measured once."""

    def __init__(self, *, key: str, slots: int = 1, recorded: bool = False) -> None:
        """`key` tells comparisons apart; `slots` is how many a lane has that has not begun."""
        self._key = key
        self._slots = slots
        self._recorded = recorded
        self._over: dict[Engine, Lane] = {}

    def write(self, comparison: Comparison) -> Value:
        running = comparison.status == "running"
        measured = Measured(comparison, dict(self._lanes(comparison)))
        return {
            "key": self._key,
            "status": comparison.status,
            "recorded": self._recorded,
            "heading": heading(measured),
            "remark": "" if running else remark(measured),
            "strip": strip(comparison),
            "prompts": prompts(comparison),
            "lanes": [self._drawn(entry, measured) for entry in comparison.entries],
            "columns": ["", *COLUMNS],
            "rows": [_row(entry, measured) for entry in comparison.entries],
            **(NO_SCHEDULES if running else other_schedules(measured)),
            "record": "" if running else dumps(comparison),
            "file": _file(comparison),
        }

    def _lanes(self, comparison: Comparison) -> Iterator[tuple[Engine, Lane]]:
        for entry in comparison.entries:
            if entry.run is None or not entry.run.steps:
                continue
            lane = self._over.get(entry.engine) or lane_of(entry.run)
            if entry.is_over:
                self._over[entry.engine] = lane
            yield entry.engine, lane

    def _drawn(self, entry: Entry, measured: Measured) -> Value:
        engine, title = entry.engine, TITLES[entry.engine]
        said = entry.reason or (entry.run and entry.run.error) or ""
        if engine not in measured.lanes:
            slots = 0 if said else 1 if engine == "serial" else self._slots
            empty = {"told": [], "computed": False, "slots": slots, "wall": 0, "spans": []}
            absent = "to come" if measured.comparison.status == "running" else "did not run"
            return {"title": title, "note": said or absent, **empty}
        lane = measured.lanes[engine]
        alone = None if engine == "serial" else measured.alone_beside(engine)
        note = said or _note(engine, lane.slots)
        return drawn(lane, title=title, note=note, serial_seconds=alone)


def shown_state(comparison: Comparison, *, key: str, recorded: bool = False) -> Value:
    """A comparison that is over."""
    return CompareWriter(key=key, recorded=recorded).write(comparison)


def heading(measured: Measured) -> str:
    """Who is under way, or how fast each was against the serial run."""
    comparison = measured.comparison
    if comparison.status == "running":
        engine = comparison.under_way
        if engine is None:
            return "Beginning"
        if engine not in measured.lanes:
            return f"{TITLES[engine]}: warming up"
        tokens = measured.lanes[engine].figures.generated_tokens
        return f"{TITLES[engine]}: {words.plural(tokens, 'token')}"
    factors = [
        f"{engine} {times(lane, measured.alone)}"
        for engine, lane in measured.done.items()
        if measured.alone and engine != "serial"
    ]
    if factors:
        told = words.listing(factors)
        return f"{told[0].upper()}{told[1:]} as fast as serial"
    return {"done": "Done", "stopped": "Stopped", "error": "Ended early"}[comparison.status]


def remark(measured: Measured) -> str:
    """Why it ended early, if it did, and what is to be learned."""
    return " ".join(filter(None, [measured.comparison.error, *_lessons(measured)]))


def _lessons(measured: Measured) -> Iterator[str]:
    done = measured.done
    same = same_ids(measured.comparison)
    if same is not None:
        which = {2: "both", 3: "all three"}[len(done)]
        yield f"Same ids in {which}." if same else f"The ids are not the same in {which}."
    if not done:
        return
    took = [
        f"{words.seconds(lane.figures.wall_seconds)} {HOW[name]}" for name, lane in done.items()
    ]
    tokens = next(iter(done.values())).figures.generated_tokens
    yield f"{words.plural(tokens, 'token')} took {words.listing(took)}."
    if "static" in done and (idle := done["static"].figures.idle).slots:
        slots = words.fraction(idle, "decode slots")
        yield f"In the static run {slots} were idle ({words.percent(idle)})."


def strip(comparison: Comparison) -> str:
    """What ran, how much of it, and when."""
    parts = [words.date(comparison.started_at)]
    for run in comparison.runs[:1]:
        parts = [words.caption(run.model), words.plural(len(run.requests), "request"), *parts]
    return " · ".join(parts)


def prompts(comparison: Comparison) -> list[str]:
    """The beginnings of the prompts, by request."""
    for run in comparison.runs[:1]:
        texts = (words.prompt_text(request.prompt) for request in run.requests)
        return [
            text if len(text) <= LONGEST_PROMPT else f"{text[:LONGEST_PROMPT]}…" for text in texts
        ]
    return []


def other_schedules(measured: Measured) -> Value:
    """The computed lanes at the settings of the static run, and how they compare with what was
    measured; or why there are none."""
    basis = basis_of(measured.comparison)
    if isinstance(basis, str):
        return NO_SCHEDULES | {"why": basis}
    settings = {"slots": basis.slots, "order": "as given"}
    lanes = computed_lanes(basis, **settings)
    return {
        "basis": asdict(basis),
        "computed": shown_lanes(lanes, basis, **settings),
        "why": "",
        "check": check(measured, {lane.name: lane for _, _, lane in lanes}),
    }


def check(measured: Measured, computed: dict[str, Lane]) -> str:
    """The wall times of what was both measured and computed, and how far they are apart."""
    pairs = [
        (engine, computed[engine].figures.wall_seconds, lane.figures.wall_seconds)
        for engine, lane in measured.done.items()
        if engine in computed
    ]
    told = [
        f"{engine} {words.seconds(made)} computed, {words.seconds(took)} measured "
        f"({100 * (made / took - 1):+.0f} %)"
        for engine, made, took in pairs
    ]
    return f"With the settings of the run: {'; '.join(told)}." if told else ""


def _note(engine: Engine, slots: int) -> str:
    return {
        "serial": "one request after another",
        "static": f"batches of {slots}, each waits for the one before",
        "continuous": f"{words.plural(slots, 'slot')}, refilled by transformers",
    }[engine]


def _row(entry: Entry, measured: Measured) -> list[str]:
    title = TITLES[entry.engine]
    if entry.engine not in measured.lanes:
        return [title, *["–"] * len(COLUMNS)]
    return line(title, measured.lanes[entry.engine], measured.alone_beside(entry.engine))


def _file(comparison: Comparison) -> str:
    return file_name(comparison.runs[0], "-compare.json") if comparison.runs else ""

"""The record of a comparison: the same requests, run by three engines one after another.

Plain data, like engine.run: engine.compare measures it, the shell and the page show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from engine import runfile
from engine.errors import RecordError
from engine.lanes import LaneFigures, lane_of, speed_up
from engine.run import Run, Status

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = 1
MAX_BYTES = 2 * runfile.MAX_BYTES
MAX_SENTENCE = 2_000
"""Characters of a reason or an error."""

Engine = Literal["serial", "static", "continuous"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
"""In the order in which they run."""


@dataclass(frozen=True)
class Entry:
    """What one engine did. `reason` says why it can't run these requests here; then there is no
    run. With neither it has not begun. A run that broke is there, and says so itself."""

    engine: Engine
    run: Run | None = None
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        return self.reason is not None or (self.run is not None and self.run.status != "running")


@dataclass(frozen=True)
class Comparison:
    """A comparison so far: an entry for each of ENGINES, in their order. All runs have the same
    requests. `started_at` is a date and time; before the first run comes a warm-up, in no run.

    "done" means that no entry is left, also where one was refused or broke; "stopped" that Stop
    was pressed; "error", with the sentence, that something ended it before.
    """

    entries: tuple[Entry, ...]
    started_at: str
    status: Status = "running"
    error: str | None = None
    schema_version: int = SCHEMA_VERSION

    def entry(self, engine: Engine) -> Entry:
        return self.entries[ENGINES.index(engine)]

    @property
    def runs(self) -> tuple[Run, ...]:
        """Those that have begun."""
        return tuple(entry.run for entry in self.entries if entry.run is not None)

    @property
    def under_way(self) -> Engine | None:
        """Whose turn it is, before its first step too; None once all is over."""
        if self.status != "running":
            return None
        return next((entry.engine for entry in self.entries if not entry.is_over), None)


def begun(started_at: str) -> Comparison:
    """A comparison of which nothing has run yet."""
    return Comparison(tuple(map(Entry, ENGINES)), started_at)


def cut_off(comparison: Comparison, error: str) -> Comparison:
    """The comparison as it stands; its run under way ended with it."""
    entries = tuple(
        replace(entry, run=replace(entry.run, status="error", error=error))
        if entry.run and entry.run.status == "running"
        else entry
        for entry in comparison.entries
    )
    return replace(comparison, entries=entries, status="error", error=error)


def with_entry(comparison: Comparison, entry: Entry) -> Comparison:
    """The comparison with what is known of one engine by now."""
    return replace(
        comparison,
        entries=tuple(
            entry if other.engine == entry.engine else other for other in comparison.entries
        ),
    )


def ids_by_request(run: Run) -> list[list[int]]:
    """The ids that each request has emitted."""
    ids: list[list[int]] = [[] for _ in run.requests]
    for step in run.steps:
        for request, token in zip(run.batches[step.batch].requests, step.tokens, strict=True):
            if token is not None:
                ids[request].append(token)
    return ids


def same_ids(comparison: Comparison) -> bool | None:
    """Whether all runs that came to their end gave the same ids; None where fewer than two did."""
    ids = [ids_by_request(run) for run in comparison.runs if run.status == "done"]
    return all(other == ids[0] for other in ids[1:]) if len(ids) > 1 else None


class Row(NamedTuple):
    """One engine in the table. `figures` are those of its lane, None where it has no run.
    `speed_up` is the serial run's wall time over its own, `same_ids` whether it gave the serial
    run's ids: both None until the two runs are done. `note`: why it did not run, or broke."""

    engine: Engine
    figures: LaneFigures | None
    speed_up: float | None
    same_ids: bool | None
    note: str | None


def table(comparison: Comparison) -> tuple[Row, ...]:
    """The figures of each engine, for the shell and the page."""
    serial = comparison.entry("serial").run
    return tuple(_row(entry, serial) for entry in comparison.entries)


def _row(entry: Entry, serial: Run | None) -> Row:
    run = entry.run
    if run is None:
        return Row(entry.engine, None, None, None, entry.reason)
    lane, both_done = lane_of(run), serial is not None and serial.status == run.status == "done"
    return Row(
        engine=entry.engine,
        figures=lane.figures,
        speed_up=speed_up(lane, lane_of(serial)) if both_done else None,
        same_ids=ids_by_request(run) == ids_by_request(serial) if both_done else None,
        note=run.error,
    )


def dumps(comparison: Comparison) -> str:
    """The comparison as strict JSON: numbers and null, never NaN or Infinity."""
    return json.dumps(
        comparison, default=vars, allow_nan=False, ensure_ascii=False, separators=(",", ":")
    )


def loads(data: str | bytes) -> Comparison:
    """Parse a saved comparison, each of its runs by the rules for saved runs; RecordError names the
    first thing that is wrong."""
    read = runfile.parse(
        data, _schema(), noun="comparison", most_bytes=MAX_BYTES, versions=range(1, 2)
    )
    if problem := next(_problems(read), None):
        raise RecordError(f"Not a saved comparison: {problem}.")
    entries = tuple(
        entry if entry.run is None else replace(entry, run=runfile.of_this_version(entry.run))
        for entry in read.entries
    )
    return replace(read, entries=entries)


@cache
def _schema() -> TypeAdapter[Comparison]:
    from pydantic import TypeAdapter

    return TypeAdapter(Comparison)


def _problems(comparison: Comparison) -> Iterator[str]:
    if [entry.engine for entry in comparison.entries] != list(ENGINES):
        yield "it does not have one entry for each engine, in order"
    if not runfile.is_moment(comparison.started_at):
        yield f"{comparison.started_at!r:.40} is no date and time"
    if (comparison.status == "error") != (comparison.error is not None):
        yield f"it is called {comparison.status}, with {'an' if comparison.error else 'no'} error"
    said = [comparison.error, *(entry.reason for entry in comparison.entries)]
    if any(sentence is not None and len(sentence) > MAX_SENTENCE for sentence in said):
        yield f"a sentence is longer than {MAX_SENTENCE:,} characters"
    for entry in comparison.entries:
        if entry.run is None:
            continue
        if problem := runfile.problem(entry.run):
            yield f"the {entry.engine} run: {problem}"
        if entry.reason is not None:
            yield f"the {entry.engine} engine can't run, and has a run"
        if entry.run.settings.engine != entry.engine:
            yield f"the {entry.engine} run is of another engine"
        if entry.run.requests != comparison.runs[0].requests:
            yield f"the {entry.engine} run has other requests"
        if entry.run.status == "running" and comparison.status != "running":
            yield f"it is over, but the {entry.engine} run is not"
    if comparison.status == "done" and not all(entry.is_over for entry in comparison.entries):
        yield "it is called done, but not every engine is"

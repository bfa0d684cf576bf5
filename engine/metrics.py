"""Figures of a Run: pure functions, defined once (see "What the figures mean" in the README)."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from operator import add
from typing import NamedTuple

from engine.run import Batch, End, KVBytes, Phase, Run, Status, Step, until


class Waste(NamedTuple):
    """Wasted slots out of all slots; the fraction is None where there are no slots to waste."""

    wasted: int
    slots: int

    @property
    def fraction(self) -> float | None:
        return self.wasted / self.slots if self.slots else None


def padding_waste(prompt_lengths: Iterable[Sequence[int]]) -> Waste:
    """Prefill padding, sum(S - L_i) / (B * S), from the prompt lengths of each batch."""
    wasted = slots = 0
    for lengths in prompt_lengths:
        width = max(lengths)
        slots += width * len(lengths)
        wasted += width * len(lengths) - sum(lengths)
    return Waste(wasted, slots)


def idle_waste(generated: Iterable[Sequence[int]]) -> Waste:
    """Decode idle, sum(T - n_i) / (B * T), from the generated tokens of each batch's rows.

    Column 1 comes out of the prefill, so where every T is at most 1 nothing was decoded and
    there are no slots: the figure is "n/a".
    """
    batches = [lengths for lengths in generated if lengths]
    if all(max(lengths) <= 1 for lengths in batches):
        return Waste(0, 0)
    slots = sum(max(lengths) * len(lengths) for lengths in batches)
    return Waste(slots - sum(map(sum, batches)), slots)


def percentile(values: Iterable[float], percent: int) -> float | None:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank), so
    always one that was measured; None where there are none. `percent` is from 1 to 100."""
    if not 1 <= percent <= 100:
        raise ValueError(f"percentile {percent}")
    return _nearest_rank(sorted(values), percent)


class Spread(NamedTuple):
    """How so many values are spread: nearest-rank percentiles, None where there are no values."""

    count: int = 0
    median: float | None = None
    p90: float | None = None
    p99: float | None = None
    largest: float | None = None


class Row(NamedTuple):
    """What one request did so far. Times are seconds since the start of the run."""

    request: int
    batch: Batch
    slot: int
    generated: int
    end: End | None
    first_token_at: float | None
    last_token_at: float | None

    @property
    def prompt_tokens(self) -> int:
        return len(self.batch.prompt_ids[self.slot])

    @property
    def waited(self) -> float | None:
        """Seconds from the start of the run to the start of the row's batch."""
        return self.batch.started

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from the start of the row's batch."""
        if self.first_token_at is None or self.batch.started is None:
            return None
        return self.first_token_at - self.batch.started

    @property
    def tpot(self) -> float | None:
        """Time per output token, (t_last - t_first) / (n - 1); None below two tokens."""
        if self.generated < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (self.generated - 1)


def columns(run: Run, batch: int) -> list[Step]:
    """The steps of one batch in order: step k - 1 is column k."""
    return [step for step in run.steps if step.batch == batch]


def columns_by_batch(run: Run) -> list[list[Step]]:
    """`columns` of every batch, in one pass."""
    columns: list[list[Step]] = [[] for _ in run.batches]
    for step in run.steps:
        columns[step.batch].append(step)
    return columns


def rows(run: Run) -> tuple[Row, ...]:
    """One Row per request, in the order of the requests."""
    tables = [_Table(batch) for batch in run.batches]
    for step in run.steps:
        tables[step.batch].add(step)
    return _rows(tables, run.status)


@dataclass(frozen=True)
class Figures:
    """The figures of a run so far, up to its newest step. Seconds and tokens per second; None is
    "not measured". `decoded_tokens` leaves out each row's first, which the prefill gave;
    `timed_rows` have a TTFT and `paced_rows` a TPOT: means and spreads are over them.

    Wall time is from the start of the run to its newest token: prefill, decode, and
    `between_seconds`, what passed between the forwards. `queued_seconds`, in line, came before it.
    `device_seconds` is what a device measured itself; None unless it did so at every step.

    A forward that served several requests of a continuous run counts once, for decode if a row of
    it decoded. Prompts that it read meanwhile took no time of their own, so there is no prompt
    tok/s. `kv_bytes` are those of its requests together.
    """

    status: Status
    newest: Step | None
    rows: tuple[Row, ...]
    timed_rows: int
    paced_rows: int
    prompt_tokens: int
    generated_tokens: int
    decoded_tokens: int
    queued_seconds: float
    wall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    between_seconds: float
    device_seconds: float | None
    output_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    mean_waited: float | None
    mean_ttft: float | None
    mean_tpot: float | None
    waited: Spread
    ttft: Spread
    tpot: Spread
    decode_steps: Spread
    padding: Waste
    idle: Waste
    kv_bytes: KVBytes
    peak_kv_bytes: int


def measure(run: Run) -> Figures:
    """All figures of a finished or running Run.

    Output tok/s is every generated token over the wall time; decode tok/s is the tokens of the
    decode forwards over their time; prompt tok/s is real prompt tokens over prefill time.
    Batches that have not started are in no figure.
    """
    return Meter(run).read(run)


def history(run: Run, *, every: int = 1) -> Iterator[Figures]:
    """`measure(until(run, k))` for k = 0, every, 2 * every, ... and the last step, in one pass."""
    meter = Meter(until(run, 0))
    for done, step in enumerate(run.steps):
        if done % every == 0:
            yield meter.figures("running")
        meter.seat(run.batches[step.batch])
        meter.add(step)
    yield meter.read(run)


class Meter:
    """Reads the record of one run as it grows: what came since the last time is added up."""

    def __init__(self, run: Run) -> None:
        self._queued = run.queued_seconds
        self._shares_forwards = run.settings.engine == "continuous"
        self._added = 0
        self._tables = [_Table(batch) for batch in run.batches]
        self._newest: Step | None = None
        self._phase: Phase = "prefill"  # that the newest forward counts for
        self._held = KVBytes(0, 0, 0)
        self._seconds = {"prefill": 0.0, "decode": 0.0}
        self._device: float | None = 0.0
        self._decode_steps: list[float] = []
        # In order of size:
        self._waited: list[float] = []
        self._ttft: list[float] = []
        self._paces: list[float] = []  # of the rows that have ended
        self._first_tokens = _FirstTokens(None, None, Spread(), Spread())
        self._tokens = {"prompt": 0, "prefill": 0, "decode": 0}
        self._padding = Waste(0, 0)
        self._slots = 0
        self._peak = 0

    def read(self, run: Run) -> Figures:
        """`measure` of the run, which has grown since it was read last."""
        self._queued = run.queued_seconds
        for batch in run.batches:  # one may have started and not come to a step
            self.seat(batch)
        for step in run.steps[self._added :]:
            self.add(step)
        return self.figures(run.status)

    def seat(self, batch: Batch) -> None:
        """Put a batch that has started in the place of what was planned."""
        self._tables[batch.index].seat(batch)

    def add(self, step: Step) -> None:
        self._added += 1
        table = self._tables[step.batch]
        working = len(table.working)
        for row in table.add(step):
            if row.tpot is not None:
                insort(self._paces, row.tpot)
        if step.forward == 1:
            self._seat_rows(table.batch, step.finished)
        self._slots += len(step.tokens)
        self._tokens[step.phase] += working
        newest = self._newest
        if self._shares_forwards and newest and newest.started == step.started:
            self._add_to_forward(step)
        else:
            self._add_forward(step)
        self._peak = max(self._peak, self._held.total)
        self._newest = step

    def _add_forward(self, step: Step) -> None:
        self._count(step.phase, step.seconds)
        self._held = step.kv_bytes
        if step.device_seconds is None:
            self._device = None
        elif self._device is not None:
            self._device += step.device_seconds

    def _add_to_forward(self, step: Step) -> None:
        """Another step of the forward that was added last."""
        if self._phase == "prefill" and step.phase == "decode":
            self._seconds["prefill"] -= step.seconds
            self._count("decode", step.seconds)
        self._held = KVBytes(*map(add, vars(self._held).values(), vars(step.kv_bytes).values()))

    def _count(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._seconds[phase] += seconds
        if phase == "decode":
            self._decode_steps.append(seconds)

    def _seat_rows(self, batch: Batch, first_token_at: float) -> None:
        lengths = batch.prompt_lengths
        self._waited = _and_so_many(self._waited, len(lengths), batch.started)
        self._ttft = _and_so_many(self._ttft, len(lengths), first_token_at - batch.started)
        self._first_tokens = _FirstTokens(
            _mean(self._waited), _mean(self._ttft), spread(self._waited), spread(self._ttft)
        )
        self._tokens["prompt"] += sum(lengths)
        wasted, slots = padding_waste([lengths])
        self._padding = Waste(self._padding.wasted + wasted, self._padding.slots + slots)

    def figures(self, status: Status) -> Figures:
        paces, first_tokens = self._paces, self._first_tokens
        for table in self._under_way:
            if table.working and (pace := table.pace) is not None:
                paces = _and_so_many(paces, len(table.working), pace)
        self._decode_steps.sort()  # all but the last few are in order
        tokens, seconds = self._tokens, self._seconds
        generated = tokens["prefill"] + tokens["decode"]
        wall = self._newest.finished if self._newest else 0.0
        between = wall - seconds["prefill"] - seconds["decode"]
        return Figures(
            status=status,
            newest=self._newest,
            rows=_rows(self._tables, status),
            timed_rows=len(self._ttft),
            paced_rows=len(paces),
            prompt_tokens=tokens["prompt"],
            generated_tokens=generated,
            decoded_tokens=tokens["decode"],
            queued_seconds=self._queued,
            wall_seconds=wall,
            prefill_seconds=seconds["prefill"],
            decode_seconds=seconds["decode"],
            between_seconds=max(0.0, between),  # nothing at all can round to less
            device_seconds=self._device if self._newest else None,
            output_tokens_per_second=_ratio(generated, wall),
            decode_tokens_per_second=_ratio(tokens["decode"], seconds["decode"]),
            prompt_tokens_per_second=None
            if self._shares_forwards
            else _ratio(tokens["prompt"], seconds["prefill"]),
            mean_waited=first_tokens.mean_waited,
            mean_ttft=first_tokens.mean_ttft,
            mean_tpot=_mean(paces),
            waited=first_tokens.waited,
            ttft=first_tokens.ttft,
            tpot=spread(paces),
            decode_steps=spread(self._decode_steps),
            padding=self._padding,
            # As `idle_waste`: every forward is a column, and column 1 alone was not decoded.
            idle=Waste(self._slots - generated, self._slots) if tokens["decode"] else Waste(0, 0),
            kv_bytes=self._held,
            peak_kv_bytes=self._peak,
        )

    @property
    def _under_way(self) -> list[_Table]:
        """Batches whose rows may run on."""
        if self._shares_forwards:
            return self._tables
        return [self._tables[self._newest.batch]] if self._newest else []


class _FirstTokens(NamedTuple):
    """What another batch changes, and no other step."""

    mean_waited: float | None
    mean_ttft: float | None
    waited: Spread
    ttft: Spread


def _and_so_many(ordered: list[float], count: int, value: float) -> list[float]:
    """The values and one more, so many times (rows that share a forward share it), in order."""
    place = bisect(ordered, value)
    return [*ordered[:place], *[value] * count, *ordered[place:]]


class _Table:
    """The rows of one batch as its forwards come. All that still work have as many tokens, of the
    same times; a row that has ended stays as it is. So a forward costs no more than the rows that
    end with it."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.working = list(range(len(batch.requests)))  # slots
        self._ended: dict[int, Row] = {}
        self._generated = 0
        self._first: float | None = None
        self._last: float | None = None
        self._rows: list[Row] | None = None  # until something changes

    def seat(self, batch: Batch) -> None:
        if self.batch is not batch:
            self.batch, self._rows = batch, None

    def add(self, step: Step) -> list[Row]:
        """The rows that end with this step."""
        self._generated, self._last = step.forward, step.finished
        if step.forward == 1:
            self._first = self._last
        self._rows = None
        if not any(step.ends):
            return []
        ended = [self._row(slot, step.ends[slot]) for slot in self.working if step.ends[slot]]
        self._ended |= {row.slot: row for row in ended}
        self.working = [slot for slot in self.working if slot not in self._ended]
        return ended

    @property
    def pace(self) -> float | None:
        """`Row.tpot` of each row that still works."""
        return self._row(self.working[0], None).tpot

    @property
    def rows(self) -> list[Row]:
        if self._rows is None:
            alike = map(repeat, (self._generated, None, self._first, self._last))
            seats = zip(self.batch.requests, repeat(self.batch), count(), *alike)
            self._rows = list(map(tuple.__new__, repeat(Row), seats))  # as Row._make, all at once
            for slot, row in self._ended.items():
                self._rows[slot] = row
        return self._rows

    def _row(self, slot: int, end: End | None) -> Row:
        request = self.batch.requests[slot]
        return Row(request, self.batch, slot, self._generated, end, self._first, self._last)


def _rows(tables: Iterable[_Table], status: Status) -> tuple[Row, ...]:
    table = chain.from_iterable(each.rows for each in tables)
    if status not in _UNFINISHED:
        return tuple(table)
    return tuple(row if row.end else row._replace(end=_UNFINISHED[status]) for row in table)


_UNFINISHED: dict[Status, End] = {"stopped": "cancelled", "error": "error"}
"""How a row ended that had no end of its own when its run did."""


def _ratio(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None


def spread(ordered: Sequence[float]) -> Spread:
    """Nearest-rank percentiles of values in order, and the largest."""
    if not ordered:
        return Spread()
    ranks = [_nearest_rank(ordered, percent) for percent in (50, 90, 99)]
    return Spread(len(ordered), *ranks, ordered[-1])

"""Figures of a Run: pure functions, defined once (see "What the figures mean" in the README)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.run import Batch, End, KVBytes, Run, Status, Step, until


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


@dataclass(frozen=True)
class Row:
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


def rows(run: Run) -> tuple[Row, ...]:
    """One Row per request, in the order of the requests."""
    return _tally(run).rows(run.status)


@dataclass(frozen=True)
class Figures:
    """The figures of a run so far. Seconds and tokens per second; None is "not measured"."""

    rows: tuple[Row, ...]
    prompt_tokens: int
    generated_tokens: int
    wall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    output_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    mean_waited: float | None
    mean_ttft: float | None
    mean_tpot: float | None
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
    return _tally(run).figures(run.status)


def history(run: Run) -> Iterator[Figures]:
    """`measure(until(run, k))` for k = 0 to the last step, in one pass."""
    tally = _Tally(until(run, 0).batches)
    for step, batch in zip(run.steps, _batch_of_each_step(run), strict=True):
        yield tally.figures("running")
        tally.seat(batch)
        tally.add(step)
    yield _tally(run).figures(run.status)


def _batch_of_each_step(run: Run) -> Iterator[Batch]:
    return (run.batches[step.batch] for step in run.steps)


def _tally(run: Run) -> _Tally:
    tally = _Tally(run.batches)
    for step in run.steps:
        tally.add(step)
    return tally


class _Tally:
    """Adds up steps, one after another, until someone asks for rows or figures."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = list(batches)
        requests = sum(len(batch.requests) for batch in self._batches)
        self._generated = [0] * requests
        self._ends: list[End | None] = [None] * requests
        self._first: list[float | None] = [None] * requests
        self._last: list[float | None] = [None] * requests
        self._seconds = {"prefill": 0.0, "decode": 0.0}
        self._wall = 0.0
        self._kv = KVBytes(0, 0, 0)
        self._peak = 0
        self._started: set[int] = set()

    def seat(self, batch: Batch) -> None:
        """Put a batch that has started in the place of what was planned."""
        self._batches[batch.index] = batch

    def add(self, step: Step) -> None:
        seats = self._batches[step.batch].requests
        for request, token, end in zip(seats, step.tokens, step.ends, strict=True):
            if token is not None:
                self._generated[request] += 1
                self._ends[request] = end
                self._last[request] = step.finished
                if step.forward == 1:
                    self._first[request] = step.finished
        self._started.add(step.batch)
        self._seconds[step.phase] += step.seconds
        self._wall = step.finished
        self._kv = step.kv_bytes
        self._peak = max(self._peak, step.kv_bytes.total)

    def rows(self, status: Status) -> tuple[Row, ...]:
        unfinished: dict[str, End] = {"stopped": "cancelled", "error": "error"}
        return tuple(
            Row(
                request=request,
                batch=batch,
                slot=slot,
                generated=self._generated[request],
                end=self._ends[request] or unfinished.get(status),
                first_token_at=self._first[request],
                last_token_at=self._last[request],
            )
            for batch in self._batches
            for slot, request in enumerate(batch.requests)
        )

    def figures(self, status: Status) -> Figures:
        table = self.rows(status)
        seated = [row for row in table if row.batch.index in self._started]
        prompt_tokens = sum(row.prompt_tokens for row in seated)
        generated = sum(row.generated for row in seated)
        decoded = sum(row.generated - 1 for row in seated if row.generated)
        started = [batch for batch in self._batches if batch.index in self._started]
        return Figures(
            rows=table,
            prompt_tokens=prompt_tokens,
            generated_tokens=generated,
            wall_seconds=self._wall,
            prefill_seconds=self._seconds["prefill"],
            decode_seconds=self._seconds["decode"],
            output_tokens_per_second=_ratio(generated, self._wall),
            decode_tokens_per_second=_ratio(decoded, self._seconds["decode"]),
            prompt_tokens_per_second=_ratio(prompt_tokens, self._seconds["prefill"]),
            mean_waited=_mean(row.waited for row in seated),
            mean_ttft=_mean(row.ttft for row in seated),
            mean_tpot=_mean(row.tpot for row in seated),
            padding=padding_waste(batch.prompt_lengths for batch in started),
            idle=idle_waste(
                [self._generated[request] for request in batch.requests] for batch in started
            ),
            kv_bytes=self._kv,
            peak_kv_bytes=self._peak,
        )


def _ratio(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

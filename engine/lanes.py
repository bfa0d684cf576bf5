"""A lane: one run, measured or computed, as spans of seconds in the rows of its slots.

Plain data, for pictures and tables. A span is a stretch of one request's stay in one slot, not one
token, so that a lane of 64 requests x 2,048 tokens is a few hundred spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Literal, NamedTuple

from engine.metrics import Spread, Waste, columns_by_batch, idle_waste, padding_waste, spread
from engine.run import Batch, Run, Step

SpanState = Literal["prefill", "active", "idle"]
"""Its prompt is read, up to its first token; it generates; it has ended and keeps its slot."""


class Span(NamedTuple):
    """What a slot does for a request, in seconds since the start of the run. Where a slot has no
    span, it holds no request."""

    slot: int
    request: int
    state: SpanState
    start: float
    end: float


@dataclass(frozen=True)
class LaneFigures:
    """The figures of a lane so far. Seconds; None is "not known".

    `first_token` and `latency` are per request from the start of the run, when all requests are
    there, so waiting is in them: to its first token, and to its last once it has ended by itself.
    `forwards` gave at least one token each; output tok/s is all generated tokens over wall time.
    """

    wall_seconds: float
    forwards: int
    generated_tokens: int
    output_tokens_per_second: float | None
    first_token: Spread
    latency: Spread
    padding: Waste
    idle: Waste
    peak_kv_bytes: int | None


@dataclass(frozen=True)
class Lane:
    """One way to run the requests. `error` says why a measured run broke, or how far off the
    seconds of a computed one may be."""

    name: str
    computed: bool
    slots: int
    spans: tuple[Span, ...]
    figures: LaneFigures
    error: str | None = None


def lane_of(run: Run) -> Lane:
    """The lane of a recorded run, also of one under way.

    In a continuous run every request is a batch of one row; the record does not say in which slot
    it was, so slots are given out in the order of start, the lowest free one first.
    """
    continuous = run.settings.engine == "continuous"
    stays = list(_stays(run))
    seats = _lowest_free(stays) if continuous else [0] * len(stays)
    generated = [[row.last.forward for row in stay.rows] for stay in stays]
    wall = run.steps[-1].finished if run.steps else 0.0
    tokens = sum(map(sum, generated))
    return Lane(
        name=run.settings.engine,
        computed=False,
        slots=min(run.settings.batch_size, len(run.requests)) if continuous else run.slots,
        spans=tuple(
            span
            for stay, seat in zip(stays, seats, strict=True)
            for slot, row in enumerate(stay.rows, start=seat)
            for span in spans_of(
                slot,
                row.request,
                (
                    stay.batch.started,
                    stay.first.finished,
                    row.last.finished,
                    stay.newest.finished,
                ),
            )
        ),
        figures=LaneFigures(
            wall_seconds=wall,
            forwards=len({step.started for step in run.steps} if continuous else run.steps),
            generated_tokens=tokens,
            output_tokens_per_second=tokens / wall if wall > 0 else None,
            first_token=spread(sorted(stay.first.finished for stay in stays for _ in stay.rows)),
            latency=spread(
                sorted(row.last.finished for stay in stays for row in stay.rows if row.ended)
            ),
            padding=padding_waste(stay.batch.prompt_lengths for stay in stays),
            idle=idle_waste(generated),
            peak_kv_bytes=_peak(run.steps, continuous=continuous),
        ),
        error=run.error,
    )


def speed_up(lane: Lane, serial: Lane) -> float | None:
    """How many times as fast as one request after another: wall time over wall time."""
    wall = lane.figures.wall_seconds
    return serial.figures.wall_seconds / wall if wall > 0 else None


def spans_of(slot: int, request: int, moments: tuple[float, float, float, float]) -> Iterator[Span]:
    """The spans of one request: `moments` are when it was given the slot, its first token, its
    last token, and when it left."""
    states: tuple[SpanState, ...] = ("prefill", "active", "idle")
    for state, (start, end) in zip(states, pairwise(moments), strict=True):
        if end > start:
            yield Span(slot, request, state, start, end)


class _Row(NamedTuple):
    """What became of a request; `last` is its last step so far."""

    request: int
    last: Step
    ended: bool


class _Stay(NamedTuple):
    """A batch that has come to its first token, with its first step and its newest."""

    batch: Batch
    rows: tuple[_Row, ...]
    first: Step
    newest: Step


def _stays(run: Run) -> Iterator[_Stay]:
    for batch, steps in zip(run.batches, columns_by_batch(run), strict=True):
        if not steps:
            continue
        ends = {
            slot: step
            for step in steps
            if any(step.ends)
            for slot, end in enumerate(step.ends)
            if end
        }
        rows = (
            _Row(request, ends.get(slot, steps[-1]), slot in ends)
            for slot, request in enumerate(batch.requests)
        )
        yield _Stay(batch, tuple(rows), steps[0], steps[-1])


def _lowest_free(stays: Sequence[_Stay]) -> list[int]:
    """A slot for each, by the order of start; one is free from the last token of who had it."""
    seats = [0] * len(stays)
    free = list(range(len(stays)))  # a heap, as it is in order
    held: list[tuple[float, int]] = []
    for index in sorted(range(len(stays)), key=lambda index: stays[index].batch.started):
        while held and held[0][0] <= stays[index].batch.started:
            heappush(free, heappop(held)[1])
        seats[index] = heappop(free)
        heappush(held, (stays[index].newest.finished, seats[index]))
    return seats


def _peak(steps: Sequence[Step], *, continuous: bool) -> int:
    """Requests of a continuous run hold what they hold beside one another."""
    if not continuous:
        return max((step.kv_bytes.total for step in steps), default=0)
    held: dict[float, int] = {}
    for step in steps:
        held[step.started] = held.get(step.started, 0) + step.kv_bytes.total
    return max(held.values(), default=0)

"""Which request holds which slot when, in columns of new tokens: as a run did it, and as
continuous batching would have with the same lengths."""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import NamedTuple

from engine.metrics import Waste, columns_by_batch, rows
from engine.run import Run


class Span(NamedTuple):
    """`width` columns of one slot from column `start` on (0 is the first); request None: idle."""

    slot: int
    start: int
    width: int
    request: int | None


class Timetable(NamedTuple):
    spans: tuple[Span, ...]
    slots: int
    columns: int

    @property
    def idle(self) -> Waste:
        """Idle slots out of all that were held or idle."""
        wasted = sum(span.width for span in self.spans if span.request is None)
        return Waste(wasted, sum(span.width for span in self.spans))


def recorded_timetable(run: Run) -> Timetable:
    """As it happened: a batch starts where the one before has ended."""
    generated = [row.generated for row in rows(run)]
    spans, start = [], 0
    for batch, steps in zip(run.batches, columns_by_batch(run), strict=True):
        width = len(steps)
        for slot, request in enumerate(batch.requests):
            end = start + generated[request]
            spans.append(Span(slot, start, generated[request], request))
            spans.append(Span(slot, end, start + width - end, None))
        start += width
    return Timetable(_real(spans), run.slots, start)


def continuous_timetable(run: Run) -> Timetable:
    """Computed, not recorded: each request in order takes the slot that is free first.

    A column is a token of every row, as in the record; what the prefill of a joining request
    costs the others is left out.
    """
    free = [(0, slot) for slot in range(run.slots)]
    heapify(free)
    spans = []
    for row in rows(run):
        start, slot = free[0]
        spans.append(Span(slot, start, row.generated, row.request))
        heapreplace(free, (start + row.generated, slot))
    last = max(end for end, _ in free)
    spans += [Span(slot, end, last - end, None) for end, slot in free]
    return Timetable(_real(spans), run.slots, last)


def _real(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(span for span in spans if span.width)

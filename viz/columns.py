"""Where every batch and every column of a run stands on one axis of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from engine.metrics import Row, columns_by_batch, rows
from engine.run import Batch, Run, Step
from viz.slots import State, Stretch, new_stretches, prompt_stretches


class Place(NamedTuple):
    """One batch on the axis: its prompt from `prompt_start`, its new tokens from `start`.

    `width` counts the columns of new tokens: those that were computed and, while the batch is
    not over, those that are planned.
    """

    batch: Batch
    steps: list[Step]
    prompt_start: int
    start: int
    width: int

    @property
    def prompt_end(self) -> int:
        return self.prompt_start + self.batch.padded_length

    @property
    def end(self) -> int:
        return self.start + self.width

    def span(self, step: Step) -> tuple[int, int]:
        """The columns from and to which a forward reaches: the prefill also has the prompt."""
        first = self.prompt_start if step.forward == 1 else self.start + step.forward - 1
        return first, self.start + step.forward


class Columns(NamedTuple):
    """The whole axis. `gap` columns part prompt and new tokens, twice as many two batches."""

    places: list[Place]
    slots: int
    gap: int
    total: int


class Bar(NamedTuple):
    """Neighbouring columns of one slot in one state."""

    slot: int
    start: int
    width: int
    state: State | Literal["planned"]


def columns(run: Run) -> Columns:
    """Prompt, gap, new tokens, wider gap, next batch. Of a run that has ended, only the batches
    that ran."""
    table = rows(run) if run.status == "running" else ()
    shown = []
    for batch, steps in zip(run.batches, columns_by_batch(run), strict=True):
        if steps or run.status == "running":
            shown.append((batch, steps, _width(run, batch, table, len(steps))))
    taken = sum(batch.padded_length + width for batch, _, width in shown)
    gap = max(1, round(taken * 0.012))
    places = []
    at = 0
    for batch, steps, width in shown:
        start = at + batch.padded_length + gap
        places.append(Place(batch, steps, at, start, width))
        at = start + width + 2 * gap
    return Columns(places, run.slots, gap, max(1, at - 2 * gap))


def _width(run: Run, batch: Batch, table: Sequence[Row], computed: int) -> int:
    if run.status != "running" or all(table[index].end for index in batch.requests):
        return computed
    return max(run.requests[index].max_new_tokens for index in batch.requests)


def bars(run: Run, axis: Columns) -> Iterator[Bar]:
    """Every slot as bars, prompt and new tokens apart; slots without a request have none."""
    table = rows(run)
    for place in axis.places:
        batch, computed = place.batch, len(place.steps)
        width = batch.padded_length
        for slot, (request, length) in enumerate(
            zip(batch.requests, batch.prompt_lengths, strict=True)
        ):
            prompt = (
                prompt_stretches(length, width, batch.padding_side)
                if computed
                else [Stretch("planned", width)]
            )
            new = new_stretches(table[request].generated, computed, place.width)
            yield from _side_by_side(slot, place.prompt_start, prompt)
            yield from _side_by_side(slot, place.start, new)


def _side_by_side(slot: int, start: int, stretches: Iterable[Stretch]) -> Iterator[Bar]:
    for state, width in stretches:
        yield Bar(slot, start, width, state)
        start += width

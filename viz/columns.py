"""Where every batch and every column of a run stands on one axis of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from engine.metrics import Row, rows
from engine.metrics import columns as steps_of
from engine.run import Batch, Run, Step
from viz.slots import State, slot_states


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
    table = rows(run)
    shown = []
    for batch in run.batches:
        steps = steps_of(run, batch.index)
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
    slots = max((len(batch.requests) for batch in run.batches), default=1)
    return Columns(places, slots, gap, max(1, at - 2 * gap))


def _width(run: Run, batch: Batch, table: Sequence[Row], computed: int) -> int:
    if run.status != "running" or all(table[index].end for index in batch.requests):
        return computed
    return max(run.requests[index].max_new_tokens for index in batch.requests)


def bars(run: Run, axis: Columns) -> Iterator[Bar]:
    """Every slot as bars, prompt and new tokens apart; slots without a request have none."""
    states = iter(slot_states(run) if run.batches else [])
    for place in axis.places:
        seated = len(place.batch.requests)
        if place.steps:
            prefill, generation = next(states)
        else:
            prefill = [["planned"] * place.batch.padded_length] * seated
            generation = [[]] * seated
        planned = ["planned"] * (place.width - len(place.steps))
        for slot in range(seated):
            yield from _runs_of_equal_state(slot, place.prompt_start, prefill[slot])
            yield from _runs_of_equal_state(slot, place.start, generation[slot] + planned)


def _runs_of_equal_state(slot: int, start: int, states: list[State]) -> Iterator[Bar]:
    for state, group in groupby(states):
        width = len(list(group))
        yield Bar(slot, start, width, state)
        start += width

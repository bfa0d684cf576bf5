"""Run -> the state of every slot: what the heatmap shows, cell by cell or as stretches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from engine.metrics import columns_by_batch, rows
from engine.run import PaddingSide, Run

State = Literal["active", "padded", "idle", "empty"]


class Stretch(NamedTuple):
    """So many neighbouring columns of one slot in one state."""

    state: State | Literal["planned"]
    width: int


def prompt_stretches(length: int, width: int, padding_side: PaddingSide) -> Iterator[Stretch]:
    """One row of the prefill: its prompt tokens, and its pads where it has any."""
    pads, real = Stretch("padded", width - length), Stretch("active", length)
    return _real((pads, real) if padding_side == "left" else (real, pads))


def new_stretches(generated: int, computed: int, width: int | None = None) -> Iterator[Stretch]:
    """One row of new tokens: those it has, idle up to what was computed, and planned up to the
    width."""
    planned = 0 if width is None else width - computed
    return _real(
        (
            Stretch("active", generated),
            Stretch("idle", computed - generated),
            Stretch("planned", planned),
        )
    )


def _real(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    return (stretch for stretch in stretches if stretch.width)


class BatchSlots(NamedTuple):
    """States of one batch, a row per slot: `prefill[slot][column]` over the padded prompt and
    `generation[slot][k - 1]` over columns 1..T. Slots of a last, smaller batch that hold no
    request are empty."""

    prefill: list[list[State]]
    generation: list[list[State]]


def slot_states(run: Run) -> list[BatchSlots]:
    """The states of every batch that has run at least its prefill."""
    table = rows(run)
    return [
        batch_slots(
            batch.prompt_lengths,
            [table[request].generated for request in batch.requests],
            columns=len(steps),
            slots=run.slots,
            padding_side=batch.padding_side,
        )
        for batch, steps in zip(run.batches, columns_by_batch(run), strict=True)
        if steps
    ]


def batch_slots(
    prompt_lengths: Sequence[int],
    generated: Sequence[int],
    *,
    columns: int | None = None,
    slots: int | None = None,
    padding_side: PaddingSide = "left",
) -> BatchSlots:
    """The states that follow from lengths alone: prompt tokens and new tokens of each row.

    `columns` defaults to the longest answer, `slots` to the number of rows.
    """
    width = max(prompt_lengths)
    columns = max(generated) if columns is None else columns
    free = 0 if slots is None else slots - len(prompt_lengths)
    prefill = [_cells(prompt_stretches(n, width, padding_side)) for n in prompt_lengths]
    generation = [_cells(new_stretches(n, columns)) for n in generated]
    return BatchSlots(
        prefill + [["empty"] * width for _ in range(free)],
        generation + [["empty"] * columns for _ in range(free)],
    )


def _cells(stretches: Iterable[Stretch]) -> list[State]:
    cells: list[State] = []
    for state, width in stretches:
        cells += [state] * width
    return cells

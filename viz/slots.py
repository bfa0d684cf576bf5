"""Run -> the state of every slot: what the heatmap shows, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from engine.metrics import columns, rows
from engine.run import PaddingSide, Run

State = Literal["active", "padded", "idle", "empty"]


class BatchSlots(NamedTuple):
    """States of one batch, a row per slot: `prefill[slot][column]` over the padded prompt and
    `generation[slot][k - 1]` over columns 1..T. Slots of a last, smaller batch that hold no
    request are empty."""

    prefill: list[list[State]]
    generation: list[list[State]]


def slot_states(run: Run) -> list[BatchSlots]:
    """The states of every batch that has run at least its prefill."""
    slots = max(len(batch.requests) for batch in run.batches)
    table = rows(run)
    return [
        batch_slots(
            batch.prompt_lengths,
            [table[request].generated for request in batch.requests],
            columns=len(steps),
            slots=slots,
            padding_side=batch.padding_side,
        )
        for batch in run.batches
        if (steps := columns(run, batch.index))
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
    prefill = [_prompt_states(length, width, padding_side) for length in prompt_lengths]
    generation = [["active"] * count + ["idle"] * (columns - count) for count in generated]
    return BatchSlots(
        prefill + [["empty"] * width for _ in range(free)],
        generation + [["empty"] * columns for _ in range(free)],
    )


def _prompt_states(length: int, width: int, padding_side: PaddingSide) -> list[State]:
    pads: list[State] = ["padded"] * (width - length)
    real: list[State] = ["active"] * length
    return pads + real if padding_side == "left" else real + pads

"""Run -> the state of every slot: what the heatmap shows, cell by cell."""

from __future__ import annotations

from typing import Literal, NamedTuple

from engine.metrics import columns
from engine.run import Batch, Run

State = Literal["active", "padded", "idle", "empty"]


class BatchSlots(NamedTuple):
    """States of one batch, a row per slot: `prefill[slot][column]` over the padded prompt and
    `generation[slot][k - 1]` over columns 1..T. Slots of a last,
    smaller batch that hold no request are empty."""

    prefill: list[list[State]]
    generation: list[list[State]]


def slot_states(run: Run) -> list[BatchSlots]:
    """The states of every batch that has run at least its prefill."""
    slots = max(len(batch.requests) for batch in run.batches)
    states = []
    for batch in run.batches:
        steps = columns(run, batch.index)
        if not steps:
            break
        free = slots - len(batch.requests)
        prefill = [_prompt_states(batch, slot) for slot in range(len(batch.requests))]
        generation: list[list[State]] = [
            ["idle" if step.tokens[slot] is None else "active" for step in steps]
            for slot in range(len(batch.requests))
        ]
        prefill += [["empty"] * batch.padded_length for _ in range(free)]
        generation += [["empty"] * len(steps) for _ in range(free)]
        states.append(BatchSlots(prefill, generation))
    return states


def _prompt_states(batch: Batch, slot: int) -> list[State]:
    real = batch.prompt_lengths[slot]
    pads = batch.padded_length - real
    if batch.padding_side == "left":
        return ["padded"] * pads + ["active"] * real
    return ["active"] * real + ["padded"] * pads

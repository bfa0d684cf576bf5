"""Lengths -> two blocks of bars for a terminal: prefill padding and decode idle."""

from __future__ import annotations

from collections.abc import Sequence

from engine.metrics import Waste, columns, idle_waste, padding_waste, rows
from engine.run import Run
from viz.words import fraction, percent

ACTIVE, PADDED, IDLE = "█", "░", "·"
WIDTH = 60


def run_blocks(run: Run) -> str:
    """The blocks of a Run, a bar per request; batches that never started are left out."""
    ran = [batch for batch in run.batches if columns(run, batch.index)]
    generated = [
        [row.generated for row in rows(run) if row.batch in ran and row.batch == batch]
        for batch in ran
    ]
    sides = {batch.padding_side for batch in ran}
    return blocks([batch.prompt_lengths for batch in ran], generated, pads_left=sides != {"right"})


def blocks(
    prompt_lengths: Sequence[Sequence[int]],
    generated: Sequence[Sequence[int]],
    *,
    pads_left: bool = True,
) -> str:
    """Both blocks from the lengths of each batch's rows: prompt tokens and generated tokens."""
    padding, idle = padding_waste(prompt_lengths), idle_waste(generated)
    return "\n".join(
        [
            _title("Prefill padding", padding, "prompt slots are padding", PADDED),
            *_bars(prompt_lengths, waste=PADDED, waste_first=pads_left),
            "",
            _title("Decode idle", idle, "decode slots are idle", IDLE),
            *_bars(generated, waste=IDLE, waste_first=False),
        ]
    )


def _title(name: str, waste: Waste, what: str, mark: str) -> str:
    if not waste.slots:
        return f"{name}: n/a (nothing was decoded after the prefill)"
    return f"{name}: {percent(waste)}  {fraction(waste, what)}  ({ACTIVE} active, {mark} wasted)"


def _bars(batches: Sequence[Sequence[int]], *, waste: str, waste_first: bool) -> list[str]:
    widest = max((max(lengths) for lengths in batches if lengths), default=1)
    scale = min(1.0, WIDTH / widest)
    bars = []
    for lengths in batches:
        width = round(max(lengths) * scale)
        for length in lengths:
            active = round(length * scale)
            parts = [ACTIVE * active, waste * (width - active)]
            bar = "".join(reversed(parts) if waste_first else parts)
            bars.append(f"{len(bars) + 1:>4}  {bar}  {length} of {max(lengths)}")
    return bars

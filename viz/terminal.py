"""What a terminal shows: slots as two blocks of bars, and texts that it must not obey."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from engine.inert import spelt_out
from engine.metrics import Waste, idle_waste, padding_waste
from viz.slots import BatchSlots, State
from viz.words import fraction, percent

MARKS: dict[State, str] = {"active": "█", "padded": "░", "idle": "·"}
WIDTH = 60


def inert(text: str) -> str:
    """A text of one line or several, with its control characters spelt out, as "\\x1b"."""
    return spelt_out(text, keep="\t\n")


def blocks(batches: Sequence[BatchSlots]) -> str:
    """Both blocks, a bar per request; bars wider than the terminal are scaled down together."""
    prompts = [_rows(batch.prefill) for batch in batches]
    answers = [_rows(batch.generation) for batch in batches]
    padding = padding_waste([_active(row) for row in batch] for batch in prompts)
    idle = idle_waste([_active(row) for row in batch] for batch in answers)
    return "\n".join(
        [
            _title(
                "Prefill padding",
                padding,
                "prompt slots are padding",
                MARKS["padded"],
                "nothing ran",
            ),
            *_bars(prompts),
            "",
            _title(
                "Decode idle", idle, "decode slots are idle", MARKS["idle"], "nothing was decoded"
            ),
            *_bars(answers),
        ]
    )


def _rows(states: Sequence[Sequence[State]]) -> list[Sequence[State]]:
    return [row for row in states if row[:1] != ["empty"]]  # a slot is empty throughout


def _active(row: Sequence[State]) -> int:
    return row.count("active")


def _title(name: str, waste: Waste, what: str, mark: str, none: str) -> str:
    if not waste.slots:
        return f"{name}: n/a ({none})"
    legend = f"({MARKS['active']} active, {mark} wasted)"
    return f"{name}: {percent(waste)}  {fraction(waste, what)}  {legend}"


def _bars(batches: Sequence[Sequence[Sequence[State]]]) -> list[str]:
    widest = max((len(row) for batch in batches for row in batch), default=1)
    scale = max(1.0, widest / WIDTH)
    number = count(1)
    return [
        f"{next(number):>4}  {_bar(row, scale)}  {_active(row)} of {len(row)}"
        for batch in batches
        for row in batch
    ]


def _bar(row: Sequence[State], scale: float) -> str:
    cells = round(len(row) / scale)
    return "".join(MARKS[row[min(int(cell * scale), len(row) - 1)]] for cell in range(cells))

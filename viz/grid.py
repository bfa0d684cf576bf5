"""The field that slots and memory are drawn in: from columns and slots to coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.run import Run
from viz import words
from viz.columns import Bar, Columns
from viz.svg import Box, baseline, text
from viz.type import text_width

Colours = Mapping[str, str]
SIZE = 13


class Grid:
    """Columns from left to right, slots from top to bottom, with gaps while there is room."""

    def __init__(self, field: Box, axis: Columns) -> None:
        self.field, self.axis = field, axis
        self.column = field.width / axis.total
        self.pitch = field.height / axis.slots
        self.between_rows = min(self.pitch * 0.12, 6)
        self.between_columns = 0.0 if self.column < 3 else min(self.column * 0.1, 3)

    def x(self, column: float) -> float:
        return self.field.x + column * self.column

    def box(self, bar: Bar) -> Box:
        return Box(
            self.x(bar.start),
            self.field.y + bar.slot * self.pitch + self.between_rows / 2,
            bar.width * self.column,
            self.pitch - self.between_rows,
        )


def gutter(run: Run, size: float = SIZE, labels: Iterable[str] | None = None) -> float:
    """The place left of slots and memory for their labels: pass it to both, or to neither.

    `labels` are those of the memory, where they are not the usual ones.
    """
    beside_memory = memory_labels(run) if labels is None else labels
    names = [slot_name(run, run.slots - 1), *beside_memory]
    return max(text_width(name, size, bold=True) for name in names) + 0.9 * size


def slot_name(run: Run, slot: int) -> str:
    # In several batches a slot holds one request after another: then the number is not theirs.
    return f"slot {slot + 1}" if len(run.batches) > 1 else str(slot + 1)


def memory_labels(run: Run) -> tuple[str, str]:
    """The peak of the cache and the most rows that worked: "4.1 MB", "4 rows"."""
    peak = max((step.kv_bytes.total for step in run.steps), default=0)
    rows = max((len(step.tokens) for step in run.steps), default=0)  # a prefill works for all
    return words.size(peak), words.plural(rows, "row")


def side_label(
    x: float, middle: float, content: str, *, size: float, colour: str, weight: int = 400
) -> str:
    """One line of type that ends a little left of x, around the height of `middle`."""
    y = baseline(middle, size)
    return text(x - 0.6 * size, y, content, size=size, colour=colour, weight=weight, anchor="right")

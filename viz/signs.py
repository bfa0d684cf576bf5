"""What tells padding and idle from work besides colour: diagonals and dots."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from viz.svg import Box, number, stroke

# Drawn line by line: a pattern would need a name that is unique in its page, and programs for
# slides often lose it.


def hatch(boxes: Iterable[Box], every: float, colour: str) -> str:
    """Lines at 45 degrees, `every` apart, in step from box to box and cut off at their edges."""
    path = "".join(_diagonals(box, every) for box in boxes)
    return stroke(path, colour, every * 0.16, opacity=0.38)


def _diagonals(box: Box, every: float) -> str:
    made = []
    at = ceil((box.x + box.y) / every) * every
    while at < box.right + box.bottom:
        x = max(box.x, at - box.bottom)
        length = min(box.right, at - box.y) - x
        if length > 0.1:
            made.append(f"M{number(x)} {number(at - x)}l{number(length)} {number(-length)}")
        at += every
    return "".join(made)


def dots(boxes: Iterable[Box], every: float, dot: float, colour: str) -> str:
    """A dotted line through the middle of each box, its dots `every` apart; at least one dot."""
    path = ""
    for box in boxes:
        first = min(every, box.width) / 2
        # One unit longer than to the last dot, so that rounding never takes it away.
        length = box.width - 2 * first + 1
        path += f"M{number(box.x + first)} {number(box.y + box.height / 2)}h{number(length)}"
    return stroke(path, colour, dot, opacity=0.8, dashes=f"0 {number(every)}")

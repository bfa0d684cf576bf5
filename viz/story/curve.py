"""A chart of a figure against the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import NamedTuple

from viz import words
from viz.grid import SIZE, Colours, side_label
from viz.svg import Box, element, number, stroke, text
from viz.type import text_width


class Point(NamedTuple):
    x: float
    y: float


def curve(
    points: Sequence[Point],
    box: Box,
    colours: Colours,
    *,
    title: str,
    perfect: str = "",
    size: float = SIZE,
) -> str:
    """A figure against the rows of a batch, both axes linear and from 0, the first and the last
    value written.

    `title` stands above; `perfect` labels a straight line through the origin and the first point:
    twice as much for twice as many.
    """
    # Room above for the last value and, where there is one, for the name of the straight line.
    highest = (1.36 if perfect else 1.18) * max(point.y for point in points)
    levels = ticks(highest, most=4)
    left = max(text_width(f"{level:,g}", size) for level in levels) + 0.9 * size
    field = Box(box.x + left, box.y + 2 * size, box.width - left, box.height - 5.2 * size)
    chart = _Chart(field, 1.06 * max(point.x for point in points), highest, colours, size)
    return element(
        "g",
        text(box.x, box.y + size, title, size=size, colour=colours["text"], weight=600),
        *chart.levels(levels),
        *chart.rows(points),
        chart.straight_line(points[0], perfect) if perfect else "",
        chart.line(points),
        *chart.values(points),
    )


@dataclass(frozen=True)
class _Chart:
    """A field from 0 to `widest` rows and 0 to `highest`, and what is drawn in it."""

    field: Box
    widest: float
    highest: float
    colours: Colours
    size: float

    def place(self, point: Point) -> Point:
        """Where a point of the axes is in the picture."""
        return Point(
            self.field.x + self.field.width * point.x / self.widest,
            self.field.bottom - self.field.height * point.y / self.highest,
        )

    def levels(self, levels: Sequence[float]) -> Iterator[str]:
        """A thin line across the field for each level, and its name beside it."""
        heights = [self.place(Point(0, level)).y for level in levels]
        across = f"h{number(self.field.width)}"
        path = "".join(f"M{number(self.field.x)} {number(y)}{across}" for y in heights)
        yield stroke(path, self.colours["line"], 1)
        for level, y in zip(levels, heights, strict=True):
            told = f"{level:,g}"
            yield side_label(self.field.x, y, told, size=self.size, colour=self.colours["muted"])

    def rows(self, points: Sequence[Point]) -> Iterator[str]:
        """Below the field a mark per point, and its x as far as the labels leave each other room,
        the last first."""
        floor_line, muted = self.field.bottom, self.colours["muted"]
        marks = [self.place(point).x for point in points]
        yield stroke("".join(f"M{number(x)} {number(floor_line)}v5" for x in marks), muted, 1)
        baseline = floor_line + 5 + self.size
        free = float("inf")
        for point, x in reversed(list(zip(points, marks, strict=True))):
            told = f"{point.x:g}"
            half = text_width(told, self.size) / 2
            if x + half + 0.25 * self.size <= free:
                free = x - half
                yield text(x, baseline, told, size=self.size, colour=muted, anchor="middle")
        yield text(
            self.field.right,
            floor_line + 2.9 * self.size,
            "rows in the batch",
            size=self.size,
            colour=muted,
            anchor="right",
        )

    def straight_line(self, first: Point, label: str) -> str:
        """From the origin through the first point, as far as the field goes."""
        slope = first.y / first.x
        reach = min(self.widest, self.highest / slope)
        (x0, y0), (x1, y1) = self.place(Point(0, 0)), self.place(Point(reach, slope * reach))
        size, muted = self.size, self.colours["muted"]
        dashes = f"{number(0.5 * size)} {number(0.4 * size)}"
        path = f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}"
        name = text(x1 + 0.5 * size, y1 + 0.8 * size, label, size=size, colour=muted)
        return stroke(path, muted, 1.5, dashes=dashes) + name

    def line(self, points: Sequence[Point]) -> str:
        """The points, joined."""
        places, active = [self.place(point) for point in points], self.colours["active"]
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)
        return stroke(path, active, 2.5, join="round") + "".join(
            element("circle", cx=x, cy=y, r=0.32 * self.size, fill=active, data_x=str(point.x))
            for point, (x, y) in zip(points, places, strict=True)
        )

    def values(self, points: Sequence[Point]) -> Iterator[str]:
        """The last value above its point, the first below and beside."""
        field, size = self.field, self.size
        x, y = self.place(points[-1])
        yield self._value(points[-1], min(x + 2 * size, field.right), y - 0.75 * size, "right")
        if len(points) > 1:
            x, y = self.place(points[0])
            below = min(y + 1.3 * size, field.bottom - 0.4 * size)
            yield self._value(points[0], x + 0.8 * size, below, "left")

    def _value(self, point: Point, x: float, y: float, anchor: str) -> str:
        told = f"{words.plural(int(point.x), 'row')}: {point.y:,.1f}"
        colour = self.colours["text"]
        return text(x, y, told, size=self.size, colour=colour, weight=600, anchor=anchor)


def ticks(highest: float, *, most: int) -> list[float]:
    """0 and its round multiples up to `highest`: at most so many, in steps of 1, 2 or 5."""
    least = highest / most
    power = 10.0 ** floor(log10(least))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= least)
    return [step * k for k in range(floor(highest / step + 1e-9) + 1)]

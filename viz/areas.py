"""Memory and working rows of a run, step by step, on the axis of its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import NamedTuple

from engine.run import Run, Step
from viz.columns import Columns, Place, columns
from viz.grid import SIZE, Colours, gutter, memory_labels, side_label
from viz.signs import dots, hatch
from viz.svg import Box, baseline, element, number, stroke


def memory(
    run: Run,
    box: Box,
    colours: Colours,
    *,
    size: float = SIZE,
    left: float | None = None,
    rows: bool = True,
    label: str | None = None,
) -> str:
    """KV bytes after each forward (live, above it padding, above it what ended rows hold), and
    below them, with `rows`, how many rows each forward worked for.

    `size` is that of the type, `left` the place for the labels (default: `gutter`); `label`
    replaces the peak in bytes beside the areas.
    """
    axis = columns(run)
    left = gutter(run, size) if left is None else left
    lane = Box(box.x + left, box.y, box.width - left, box.height)
    peak_label, rows_label = memory_labels(run)
    if not rows:
        return _bytes_lane(axis, lane, label or peak_label, colours, size)
    above = lane._replace(height=0.56 * box.height)
    below = lane._replace(y=box.y + 0.7 * box.height, height=0.3 * box.height)
    return _bytes_lane(axis, above, label or peak_label, colours, size) + _rows_lane(
        axis, below, rows_label, colours, size
    )


class _Stair(NamedTuple):
    """From one column to another at one level."""

    start: int
    end: int
    level: int


def _stairs(place: Place, amount: Callable[[Step], int]) -> list[_Stair]:
    """One stair a forward; equal neighbours are one."""
    stairs: list[_Stair] = []
    for step in place.steps:
        start, end = place.span(step)
        level = amount(step)
        if stairs and stairs[-1].level == level:
            start = stairs.pop().start
        stairs.append(_Stair(start, end, level))
    return stairs


def _live(step: Step) -> int:
    return step.kv_bytes.live


def _live_and_padding(step: Step) -> int:
    return step.kv_bytes.live + step.kv_bytes.padding


def _all(step: Step) -> int:
    return step.kv_bytes.total


def _active(step: Step) -> int:
    return step.active_rows


def _bytes_lane(axis: Columns, lane: Box, label: str, colours: Colours, size: float) -> str:
    """Painted from the back: all bytes, then without the dead ones, then the live ones."""
    peak = max((_all(step) for place in axis.places for step in place.steps), default=0)
    drawn = []
    for state, amount in (("idle", _all), ("padded", _live_and_padding), ("active", _live)):
        path = "".join(
            _outline(_stairs(place, amount), axis, lane, peak, closed=True)
            for place in axis.places
            if place.steps and peak
        )
        if path:
            drawn.append(element("path", d=path, fill=colours[state], data_state=state))
    every, dot = max(9, 0.4 * size), max(2, 0.1 * size)
    padding = _between(axis, lane, peak, _live, _live_and_padding)
    dead = _between(axis, lane, peak, _live_and_padding, _all, apart=every)
    drawn += [
        hatch(padding, every, colours["panel"]),
        dots((box for box in dead if box.height > every), every, dot, colours["panel"]),
    ]
    return element("g", *drawn, _floor(lane, colours), _lane_label(label, lane, colours, size))


def _rows_lane(axis: Columns, lane: Box, label: str, colours: Colours, size: float) -> str:
    path = "".join(
        _outline(_stairs(place, _active), axis, lane, axis.slots, closed=False)
        for place in axis.places
        if place.steps
    )
    return element(
        "g",
        _floor(lane, colours),
        stroke(path, colours["text"], max(1.5, size / 8)),
        _lane_label(label, lane, colours, size),
    )


def _outline(stairs: list[_Stair], axis: Columns, lane: Box, most: int, *, closed: bool) -> str:
    """The path along the stairs of one batch, closed down to the floor or left open."""

    def x(column: int) -> str:
        return number(lane.x + column * lane.width / axis.total)

    def y(level: int) -> str:
        return number(lane.bottom - lane.height * level / most)

    first, *_ = stairs
    path = f"M{x(first.start)} {y(0 if closed else first.level)}"
    path += "".join(f"V{y(stair.level)}H{x(stair.end)}" for stair in stairs)
    return path + f"V{y(0)}Z" if closed else path


def _between(
    axis: Columns,
    lane: Box,
    most: int,
    low: Callable[[Step], int],
    high: Callable[[Step], int],
    apart: float = 0,
) -> Iterator[Box]:
    """What lies between two levels, a box a forward, or only those at least `apart`."""
    column = lane.width / axis.total
    each = max(1, ceil(apart / column))
    for place in axis.places:
        for step in place.steps[each - 1 :: each]:
            start, end = place.span(step)
            if height := lane.height * (high(step) - low(step)) / max(1, most):
                top = lane.bottom - lane.height * high(step) / most
                yield Box(lane.x + start * column, top, (end - start) * column, height)


def _floor(lane: Box, colours: Colours) -> str:
    path = f"M{number(lane.x)} {number(lane.bottom)}h{number(lane.width)}"
    return stroke(path, colours["line"], 1)


def _lane_label(content: str, lane: Box, colours: Colours, size: float) -> str:
    middle = lane.y + lane.height / 2
    # In a lane lower than the type it stands on the floor.
    middle -= max(0, baseline(middle, size) - lane.bottom)
    return side_label(lane.x, middle, content, size=size, colour=colours["muted"])

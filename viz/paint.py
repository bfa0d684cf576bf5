"""A run as a picture: its slots as bars. viz.areas draws its memory, on the same axis.

Everything is drawn from rectangles and paths, without pixels, patterns or references, so that the
picture is the same in a page, in a file, and in a program for slides. `colours` maps the names of
viz.theme to colours: LIGHT, DARK, or viz.svg's PAGE for a picture inside the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from engine.run import Run
from viz.columns import Bar, Columns, bars, columns
from viz.grid import SIZE, Colours, Grid, gutter, side_label, slot_name
from viz.signs import dots, hatch
from viz.slots import State
from viz.svg import Box, element, number, rect, stroke, text
from viz.type import text_width
from viz.words import column_names


def slots(
    run: Run, box: Box, colours: Colours, *, size: float = SIZE, left: float | None = None
) -> str:
    """The whole run, a row per slot: prefill, a line, then a column per generated token.

    The rows fill the box above one line of captions. `size` is that of the type, `left` the
    place for the row labels (default: `gutter`).
    """
    axis = columns(run)
    left = gutter(run, size) if left is None else left
    field = Box(box.x + left, box.y, box.width - left, box.height - 1.4 * size)
    grid = Grid(field, axis)
    return element(
        "g",
        _bars(list(bars(run, axis)), grid, colours),
        _separators(grid, colours),
        _dividers(grid, colours, size),
        _row_labels(run, grid, colours, size),
        _captions(run, grid, colours, size, box.bottom - 0.3 * size),
    )


def swatch(box: Box, state: State, colours: Colours) -> str:
    """A piece of a legend, with the same signs as the bars."""
    grid = Grid(box, Columns([], slots=1, gap=0, total=1))
    return _bars([Bar(0, 0, 1, state)], grid, colours)


def _bars(drawn: list[Bar], grid: Grid, colours: Colours) -> str:
    """A rectangle per bar, grouped by state, with the state's sign over it."""
    radius = min(3.0, grid.pitch / 8)
    boxes = {
        state: [grid.box(bar) for bar in drawn if bar.state == state]
        for state in ("planned", "active", "padded", "idle")
    }
    groups = [
        element(
            "g",
            *(rect(box, radius=radius) for box in alike),
            fill=colours[state],
            data_state=state,
        )
        for state, alike in boxes.items()
        if alike
    ]
    diagonal = max(8.0, min(grid.pitch * 0.45, 22.0))
    every = grid.column * ceil(9 / grid.column)  # one dot a column, or fewer in narrow ones
    dot = min(grid.pitch * 0.16, every * 0.34, 7.0)
    return "".join(
        [
            *groups,
            hatch(boxes["padded"], diagonal, colours["panel"]),
            dots(boxes["idle"], every, dot, colours["panel"]),
        ]
    )


def _separators(grid: Grid, colours: Colours) -> str:
    """Thin lines between columns, so that single steps can be counted."""
    if not grid.between_columns:
        return ""
    edges = [
        edge
        for place in grid.axis.places
        for edge in (
            *range(place.prompt_start + 1, place.prompt_end),
            *range(place.start + 1, place.end),
        )
    ]
    path = "".join(_upright(grid.x(edge), grid.field) for edge in edges)
    return stroke(path, colours["panel"], grid.between_columns)


def _dividers(grid: Grid, colours: Colours, size: float) -> str:
    """A line between prompt and new tokens, a dotted one between batches."""
    places, gap = grid.axis.places, grid.axis.gap
    inside = [_upright(grid.x(place.start - gap / 2), grid.field) for place in places]
    between = [_upright(grid.x(place.prompt_start - gap), grid.field) for place in places[1:]]
    width = max(2, size / 10)
    dashes = f"{number(width)} {number(2 * width)}"
    return stroke("".join(inside), colours["text"], width) + stroke(
        "".join(between), colours["muted"], width, dashes=dashes
    )


def _upright(x: float, field: Box) -> str:
    return f"M{number(x)} {number(field.y)}v{number(field.height)}"


def _row_labels(run: Run, grid: Grid, colours: Colours, size: float) -> str:
    every = ceil(0.9 * size / grid.pitch)
    return "".join(
        side_label(
            grid.field.x,
            grid.field.y + (slot + 0.5) * grid.pitch,
            slot_name(run, slot),
            size=size,
            colour=colours["text"],
            weight=600,
        )
        for slot in range(0, grid.axis.slots, every)
    )


class _Part(NamedTuple):
    """Columns to be captioned, and the wordings for it from long to short."""

    start: int
    end: int
    offered: list[str]


def _captions(run: Run, grid: Grid, colours: Colours, size: float, baseline: float) -> str:
    """What stands under the columns: the same wording under every batch."""
    fresh, prompts = [], []
    for place in grid.axis.places:
        names = column_names(run, place.batch)
        fresh.append(_Part(place.start, place.end, _counted(names.new, place.width)))
        width = place.batch.padded_length
        prompts.append(_Part(place.prompt_start, place.prompt_end, _counted(names.prompt, width)))
    told_of_fresh = _wording(fresh, grid, size)
    if not told_of_fresh:
        # What is said under the prompts may reach under the new tokens.
        ends = [part.end for part in fresh]
        prompts = [part._replace(end=end) for part, end in zip(prompts, ends, strict=True)]
    return "".join(
        text(grid.x(part.start), baseline, name, size=size, colour=colours["muted"])
        for parts, told in ((prompts, _wording(prompts, grid, size)), (fresh, told_of_fresh))
        for part, name in zip(parts, told, strict=False)
    )


def _counted(names: Iterable[str], count: int) -> list[str]:
    return [name.format(count) for name in names]


def _wording(parts: list[_Part], grid: Grid, size: float) -> list[str]:
    """A name per part, the longest for which all have room; [] where nothing fits."""
    for told in zip(*(part.offered for part in parts), strict=True):
        if all(
            text_width(name, size) <= (part.end - part.start) * grid.column
            for part, name in zip(parts, told, strict=True)
        ):
            return list(told)
    return []

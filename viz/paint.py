"""A run as a picture: its slots as bars. viz.areas draws its memory, on the same axis.

Everything is drawn from rectangles and paths, without pixels, patterns or references, so that the
picture is the same in a page, in a file, and in a program for slides. `colours` maps the names of
viz.theme to colours: LIGHT, DARK, or viz.svg's PAGE for a picture inside the page.
"""

from __future__ import annotations

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
    """Columns to be captioned: wordings from long to short, and how many they are, if told."""

    start: int
    end: int
    offered: tuple[str, ...]
    count: int | None


def _captions(run: Run, grid: Grid, colours: Colours, size: float, baseline: float) -> str:
    """What stands under the columns: the same wording, and counts or none, under every batch."""

    def put(column: int, content: str, anchor: str = "left") -> str:
        x = grid.x(column)
        return text(x, baseline, content, size=size, colour=colours["muted"], anchor=anchor)

    named = [(place, column_names(run, place.batch)) for place in grid.axis.places]
    fresh = [_Part(place.start, place.end, names.new, place.width) for place, names in named]
    told_of_fresh = _wording(fresh, grid, size)
    # Where nothing is said under the new tokens, what is said under the prompts may reach there.
    prompts = [
        _Part(place.prompt_start, place.prompt_end, names.prompt, place.batch.padded_length)
        if told_of_fresh
        else _Part(place.prompt_start, place.end, names.prompt, None)
        for place, names in named
    ]
    drawn = ""
    for parts, told in ((prompts, _wording(prompts, grid, size)), (fresh, told_of_fresh)):
        for part, (name, count) in zip(parts, told, strict=False):
            drawn += put(part.start, name)
            drawn += put(part.end, count, "right") if count else ""
    return drawn


def _wording(parts: list[_Part], grid: Grid, size: float) -> list[tuple[str, str]]:
    """(name, count) per part, the longest for which all have room; counts go before long names.
    [] where nothing fits."""
    for counted in (True, False):
        for names in zip(*(part.offered for part in parts), strict=True):
            counts = [str(part.count) if counted and part.count else "" for part in parts]
            told = list(zip(names, counts, strict=True))
            if all(
                _caption_width(*each, size) <= (part.end - part.start) * grid.column
                for part, each in zip(parts, told, strict=True)
            ):
                return told
    return []


def _caption_width(name: str, count: str, size: float) -> float:
    between = 1.2 * size if count else 0
    return text_width(name, size) + between + text_width(count, size)

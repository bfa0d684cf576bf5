"""The figures of a run side by side on a slide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from viz.explain import TILES
from viz.grid import Colours
from viz.slide.sheet import GAP, TYPE, panel
from viz.slots import State
from viz.svg import Box, rect, text
from viz.type import text_width

VALUES = (72, 64, 56, TYPE)  # type of the values, the largest that fits
UNIT_GAP = 10
MARGIN = 13


class _Tile(NamedTuple):
    label: str
    value: str
    unit: str
    brief: str
    bar: list[tuple[State, float]]

    def width(self, size: float) -> float:
        """The least it needs with its value in this size."""
        value = text_width(self.value, size, bold=True)
        if self.unit:
            value += UNIT_GAP + text_width(self.unit, TYPE)
        return max(value, text_width(self.label, TYPE), text_width(self.brief, TYPE))


def tile_row(tiles: Iterable[dict[str, Any]], box: Box, colours: Colours) -> str:
    """The stage's tiles as wide as what they say, all with the same margins."""
    made = [
        _Tile(about.short, *(tile[part] for part in ("value", "unit", "brief", "bar")))
        for about, tile in zip(TILES.values(), tiles, strict=True)
    ]
    free = box.width - GAP * (len(made) - 1)
    for size in VALUES:
        margin = (free - sum(tile.width(size) for tile in made)) / len(made) / 2
        if margin >= MARGIN:
            break
    drawn, x = "", box.x
    for tile in made:
        width = tile.width(size) + 2 * margin
        drawn += _tile(tile, Box(x, box.y, width, box.height), size, margin, colours)
        x += width + GAP
    return drawn


def _tile(tile: _Tile, box: Box, size: float, margin: float, colours: Colours) -> str:
    x, value_line = box.x + margin, box.y + 122
    unit_at = x + text_width(tile.value, size, bold=True) + UNIT_GAP
    return "".join(
        [
            panel(box, colours),
            text(x, box.y + 54, tile.label, size=TYPE, colour=colours["muted"]),
            text(x, value_line, tile.value, size=size, colour=colours["text"], weight=700),
            text(unit_at, value_line, tile.unit, size=TYPE, colour=colours["muted"]),
            text(x, box.y + 178, tile.brief, size=TYPE, colour=colours["muted"]),
            _bar(tile.bar, Box(x, box.bottom - 22, box.width - 2 * margin, 10), colours),
        ]
    )


def _bar(parts: list[tuple[State, float]], box: Box, colours: Colours) -> str:
    if not parts:
        return ""
    drawn, x = rect(box, fill=colours["planned"], radius=5), box.x
    for state, share in parts:
        width = share * box.width
        if width > 4:
            part = Box(x, box.y, width - 3 * (len(parts) > 1), box.height)
            drawn += rect(part, fill=colours[state], radius=5)
        x += width
    return drawn

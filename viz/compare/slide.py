"""A comparison as a finished slide: 1920 x 1080, vector, every line of type at least 24 points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from viz.compare.lane import STATES
from viz.grid import Colours
from viz.signs import hatch
from viz.slide.sheet import GAP, HEIGHT, TYPE, WIDTH, panel
from viz.slide.slide import HEADING, MARGIN, NAME
from viz.svg import Box, baseline, number, picture, rect, stroke, text
from viz.theme import THEMES, Theme
from viz.type import fit, text_width

Value = dict[str, Any]

LEGEND = {"prefill": "prompt", "active": "generates", "idle": "idle", "computed": "computed"}
INSIDE = Box(MARGIN, 24, WIDTH - 2 * MARGIN, HEIGHT - 40)
TITLE = 62
UNDER_LANE = 10
AXIS = 64
THIN = 0.36
"""Of the height of a row: who is idle."""


def compare_svg(shown: Value, *, theme: Theme = "light") -> str:
    """The slide of what the tab shows (`CompareWriter`), its computed lanes included, as a
    standalone SVG. The same state gives the same bytes."""
    colours = THEMES[theme]
    lanes = [*shown["lanes"], *(shown["computed"] or {"lanes": []})["lanes"]]
    head = INSIDE._replace(height=66)
    legend = Box(INSIDE.x, head.bottom + GAP, INSIDE.width, 52)
    caption = Box(INSIDE.x, INSIDE.bottom - 52, INSIDE.width, 52)
    top = legend.bottom + GAP
    field = Box(INSIDE.x, top, INSIDE.width, caption.y - GAP - top)
    return picture(
        WIDTH,
        HEIGHT,
        rect(Box(0, 0, WIDTH, HEIGHT), fill=colours["ground"]),
        _line(head, shown["heading"], HEADING, colours["text"], bold=True),
        _legend(legend, colours),
        panel(field, colours),
        _lanes(lanes, field.inset(24, 12), colours),
        _caption(caption, shown, colours),
        title=f"{NAME} · {shown['heading']}",
        description=shown["remark"],
    )


def _line(box: Box, content: str, size: float, colour: str, *, bold: bool = False) -> str:
    fitted = fit(content, size, box.width, bold=bold)
    y = baseline(box.y + box.height / 2, size)
    return text(box.x, y, fitted, size=size, colour=colour, weight=700 if bold else 400)


def _legend(box: Box, colours: Colours) -> str:
    drawn, x = "", box.x
    for name, said in LEGEND.items():
        computed = name == "computed"
        state = "active" if computed else name
        drawn += _spans([Box(x, box.y + 6, 40, 40)], state, colours, computed=computed)
        drawn += _line(Box(x + 54, box.y, box.width, box.height), said, TYPE, colours["muted"])
        x += 54 + text_width(said, TYPE) + 40
    return drawn


def _lanes(lanes: Sequence[Value], box: Box, colours: Colours) -> str:
    slots = sum(lane["slots"] for lane in lanes)
    free = box.height - AXIS - len(lanes) * (TITLE + UNDER_LANE)
    row = min(free / max(slots, 1), 56)
    seconds = max((lane["wall"] for lane in lanes), default=0) or 1
    across = (box.width - text_width("00", TYPE)) / seconds
    end = box.y + len(lanes) * (TITLE + UNDER_LANE) + slots * row
    drawn, y = _axis(box, end, seconds, across, colours), box.y
    for lane in lanes:
        drawn += _title(lane, Box(box.x, y, box.width, TITLE), colours)
        y += TITLE
        for code, state in enumerate(STATES):
            boxes = [
                _place(Box(box.x + across * start, y + slot * row, across * (end - start), row))
                for slot, _, at, start, end in lane["spans"]
                if at == code
            ]
            drawn += _spans(boxes, state, colours, computed=lane["computed"])
        y += lane["slots"] * row + UNDER_LANE
    return drawn


def _place(box: Box) -> Box:
    """A span leaves a gap to its neighbours while there is room."""
    gap = min(0.12 * box.height, 4)
    across = min(gap, 0.2 * box.width)
    return Box(box.x, box.y, box.width - across, box.height - gap)


def _spans(boxes: list[Box], state: str, colours: Colours, *, computed: bool) -> str:
    """Idle ones are thin; computed ones are hatched in an outline."""
    if state == "idle":
        boxes = [
            box._replace(y=box.y + (1 - THIN) / 2 * box.height, height=THIN * box.height)
            for box in boxes
        ]
    if not computed:
        return "".join(rect(box, fill=colours[state]) for box in boxes)
    outlined = "".join(
        rect(
            box,
            fill=colours[state],
            fill_opacity="0.3",
            stroke=colours[state],
            stroke_width="2",
        )
        for box in boxes
    )
    return outlined + hatch(boxes, 14, colours["text"])


def _title(lane: Value, box: Box, colours: Colours) -> str:
    """The name, whether it is computed, the figures, and as much of the note as there is room."""
    figures = " · ".join(lane["told"])
    parts = [
        (lane["title"], colours["text"], True),
        ("computed" if lane["computed"] else "", colours["muted"], False),
        (figures, colours["accent"], True),
    ]
    drawn, x = "", box.x
    for content, colour, bold in parts:
        if content:
            place = Box(x, box.y, box.right - x, box.height)
            drawn += _line(place, content, TYPE, colour, bold=bold)
            x += text_width(content, TYPE, bold) + 22
    note = _as_much_as_fits(lane["note"], box.right - x)
    return drawn + _line(Box(x, box.y, box.right - x, box.height), note, TYPE, colours["muted"])


def _as_much_as_fits(note: str, width: float) -> str:
    """The note without its last clauses; one that has a single clause is cut where it must be."""
    while "," in note and text_width(note, TYPE) > width:
        note = note.rpartition(",")[0]
    return note if width > 4 * TYPE else ""


def _axis(box: Box, end: float, seconds: float, across: float, colours: Colours) -> str:
    drawn = ""
    for at, said in _ticks(seconds):
        x = box.x + across * at
        drawn += stroke(f"M{number(x)} {number(box.y)}V{number(end)}", colours["line"], 2)
        drawn += text(
            x,
            baseline(end + AXIS / 2, TYPE),
            said,
            size=TYPE,
            colour=colours["muted"],
            anchor="middle" if at else "left",
        )
    return drawn


def _ticks(seconds: float) -> Iterator[tuple[float, str]]:
    """Round seconds, six at most; the last has the unit."""
    step = 10.0**-3
    for factor in (2, 2.5, 2) * 12:
        if seconds / step <= 6:
            break
        step *= factor
    digits = max(0, len(f"{step:.10g}".partition(".")[2]))
    count = int(seconds / step + 1e-9)
    for k in range(count + 1):
        yield k * step, f"{k * step:.{digits}f}" + (" s" if k == count else "")


def _caption(box: Box, shown: Value, colours: Colours) -> str:
    said = f"{shown['strip']} · recorded" if shown["recorded"] else shown["strip"]
    drawn = _line(box, said, TYPE, colours["muted"])
    if text_width(said, TYPE) + 2 * TYPE + text_width(NAME, TYPE, bold=True) > box.width:
        return drawn
    y = baseline(box.y + box.height / 2, TYPE)
    return drawn + text(
        box.right, y, NAME, size=TYPE, colour=colours["muted"], weight=700, anchor="right"
    )

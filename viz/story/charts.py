"""Charts of forwards over time, and of which request holds which slot.

Like viz.paint, they return SVG for a box and take colours by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.metrics import columns_by_batch, rows
from engine.run import Run, Step
from viz.grid import SIZE, Colours, side_label
from viz.signs import dots
from viz.story.curve import ticks
from viz.story.timetable import Span, Timetable
from viz.svg import Box, baseline, element, number, rect, stroke, text
from viz.type import text_width


def timeline(
    run: Run, box: Box, colours: Colours, *, seconds: float, size: float = SIZE, left: float
) -> str:
    """Forwards over time: a lane per request, a block per forward that gave it a token, and grey
    while its slot was idle. The box is `seconds` wide, right of `left` for the lane numbers."""
    field = _right_of(left, box)
    pitch = field.height / len(run.requests)
    scale = field.width / seconds
    columns = columns_by_batch(run)
    drawn = []
    for row in rows(run):
        lane = Box(field.x, field.y + row.request * pitch + pitch * 0.06, 0, pitch * 0.88)
        steps = columns[row.batch.index]
        idle = steps[row.generated :]
        drawn += [
            _blocks(steps[: row.generated], lane, scale, colours),
            _idle(_between(idle, lane, scale), colours, size) if idle else "",
            _lane_label(field.x, lane.y + lane.height / 2, str(row.request + 1), colours, size),
        ]
    return element("g", *drawn)


def _right_of(left: float, box: Box) -> Box:
    return Box(box.x + left, box.y, box.width - left, box.height)


def _lane_label(x: float, middle: float, name: str, colours: Colours, size: float) -> str:
    return side_label(x, middle, name, size=size, colour=colours["text"], weight=600)


def _between(steps: Sequence[Step], lane: Box, scale: float) -> Box:
    start, end = steps[0].started, steps[-1].finished
    return Box(lane.x + scale * start, lane.y, scale * (end - start), lane.height)


def _idle(box: Box, colours: Colours, size: float) -> str:
    """Grey and dotted, as in viz.paint."""
    grey = rect(box, fill=colours["idle"], radius=min(3, box.height / 8), data_state="idle")
    return grey + dots([box], 0.75 * size, 0.16 * size, colours["panel"])


def _blocks(steps: Sequence[Step], lane: Box, scale: float, colours: Colours) -> str:
    blocks = (_between([step], lane, scale) for step in steps)
    path = "".join(
        f"M{number(box.x)} {number(box.y)}h{number(max(0.6 * box.width, box.width - 1.2))}"
        f"v{number(box.height)}H{number(box.x)}Z"
        for box in blocks
    )
    return element("path", d=path, fill=colours["active"], data_state="active") if path else ""


def seconds_axis(
    box: Box, colours: Colours, *, seconds: float, size: float = SIZE, left: float
) -> str:
    """The time under a `timeline`: a line with a few round seconds, in the height of the box."""
    field = _right_of(left, box)
    at = [(tick, field.x + field.width * tick / seconds) for tick in ticks(seconds, most=5)]
    path = f"M{number(field.x)} {number(field.y)}h{number(field.width)}"
    path += "".join(f"M{number(x)} {number(field.y)}v5" for _, x in at)
    labels = [
        text(
            min(x, field.right - text_width(told, size) / 2),
            field.y + 5 + 1.1 * size,
            told,
            size=size,
            colour=colours["muted"],
            anchor="middle",
        )
        for tick, x in at
        for told in [f"{number(tick)} s"]
    ]
    return stroke(path, colours["muted"], 1) + "".join(labels)


def seats(
    table: Timetable,
    box: Box,
    colours: Colours,
    *,
    columns: int,
    size: float = SIZE,
    left: float,
) -> str:
    """A timetable: a bar per request with its number, and grey where a slot is idle. The box is
    `columns` wide, right of `left` for the slot numbers."""
    field = _right_of(left, box)
    pitch, column = field.height / table.slots, field.width / columns

    def bar(span: Span) -> Box:
        x, y = field.x + span.start * column, field.y + (span.slot + 0.06) * pitch
        return Box(x, y, span.width * column - 1.5, 0.88 * pitch)

    return element(
        "g",
        *(
            _idle(bar(span), colours, size)
            if span.request is None
            else _seat(bar(span), span.request, colours, size)
            for span in table.spans
        ),
        *(
            _lane_label(field.x, field.y + (slot + 0.5) * pitch, f"slot {slot + 1}", colours, size)
            for slot in range(table.slots)
        ),
    )


def _seat(bar: Box, request: int, colours: Colours, size: float) -> str:
    """A request's time in its slot, with the request's number."""
    number_of_request = text(
        bar.x + bar.width / 2,
        baseline(bar.y + bar.height / 2, size),
        str(request + 1),
        size=size,
        colour=colours["on-accent"],
        weight=600,
        anchor="middle",
    )
    return rect(bar, fill=colours["active"], radius=min(3, bar.height / 8)) + number_of_request

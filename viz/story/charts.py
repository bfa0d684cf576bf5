"""Charts that are not slots over columns: forwards over time, a curve over batch sizes, and a
timetable of slots. Like viz.paint, they return SVG for a box and take colours by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10
from typing import NamedTuple

from engine.metrics import columns, rows
from engine.run import Run, Step
from viz import words
from viz.grid import SIZE, Colours
from viz.signs import dots
from viz.story.timetable import Timetable
from viz.svg import Box, element, number, rect, text
from viz.type import text_width


class Point(NamedTuple):
    x: float
    y: float


def timeline(
    run: Run, box: Box, colours: Colours, *, seconds: float, size: float = SIZE, left: float
) -> str:
    """Forwards over time: a lane per request, a block per forward that gave it a token, and grey
    while its slot was idle. The box is `seconds` wide, right of `left` for the lane numbers."""
    field = Box(box.x + left, box.y, box.width - left, box.height)
    pitch = field.height / len(run.requests)
    scale = field.width / seconds
    drawn = []
    for row in rows(run):
        lane = Box(field.x, field.y + row.request * pitch + pitch * 0.06, 0, pitch * 0.88)
        steps = columns(run, row.batch.index)
        idle = steps[row.generated :]
        drawn += [
            _blocks(steps[: row.generated], lane, scale, colours),
            _idle(_between(idle, lane, scale), colours, size) if idle else "",
            text(
                field.x - 0.6 * size,
                lane.y + lane.height / 2 + 0.36 * size,
                str(row.request + 1),
                size=size,
                colour=colours["text"],
                weight=600,
                anchor="right",
            ),
        ]
    return element("g", *drawn)


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
    field = Box(box.x + left, box.y, box.width - left, box.height)
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
    return _line(path, colours["muted"], 1) + "".join(labels)


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
    widest = 1.06 * max(point.x for point in points)
    levels = ticks(highest, most=4)
    left = max(text_width(f"{level:,g}", size) for level in levels) + 0.9 * size
    field = Box(box.x + left, box.y + 2 * size, box.width - left, box.height - 5.2 * size)

    def place(point: Point) -> Point:
        return Point(
            field.x + field.width * point.x / widest,
            field.bottom - field.height * point.y / highest,
        )

    places = [place(point) for point in points]
    grid = "".join(
        f"M{number(field.x)} {number(place(Point(0, level)).y)}h{number(field.width)}"
        for level in levels
    )
    joined = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)
    return element(
        "g",
        text(box.x, box.y + size, title, size=size, colour=colours["text"], weight=600),
        _line(grid, colours["line"], 1),
        *_level_labels(levels, field, highest, colours, size),
        *_batch_labels(points, places, field, colours, size),
        text(
            field.right,
            field.bottom + 2.9 * size,
            "rows in the batch",
            size=size,
            colour=colours["muted"],
            anchor="right",
        ),
        _perfect(points, place, highest, widest, perfect, colours, size) if perfect else "",
        _line(joined, colours["active"], 2.5),
        *(
            element(
                "circle", cx=x, cy=y, r=0.32 * size, fill=colours["active"], data_x=str(point.x)
            )
            for point, (x, y) in zip(points, places, strict=True)
        ),
        *_ends(points, places, field, colours, size),
    )


def _level_labels(
    levels: Sequence[float], field: Box, highest: float, colours: Colours, size: float
) -> Iterator[str]:
    for level in levels:
        y = field.bottom - field.height * level / highest + 0.36 * size
        told = f"{level:,g}"
        yield text(
            field.x - 0.6 * size, y, told, size=size, colour=colours["muted"], anchor="right"
        )


def _batch_labels(
    points: Sequence[Point], places: Sequence[Point], field: Box, colours: Colours, size: float
) -> Iterator[str]:
    """A mark per point, and its x as far as the labels leave each other room, the last first."""
    yield _line(
        "".join(f"M{number(place.x)} {number(field.bottom)}v5" for place in places),
        colours["muted"],
        1,
    )
    free = float("inf")
    for point, place in reversed(list(zip(points, places, strict=True))):
        told = f"{point.x:g}"
        half = text_width(told, size) / 2
        if place.x + half + 0.25 * size <= free:
            free = place.x - half
            yield text(
                place.x,
                field.bottom + 5 + size,
                told,
                size=size,
                colour=colours["muted"],
                anchor="middle",
            )


def _perfect(
    points: Sequence[Point],
    place: Callable[[Point], Point],
    highest: float,
    widest: float,
    label: str,
    colours: Colours,
    size: float,
) -> str:
    slope = points[0].y / points[0].x
    reach = min(widest, highest / slope)
    (x0, y0), (x1, y1) = place(Point(0, 0)), place(Point(reach, slope * reach))
    return _line(
        f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}",
        colours["muted"],
        1.5,
        dashes=f"{number(0.5 * size)} {number(0.4 * size)}",
    ) + text(x1 + 0.5 * size, y1 + 0.8 * size, label, size=size, colour=colours["muted"])


def _ends(
    points: Sequence[Point], places: Sequence[Point], field: Box, colours: Colours, size: float
) -> Iterator[str]:
    """The last value above its point, the first below and beside."""

    def put(point: Point, x: float, y: float, anchor: str) -> str:
        told = f"{words.plural(int(point.x), 'row')}: {point.y:,.1f}"
        return text(x, y, told, size=size, colour=colours["text"], weight=600, anchor=anchor)

    x, y = places[-1]
    yield put(points[-1], min(x + 2 * size, field.right), y - 0.75 * size, "right")
    if len(points) > 1:
        x, y = places[0]
        yield put(points[0], x + 0.8 * size, min(y + 1.3 * size, field.bottom - 0.4 * size), "left")


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
    field = Box(box.x + left, box.y, box.width - left, box.height)
    pitch, column = field.height / table.slots, field.width / columns
    drawn = []
    for span in table.spans:
        bar = Box(
            field.x + span.start * column,
            field.y + (span.slot + 0.06) * pitch,
            span.width * column - 1.5,
            0.88 * pitch,
        )
        if span.request is None:
            drawn.append(_idle(bar, colours, size))
            continue
        drawn.append(rect(bar, fill=colours["active"], radius=min(3, pitch / 8)))
        drawn.append(
            text(
                bar.x + bar.width / 2,
                bar.y + bar.height / 2 + 0.36 * size,
                str(span.request + 1),
                size=size,
                colour=colours["on-accent"],
                weight=600,
                anchor="middle",
            )
        )
    names = [
        text(
            field.x - 0.6 * size,
            field.y + (slot + 0.5) * pitch + 0.36 * size,
            f"slot {slot + 1}",
            size=size,
            colour=colours["text"],
            weight=600,
            anchor="right",
        )
        for slot in range(table.slots)
    ]
    return element("g", *drawn, *names)


def ticks(highest: float, *, most: int) -> list[float]:
    """0 and its round multiples up to `highest`: at most so many, in steps of 1, 2 or 5."""
    least = highest / most
    power = 10.0 ** floor(log10(least))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= least)
    return [step * k for k in range(floor(highest / step + 1e-9) + 1)]


def _line(path: str, colour: str, width: float, *, dashes: str | None = None) -> str:
    return element(
        "path",
        d=path,
        fill="none",
        stroke=colour,
        stroke_width=width,
        stroke_dasharray=dashes,
        stroke_linejoin="round",
    )

"""The pictures of the story, each from recorded runs, for a wide and for a narrow page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.metrics import columns, measure
from engine.run import Run
from viz import paint, words
from viz.areas import memory
from viz.columns import columns as axis_of
from viz.grid import gutter
from viz.story.charts import seats, seconds_axis, timeline
from viz.story.curve import Point, curve
from viz.story.timetable import continuous_timetable, recorded_timetable
from viz.svg import PAGE, Box, picture, text
from viz.type import fit, text_width


class Sheet(NamedTuple):
    """How wide a picture is, and the size of its type, in the units of its viewBox."""

    width: float
    size: float
    row: float

    @property
    def wide(self) -> bool:
        return self is not NARROW


WIDE = Sheet(width=640, size=14, row=27)
NARROW = Sheet(width=300, size=12, row=22)


def slots_picture(run: Run, sheet: Sheet, *, title: str) -> str:
    """Slots over columns, as on the stage."""
    height = axis_of(run).slots * sheet.row + 1.5 * sheet.size
    box = Box(0, 0, sheet.width, height)
    left = gutter(run, sheet.size, labels=())
    slots = paint.slots(run, box, PAGE, size=sheet.size, left=left)
    return picture(sheet.width, height, slots, title=title)


def memory_picture(run: Run, sheet: Sheet, *, title: str) -> str:
    """The slots, and below them, column for column, what the KV cache held."""
    size = sheet.size
    left = gutter(run, size)
    slots = Box(0, 0, sheet.width, axis_of(run).slots * sheet.row + 1.5 * size)
    held = Box(0, slots.bottom + 0.8 * size, sheet.width, 6 * size)
    return picture(
        sheet.width,
        held.bottom + 2,
        paint.slots(run, slots, PAGE, size=size, left=left),
        memory(run, held, PAGE, size=size, left=left, rows=False),
        title=title,
    )


def first_request(run: Run) -> Run:
    """Of a serial run, what belongs to its first request."""
    return replace(
        run,
        requests=run.requests[:1],
        batches=run.batches[:1],
        steps=tuple(columns(run, 0)),
        texts=run.texts[:1],
    )


def time_picture(runs: Sequence[Run], sheet: Sheet, *, title: str) -> str:
    """The forwards of each run over one axis of seconds."""
    size, left = sheet.size, 1.6 * sheet.size
    longest = max(measure(run).wall_seconds for run in runs)
    drawn, y = [], 0.0
    for run in runs:
        lanes = Box(0, y + 1.7 * size, sheet.width, len(run.requests) * 0.7 * sheet.row)
        drawn += [
            _headline(what_it_took(run), 0, y + size, sheet),
            timeline(run, lanes, PAGE, seconds=longest, size=size, left=left),
        ]
        y = lanes.bottom + 0.9 * size
    axis = Box(0, y - 0.5 * size, sheet.width, 2 * size)
    drawn.append(seconds_axis(axis, PAGE, seconds=longest, size=size, left=left))
    return picture(sheet.width, axis.bottom, *drawn, title=title)


def what_it_took(run: Run) -> str:
    """ "Static batch: 20 forwards, 1.1 s"."""
    name = {"static": "Static batch", "serial": "Serial"}[run.settings.engine]
    took = words.seconds(measure(run).wall_seconds)
    return f"{name}: {words.plural(len(run.steps), 'forward')}, {took}"


def limits_picture(sizes: Sequence[Run], sheet: Sheet, *, title: str) -> str:
    """Output and time per token against the batch size."""
    measured = [(len(run.requests), measure(run)) for run in sizes]
    output = [Point(rows, figures.output_tokens_per_second) for rows, figures in measured]
    pace = [Point(rows, 1000 * figures.mean_tpot) for rows, figures in measured]
    height = 17 * sheet.size
    if sheet.wide:
        gap = 2.5 * sheet.size
        half = (sheet.width - gap) / 2
        boxes = [Box(0, 0, half, height), Box(half + gap, 0, half, height)]
    else:
        boxes = [Box(0, y, sheet.width, height) for y in (0, height + sheet.size)]
    return picture(
        sheet.width,
        boxes[-1].bottom,
        curve(
            output,
            boxes[0],
            PAGE,
            title="Output, tok/s",
            perfect="perfect scaling",
            size=sheet.size,
        ),
        curve(pace, boxes[1], PAGE, title="Time per token (TPOT), ms", size=sheet.size),
        title=title,
    )


def next_picture(run: Run, sheet: Sheet, *, title: str) -> str:
    """The new tokens of a run as it gave slots to requests, and as continuous batching would."""
    size = sheet.size
    tables = {
        "recorded": recorded_timetable(run),
        "computed": continuous_timetable(run),
    }
    names = {"recorded": "static, recorded", "computed": "continuous, computed"}
    most = max(table.columns for table in tables.values())
    left = text_width("slot 0", size, bold=True) + 0.9 * size
    drawn, y = [], 0.0
    for kind, table in tables.items():
        field = Box(0, y + 1.6 * size, sheet.width, table.slots * 0.85 * sheet.row)
        told = f"{names[kind].capitalize()}: {words.plural(table.columns, 'column')}"
        drawn += [
            _headline(told, 0, y + size, sheet),
            seats(table, field, PAGE, columns=most, size=size, left=left),
        ]
        y = field.bottom + size
    return picture(sheet.width, y - size, *drawn, title=title)


def _headline(content: str, x: float, y: float, sheet: Sheet) -> str:
    told = fit(content, sheet.size, sheet.width - x, bold=True)
    return text(x, y, told, size=sheet.size, colour=PAGE["text"], weight=600)

"""One lane as the page shows it: spans to draw, a title beside them, and a line of the table."""

from __future__ import annotations

from typing import Any, get_args

from engine.lanes import Lane, SpanState
from engine.metrics import Spread, Waste
from viz import words

STATES: tuple[SpanState, ...] = get_args(SpanState)
"""A span names its state by its place in here."""

COLUMNS = (
    "Wall time",
    "Output tok/s",
    "First token\nmedian · p90 · max",
    "Latency\nmedian · p90 · max",
    "Prompt padding",
    "Idle while decoding",
    "Peak KV cache",
    "Speed-up over serial",
)


def drawn(
    lane: Lane, *, title: str, note: str, serial_seconds: float | None = None
) -> dict[str, Any]:
    """Spans are [slot, request, state, start, end], in seconds. What is told of the lane is its
    wall time, and how that compares with the serial run's."""
    told = [words.seconds(lane.figures.wall_seconds)] if lane.spans else []
    if told and serial_seconds:
        told.append(f"{times(lane, serial_seconds)} as fast")
    return {
        "title": title,
        "note": note,
        "told": told,
        "computed": lane.computed,
        "slots": lane.slots,
        "wall": lane.figures.wall_seconds,
        "spans": [
            [span.slot, span.request, STATES.index(span.state), *map(_rounded, span[3:])]
            for span in lane.spans
        ],
    }


def line(name: str, lane: Lane, serial_seconds: float | None = None) -> list[str]:
    """A line of the table: the name, then what COLUMNS say."""
    figures = lane.figures
    held = figures.peak_kv_bytes
    return [
        name,
        words.seconds(figures.wall_seconds),
        words.rate(figures.output_tokens_per_second),
        percentiles(figures.first_token),
        percentiles(figures.latency),
        wasted(figures.padding),
        wasted(figures.idle),
        NOT_KNOWN if held is None else words.size(held),
        times(lane, serial_seconds),
    ]


NOT_KNOWN = "n/a"


def times(lane: Lane, serial_seconds: float | None) -> str:
    """How many times as fast as the serial run: "2.43 ×"."""
    wall = lane.figures.wall_seconds
    return f"{serial_seconds / wall:.2f} ×" if serial_seconds and wall > 0 else NOT_KNOWN


def percentiles(spread: Spread) -> str:
    """ "812 ms · 2.5 s · 3.0 s"."""
    if spread.median is None:
        return NOT_KNOWN
    return " · ".join(words.seconds(value) for value in (spread.median, spread.p90, spread.largest))


def wasted(waste: Waste) -> str:
    """ "29 % (23 of 80)"."""
    if not waste.slots:
        return NOT_KNOWN
    return f"{words.percent(waste)} ({waste.wasted:,} of {waste.slots:,})"


def _rounded(seconds: float) -> float:
    """A tenth of a millisecond is less than a pixel."""
    return round(seconds, 4)

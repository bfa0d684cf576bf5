"""The table of a comparison as CSV: a line per lane, measured and computed, seconds in full."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from engine.comparison import Comparison
from engine.lanes import Lane, lane_of
from engine.schedules import Order
from viz.compare.computed import Basis, computed_lanes
from viz.table import guard

COLUMNS = (
    "lane",
    "computed",
    "slots",
    "order",
    "wall_s",
    "forwards",
    "generated_tokens",
    "output_tokens_per_s",
    "first_token_median_s",
    "first_token_p90_s",
    "first_token_max_s",
    "latency_median_s",
    "latency_p90_s",
    "latency_max_s",
    "padding_slots",
    "prompt_slots",
    "idle_slots",
    "decode_slots",
    "peak_kv_bytes",
    "speed_up_over_serial",
    "note",
)


def comparison_csv(comparison: Comparison, basis: Basis | None, *, slots: int, order: Order) -> str:
    """The measured lanes, and those computed from `basis`, if there is one, for so many slots and
    that order. Lines end in CR LF, so write it without newline translation. An engine that can't
    run here has a line with the reason alone; a cell with no value is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    alone = basis.serial_seconds if basis else None
    for entry in comparison.entries:
        if entry.run is None or not entry.run.steps:
            writer.writerow([entry.engine, "no", *[""] * 18, guard(entry.reason or "")])
        else:
            lane = lane_of(entry.run)
            writer.writerow([entry.engine, "no", *_figures(lane, "as given", alone)])
    for title, _, lane in computed_lanes(basis, slots=slots, order=order) if basis else []:
        writer.writerow([title.lower(), "yes", *_figures(lane, order, alone)])
    return text.getvalue()


def _figures(lane: Lane, order: Order, alone: float | None) -> Iterator[object]:
    figures = lane.figures
    wall = figures.wall_seconds
    yield from (lane.slots, order, wall, figures.forwards, figures.generated_tokens)
    yield figures.output_tokens_per_second
    for spread in (figures.first_token, figures.latency):
        yield from (spread.median, spread.p90, spread.largest)
    for waste in (figures.padding, figures.idle):
        yield from waste
    yield figures.peak_kv_bytes
    yield alone / wall if alone and wall > 0 else None
    yield guard(lane.error or "")

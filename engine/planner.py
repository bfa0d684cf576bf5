"""Which batch size to serve with, from what a sweep measured: the most tokens per second within a
limit on latency and the memory.

A sweep measures some sizes. Between two of them TTFT, TPOT and the time of a whole run are taken to
be on a straight line, and such a point is computed, not measured; beyond the largest nothing is
said. Three things end the growth of a batch, each at a size of its own: memory (the rows no longer
fit), latency (a step or a prefill takes too long), saturation (rows bring no more throughput).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from engine.errors import RequestError
from engine.sweep import Size, Sweep

WORTHWHILE = 1.1
"""A batch twice as large must bring so many times the throughput, or its size is saturated."""


class Point(NamedTuple):
    """The figures of one batch size: medians of what was measured there, or `computed` between two
    that were."""

    batch_size: int
    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second: float
    computed: bool


class Memory(NamedTuple):
    """What one row needs at most of the KV cache, and what is free for all of them, in bytes."""

    bytes_per_row: int
    free_bytes: int


class Limits(NamedTuple):
    """The largest batch size that fits the memory, and the largest that keeps to the latency: 0 if
    not even the smallest measured one does. `saturation` is the smallest size at which twice the
    rows bring little. None: not known, or not reached by what was measured."""

    memory: int | None
    latency: int | None
    saturation: int | None


@dataclass(frozen=True)
class Plan:
    """The best batch size, None if none will do. `bound` is why it is not larger: the next larger
    one would not fit, or be too slow, or bring no more; or none larger was "measured"."""

    points: tuple[Point, ...]
    limits: Limits
    best: Point | None
    bound: Literal["memory", "latency", "saturation", "measured"]


def plan(
    sweep: Sweep,
    *,
    ttft_seconds: float | None = None,
    tpot_seconds: float | None = None,
    memory: Memory | None = None,
) -> Plan:
    """The batch size of the highest throughput that keeps to the limits; of two as good, the
    smaller. Raises RequestError where the sweep has timed nothing, or a limit is none."""
    for name, limit in (("time to first token", ttft_seconds), ("time per token", tpot_seconds)):
        if limit is not None and not limit > 0:
            raise RequestError(f"The limit on the {name} must be more than 0 seconds.")
    if memory and (memory.bytes_per_row < 1 or memory.free_bytes < 0):
        raise RequestError("A row needs at least 1 byte, and what is free is 0 bytes or more.")
    points = points_of(sweep)

    def in_time(point: Point) -> bool:
        return (ttft_seconds is None or point.ttft_seconds <= ttft_seconds) and (
            tpot_seconds is None or point.tpot_seconds <= tpot_seconds
        )

    slow = next((index for index, point in enumerate(points) if not in_time(point)), None)
    limits = Limits(
        memory=memory.free_bytes // memory.bytes_per_row if memory else None,
        latency=None if slow is None else points[slow - 1].batch_size if slow else 0,
        saturation=_saturation(points),
    )
    kept = points if limits.latency is None else points[:slow]
    fitting = [p for p in kept if limits.memory is None or p.batch_size <= limits.memory]
    best = max(fitting, key=lambda point: point.tokens_per_second, default=None)
    if best and best.batch_size < fitting[-1].batch_size:
        bound = "saturation"
    elif len(fitting) < len(kept):
        bound = "memory"
    else:
        bound = "measured" if limits.latency is None else "latency"
    return Plan(points, limits, best, bound)


def points_of(sweep: Sweep) -> tuple[Point, ...]:
    """A point for every batch size from the smallest measured to the largest. Raises RequestError
    where nothing was timed."""
    sizes = sorted(filter(_is_timed, sweep.sizes), key=lambda size: size.batch_size)
    if not sizes:
        raise RequestError("The sweep has timed no batch size with two tokens or more per row.")
    measured = {size.batch_size for size in sizes}
    rows = np.arange(min(measured), max(measured) + 1)
    ttft, tpot, seconds_per_column = (
        np.interp(rows, sorted(measured), values)
        for values in zip(*map(_figures, sizes), strict=True)
    )
    columns = (each.tolist() for each in (rows, ttft, tpot, rows / seconds_per_column))
    return tuple(Point(*row, row[0] not in measured) for row in zip(*columns, strict=True))


def row_bytes(sweep: Sweep) -> int | None:
    """What the KV cache of one row of the sweep holds at its end, at most (windows hold less); None
    for a sweep that does not say."""
    if not sweep.sizes or sweep.model.kv_bytes_per_token is None:
        return None
    longest = max(max(size.prompt_tokens) for size in sweep.sizes)
    return sweep.model.kv_bytes_per_token * (longest + sweep.max_new_tokens - 1)


def _is_timed(size: Size) -> bool:
    return bool(size.engine.ttft and size.engine.tpot)


def _figures(size: Size) -> tuple[float, float, float]:
    """TTFT, TPOT, and seconds of the whole run for one token of every row."""
    engine = size.engine
    rate = engine.tokens_per_second.median
    return engine.ttft.median, engine.tpot.median, size.batch_size / rate


def _saturation(points: Sequence[Point]) -> int | None:
    rates = {point.batch_size: point.tokens_per_second for point in points}
    return next(
        (rows for rows in rates if rates.get(2 * rows, float("inf")) < WORTHWHILE * rates[rows]),
        None,
    )

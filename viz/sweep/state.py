"""Sweep -> the value of the "Batch size" tab: what its charts, table and sentences show.

A value is {"notice", "busy", "shown"}. `shown` None leaves the charts as they are, so that a
refusal does not wipe out what was measured before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.sweep import Progress, Size, Stats, Sweep
from engine.sweepfile import dumps
from viz import words
from viz.export import file_name
from viz.story.telling import NANO_LLM_SERVE

Value = dict[str, Any]

PUBLISHED_TOKENS = 64
"""New tokens per row in nanoLLMServe's benchmark."""

_PUBLISHED_SECONDS = [
    point.rows * PUBLISHED_TOKENS / point.tokens_per_second for point in NANO_LLM_SERVE
]

PUBLISHED_NOTE = (
    "Published by nanoLLMServe: other model, other hardware; not measured here.",
    " Qwen3-8B, bf16, one A100: "
    f"{words.listing(point.tokens_per_second for point in NANO_LLM_SERVE)} tok/s at batch size "
    f"{words.listing(point.rows for point in NANO_LLM_SERVE)}, "
    f"{min(_PUBLISHED_SECONDS):.2f} to {max(_PUBLISHED_SECONDS):.2f} s per batch. Drawn as "
    "multiples of its own smallest batch here.",
)
"""A sentence for a slide, and what else there is to say."""

COLUMNS = (
    "Batch size",
    "Prompt tokens per row",
    "Output, tok/s",
    "Speed-up over batch size {first}",
    "TTFT",
    "TPOT",
    "Floor",
    "Of the limit",
    "Spread of tok/s",
)


def sweep_value(
    shown: Value | None = None, *, text: str = "", kind: str = "info", busy: bool = False
) -> Value:
    """The value: `shown` as `shown_state` makes it, a line of text, and whether to offer Stop
    instead of Measure."""
    return {"notice": {"text": text, "kind": kind}, "busy": busy, "shown": shown}


def shown_state(
    sweep: Sweep,
    progress: Progress | None = None,
    *,
    key: str,
    recorded: bool = False,
) -> Value:
    """A sweep so far. `key` tells sweeps apart; `progress` is what is under way."""
    measured = sorted(_measured(sweep), key=lambda size: size.batch_size)
    running = sweep.status == "running"
    return {
        "key": key,
        "status": sweep.status,
        "recorded": recorded,
        "heading": words.under_way(progress) if running else ending(sweep),
        "remark": least_left(sweep) if running else ending_remark(sweep, measured),
        "strip": [words.caption(sweep.model), f" · {how_and_when(sweep)}"],
        "planned": sorted(sweep.batch_sizes),
        "points": [_point(size) for size in measured],
        "published": published(measured),
        "note": list(PUBLISHED_NOTE) if published(measured) else [],
        "columns": _columns(sweep, measured),
        "rows": _rows(sweep, measured),
        "record": "" if running else dumps(sweep),
        "file": file_name(sweep, "-sweep.json"),
    }


def ending(sweep: Sweep) -> str:
    """ "Done: 5 batch sizes", or where it ended."""
    measured = _measured(sweep)
    if sweep.status == "done":
        return f"Done: {words.plural(len(measured), 'batch size')}"
    ended = {"stopped": "Stopped", "error": "Ended early"}[sweep.status]
    if not measured:
        return f"{ended} before anything was measured"
    last = measured[-1]
    runs = len(last.engine.samples)
    return f"{ended} after run {runs} of {sweep.runs} at batch size {last.batch_size}"


def least_left(sweep: Sweep) -> str:
    """How long the sizes that have not begun will take at the least: a larger batch takes no less
    time than the newest one that was timed."""
    timed = [size for size in sweep.sizes if len(size.engine.samples) == sweep.runs]
    if not timed:
        return ""
    newest, not_begun = timed[-1], sweep.batch_sizes[len(sweep.sizes) :]
    to_come = sum(size > newest.batch_size for size in not_begun)
    if not to_come:
        return ""
    each = (sweep.warmup + sweep.runs) * newest.engine.elapsed.least
    return f"At least {to_come * each:.0f} s more: a larger batch takes no less time."


def summary(measured: Sequence[Size]) -> str:
    """One sentence on what more rows brought, and what they cost."""
    if len(measured) < 2:
        return ""
    first, last = measured[0], measured[-1]
    rows = last.batch_size / first.batch_size
    told = f"{rows:.3g} times the rows gave {_speedup(last, first):.1f} times the tokens per second"
    paces = [size.engine.tpot for size in (first, last)]
    if None not in paces:
        slow, fast = (words.seconds(pace.median) for pace in reversed(paces))
        told += f"; a token took {slow} instead of {fast}"
    return f"{told}."


def ending_remark(sweep: Sweep, measured: Sequence[Size]) -> str:
    """Why it ended early, if it did, and what came out."""
    return " ".join(filter(None, [sweep.error, summary(measured)]))


def how_and_when(sweep: Sweep) -> str:
    """ "32 new tokens · median of 3 runs, 1 warm-up discarded · 30 Nov 2026"."""
    parts = [
        *(["random weights"] if sweep.random_weights else []),
        *([sweep.decode_path] if sweep.decode_path != "eager" else []),
        words.plural(sweep.max_new_tokens, "new token"),
        f"median of {words.plural(sweep.runs, 'run')}, "
        f"{words.plural(sweep.warmup, 'warm-up')} discarded",
        words.date(sweep.started_at),
    ]
    return " · ".join(parts)


class Reference(NamedTuple):
    """A published figure, as a multiple of that of the smallest size measured here."""

    size: int
    speedup: float


def published(measured: Sequence[Size]) -> list[Reference]:
    """nanoLLMServe's series, where it has the size that everything is compared with."""
    if not measured:
        return []
    first = measured[0].batch_size
    base = {point.rows: point.tokens_per_second for point in NANO_LLM_SERVE}.get(first)
    if base is None:
        return []
    return [
        Reference(point.rows, point.tokens_per_second / base)
        for point in NANO_LLM_SERVE
        if point.rows >= first
    ]


def _measured(sweep: Sweep) -> list[Size]:
    return [size for size in sweep.sizes if size.engine.samples]


def _point(size: Size) -> Value:
    """What the charts draw of a size: tokens per second, and milliseconds."""
    return {
        "size": size.batch_size,
        "rate": _drawn(size.engine.tokens_per_second, 1),
        "tpot": _drawn(size.engine.tpot, 1000),
        "floor": 1000 * size.floor.seconds if size.floor else None,
        "reached": _share(size.floor_fraction),
    }


def _drawn(found: Stats | None, scale: float) -> list[float] | None:
    """[median, least, most]."""
    return found and [scale * found.median, scale * found.least, scale * found.most]


def _columns(sweep: Sweep, measured: Sequence[Size]) -> list[str]:
    first = measured[0].batch_size if measured else min(sweep.batch_sizes, default=1)
    baselines = (f"Time against {words.WAYS[way]}" for way in _ways(measured))
    return [*(name.format(first=first) for name in COLUMNS), *baselines]


def _rows(sweep: Sweep, measured: Sequence[Size]) -> list[list[str]]:
    """A line per size; those that are not measured have dashes, so that the table has its height
    from the start."""
    known = {size.batch_size: size for size in measured}
    columns = len(COLUMNS) + len(_ways(measured))
    return [
        _row(known[size], measured) if size in known else [str(size), *["–"] * (columns - 1)]
        for size in sorted(sweep.batch_sizes)
    ]


def _row(size: Size, measured: Sequence[Size]) -> list[str]:
    series, lengths = size.engine, size.prompt_tokens
    rate = series.tokens_per_second
    least, most = min(lengths), max(lengths)
    return [
        str(size.batch_size),
        f"{least:,}" if least == most else f"{least:,} to {most:,}",
        words.rate(rate.median),
        f"{_speedup(size, measured[0]):.2f} ×",
        _median(series.ttft),
        _median(series.tpot),
        words.seconds(size.floor and size.floor.seconds)
        + (f", {size.floor.bound}" if size.floor else ""),
        _share(size.floor_fraction) or "n/a",
        f"{100 * rate.spread:.1f} %" if len(series.samples) > 1 else "1 run",
        *(_ratio(size, way) for way in _ways(measured)),
    ]


def _speedup(size: Size, first: Size) -> float:
    return size.engine.tokens_per_second.median / first.engine.tokens_per_second.median


def _median(found: Stats | None) -> str:
    return words.seconds(found and found.median)


def _share(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.0f} %"


def _ways(measured: Sequence[Size]) -> list[str]:
    """The baselines that ran beside the engine, each once."""
    return list(dict.fromkeys(series.way for size in measured for series in size.baselines))


def _ratio(size: Size, way: str) -> str:
    ratio = size.median_of_ratios(way)
    return "n/a" if ratio is None else f"{ratio:.2f} ×"

"""A sweep on a terminal: a table of its batch sizes, and how to read it, in 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from engine.sweep import Size, Stats, Sweep, Way
from viz.words import WAYS, caption, listing, plural, rate, size

COMPARED: tuple[Way, ...] = ("generate", "eager")
"""Baselines that have a column of their own, where they ran."""


def size_line(row: Size) -> str:
    """One batch size, as soon as it is measured."""
    speed, tpot = row.engine.tokens_per_second, row.engine.tpot
    return (
        f"batch size {row.batch_size}: {rate(speed.median)} tok/s, "
        f"{milliseconds(tpot.median)} per token"
    )


def sweep_report(sweep: Sweep) -> str:
    """What ran, the table, and what its columns mean."""
    measured = [row for row in sweep.sizes if row.engine.samples]
    if not measured:
        return "\n".join([*_what_ran(sweep, measured), "", f"{sweep.status}: nothing measured"])
    return "\n".join(
        [*_what_ran(sweep, measured), "", *_table(sweep, measured), "", *_notes(sweep, measured)]
    )


def milliseconds(value: float | None) -> str:
    """Three digits: "0.123 ms", "8.31 ms", "20.8 ms", "118 ms", "2.10 s"; "n/a" for None."""
    if value is None:
        return "n/a"
    if value >= 0.9995:
        return f"{value:.2f} s"
    shown = 1000 * value
    return f"{shown:.{sum(shown < edge for edge in (0.9995, 9.995, 99.95))}f} ms"


def _what_ran(sweep: Sweep, measured: Sequence[Size]) -> list[str]:
    lengths = [length for row in measured for length in row.prompt_tokens]
    lines = [
        f"{caption(sweep.model)} · {sweep.decode_path}",
        " · ".join(f"{name} {version}" for name, version in sweep.versions.items()),
        f"{plural(sweep.runs, 'run')} of {sweep.max_new_tokens} new tokens in every row, greedy; "
        f"{_discarded(sweep.warmup)}",
    ]
    if lengths:
        mean = sum(lengths) / len(lengths)
        lines.append(f"prompt tokens: min {min(lengths)}, mean {mean:.1f}, max {max(lengths)}")
    if sweep.rates:
        lines.append(
            f"the device reads {rate(sweep.rates.read_bytes_per_second / 1e9)} GB/s and computes "
            f"{_teraflops(sweep.rates.flops_per_second)} in {sweep.rates.dtype} (measured)"
        )
    return lines


def _discarded(warmup: int) -> str:
    if not warmup:
        return "no warm-up: the first run counts"
    return f"{plural(warmup, 'warm-up')} discarded"


def _table(sweep: Sweep, measured: Sequence[Size]) -> list[str]:
    compared = _compared(measured)
    header = ["batch", "tok/s", "spread", "× batch 1", "TTFT", "TPOT", "floor", "reached"]
    header += [f"/ {way}" for way in compared]
    header += ["peak"]
    rows = [header]
    for row in measured:
        ours, floor = row.engine, row.floor
        cells = [
            f"{row.batch_size}",
            rate(ours.tokens_per_second.median),
            _spread(ours.tokens_per_second),
            _times(sweep.speedup(row)),
            milliseconds(ours.ttft.median if ours.ttft else None),
            milliseconds(ours.tpot.median if ours.tpot else None),
            milliseconds(floor.seconds if floor else None),
            _percent(row.floor_fraction),
        ]
        cells += [_times(row.median_of_ratios(way)) for way in compared]
        cells += ["n/a" if ours.peak_bytes is None else size(ours.peak_bytes)]
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    return [lines[0], "─" * len(lines[0]), *lines[1:]]


def _notes(sweep: Sweep, measured: Sequence[Size]) -> list[str]:
    """What the columns mean, and what is not in them: a name and a sentence a line."""
    notes = [
        ("tok/s", "of all rows together; like TTFT and TPOT the median of the runs"),
        ("spread", "from the least to the most tok/s, as a share of the median"),
        ("floor", "what reading weights and live KV takes at least, or the arithmetic if longer"),
        ("reached", "floor / TPOT"),
    ]
    if edge := sweep.compute_bound_from:
        notes.append(("", f"by these rates arithmetic takes longer from batch size {edge} on"))
    for way in _compared(measured):
        notes += _compared_notes(way, [row for row in measured if row.median_of_ratios(way)])
    if any(row.engine.peak_bytes is not None for row in measured):
        notes.append(("peak", "the most that tensors held at once beside the weights"))
    for row in measured:
        naive = row.baseline("naive")
        if naive and naive.tpot and row.engine.tpot:
            notes.append(
                (
                    "naive",
                    f"{WAYS['naive']}, batch size {row.batch_size}: TPOT "
                    f"{milliseconds(naive.tpot.median)}, "
                    f"{naive.tpot.median / row.engine.tpot.median:.2f} times as long",
                )
            )
    if sweep.random_weights:
        notes.append(("model", "random weights: its shapes are real, its texts are noise"))
    if sweep.status != "done":
        told = f"{len(measured)} of {plural(len(sweep.batch_sizes), 'size')} measured"
        notes.append((sweep.status, told))
    width = max(len(name) for name, _ in notes)
    return [f"{name:<{width}}  {told}" for name, told in notes]


def _compared(measured: Sequence[Size]) -> list[Way]:
    return [way for way in COMPARED if any(row.median_of_ratios(way) for row in measured)]


def _compared_notes(way: Way, measured: Sequence[Size]) -> list[tuple[str, str]]:
    medians = listing(_times(row.ratio_of_medians(way)) for row in measured)
    notes = [
        (f"/ {way}", f"time over that of {WAYS[way]}, median of the pairs"),
        ("", f"ratio of the medians: {medians}"),
    ]
    for equal, told in ((True, "the same ids at"), (False, "other ids at")):
        sizes = [row.batch_size for row in measured if row.baseline(way).ids_equal is equal]
        if sizes:
            notes.append(("", f"{told} batch size {listing(sizes)}"))
    peaks = [row.baseline(way).peak_bytes for row in measured]
    if None not in peaks:
        notes.append(("", f"its own peak: {listing(map(size, peaks))}"))
    return notes


def _teraflops(flops_per_second: float) -> str:
    value = flops_per_second / 1e12
    return f"{value:.2f} TFLOP/s" if value < 10 else f"{value:,.0f} TFLOP/s"


def _spread(found: Stats) -> str:
    return f"{100 * found.spread:.0f} %"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.0f} %"


def _times(ratio: float | None) -> str:
    return "n/a" if ratio is None else f"{ratio:.2f}"

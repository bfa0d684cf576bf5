"""Sweeps as files: the report that nanoLLMServe's readers know, with the record in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING, Any

from engine.errors import RecordError
from engine.runfile import parse
from engine.sweep import MOST_ROWS, SCHEMA_VERSION, Series, Size, Stats, Sweep

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_BYTES = 2 * 2**20
MOST_NUMBERS = 200_000
"""The most that a saved sweep may have of rows times runs: its report has a number for each."""
LARGEST = 1e18
"""Of bytes, operations and rates; what is larger is no measurement."""


def dumps(sweep: Sweep, *, indent: int | None = None) -> str:
    """Strict JSON (numbers and null): the report, and the record in it that `loads` reads.

    The names at the top, of `kv_cache_decode` (batch size 1) and of `static_batch` are those of
    nanoLLMServe's benchmark, which runs one prompt at one size: `batch_size` and `static_batch` are
    of the largest size measured, `prompt_tokens` and `kv_cache_decode` of the first prompt alone.
    Every entry of `sizes` has the same names for its own size.
    """
    return json.dumps(report(sweep), allow_nan=False, ensure_ascii=False, indent=indent)


def loads(data: str | bytes) -> Sweep:
    """The sweep in a report; RecordError names the first thing that is wrong with it."""
    sweep = parse(
        data,
        _schema(),
        noun="sweep",
        most_bytes=MAX_BYTES,
        versions=range(1, SCHEMA_VERSION + 1),
        member="record",
    )
    if problem := next(_problems(sweep), None):
        raise RecordError(f"Not a saved sweep: {problem}.")
    return sweep


def report(sweep: Sweep) -> dict[str, Any]:
    """What `dumps` writes, as plain data."""
    measured = [size for size in sweep.sizes if size.engine.samples]
    one = next((size for size in measured if size.batch_size == 1), None)
    many = [size for size in measured if size.batch_size > 1]
    largest = max(measured, key=lambda size: size.batch_size, default=None)
    lengths = largest.prompt_tokens if largest else ()
    return {
        "model": sweep.model.name,
        "device": sweep.device,
        "dtype": sweep.model.dtype,
        "runs": sweep.runs,
        "warmup": sweep.warmup,
        "batch_size": largest.batch_size if largest else None,
        "prompt_tokens": lengths[0] if lengths else None,
        "kv_cache_decode": _one_row(one.engine) if one else None,
        "static_batch": _batch(max(many, key=lambda size: size.batch_size)) if many else None,
        **(_naive(one) if one else {}),
        "batch_sizes": list(sweep.batch_sizes),
        "max_new_tokens": sweep.max_new_tokens,
        "prompt_lengths": _lengths(lengths),
        "status": sweep.status,
        "decode_path": sweep.decode_path,
        "random_weights": sweep.random_weights,
        "rates": vars(sweep.rates) if sweep.rates else None,
        "compute_bound_from_batch_size": sweep.compute_bound_from,
        "sizes": [_size(sweep, size) for size in measured],
        "versions": dict(sweep.versions),
        "record": _plain(sweep),
    }


def _size(sweep: Sweep, size: Size) -> dict[str, Any]:
    floor = size.floor
    return {
        **_batch(size),
        "prompt_lengths": _lengths(size.prompt_tokens),
        "tokens_per_second": _stats(size.engine.tokens_per_second),
        "elapsed_seconds": _stats(size.engine.elapsed),
        "ttft_seconds": _stats(size.engine.ttft),
        "tpot_seconds": _stats(size.engine.tpot),
        "peak_bytes": size.engine.peak_bytes,
        "speedup_over_batch_1": sweep.speedup(size),
        "floor_seconds": floor.seconds if floor else None,
        "floor_bound": floor.bound if floor else None,
        "floor_fraction": size.floor_fraction,
        "weight_bytes": floor.weight_bytes if floor else None,
        "kv_bytes": floor.kv_bytes if floor else None,
        "flops": floor.flops if floor else None,
        "baselines": {
            series.way: {
                "elapsed_seconds": _stats(series.elapsed),
                "tokens_per_second": _stats(series.tokens_per_second),
                "peak_bytes": series.peak_bytes,
                "ids_equal": series.ids_equal,
                "median_of_time_ratios": size.median_of_ratios(series.way),
                "ratio_of_median_times": size.ratio_of_medians(series.way),
            }
            for series in size.baselines
        },
    }


def _one_row(series: Series) -> dict[str, Any]:
    return {
        "generated_tokens": [sample.generated_tokens for sample in series.samples],
        "mean_elapsed_seconds": _mean(series.elapsed),
        "mean_tokens_per_second": _mean(series.tokens_per_second),
        "mean_ttft_seconds": _mean(series.ttft),
        "mean_tpot_seconds": _mean(series.tpot),
        "mean_prefill_seconds": _mean(series.prefill),
        "mean_decode_seconds": _mean(series.decode),
    }


def _batch(size: Size) -> dict[str, Any]:
    """Tokens are listed per row, and all rows of a run have the same times and budget."""
    rows, series = size.batch_size, size.engine
    generated = [sample.generated_tokens // rows for sample in series.samples for _ in range(rows)]
    return {
        "batch_size": rows,
        "generated_tokens": generated,
        "mean_batch_elapsed_seconds": _mean(series.elapsed),
        "mean_batch_tokens_per_second": _mean(series.tokens_per_second),
        "mean_prompt_tokens": mean(size.prompt_tokens),
        "mean_generated_tokens": mean(generated) if generated else None,
        "mean_ttft_seconds": _mean(series.ttft),
        "mean_tpot_seconds": _mean(series.tpot),
        "mean_prefill_seconds": _mean(series.prefill),
        "mean_decode_seconds": _mean(series.decode),
    }


def _naive(size: Size) -> dict[str, Any]:
    naive = size.baseline("naive")
    if naive is None or not naive.samples:
        return {}
    ours = size.engine

    def speedup(figure: Callable[[Series], Stats | None]) -> float | None:
        slow, fast = figure(naive), figure(ours)
        return slow.mean / fast.mean if slow and fast else None

    return {
        "v0_0_naive_baseline": _one_row(naive),
        "comparison": {
            "elapsed_speedup": speedup(lambda series: series.elapsed),
            "tpot_speedup": speedup(lambda series: series.tpot),
        },
    }


def _lengths(lengths: Sequence[int]) -> dict[str, float] | None:
    if not lengths:
        return None
    return {"min": min(lengths), "mean": mean(lengths), "max": max(lengths)}


def _stats(found: Stats | None) -> dict[str, float] | None:
    return found._asdict() if found else None


def _mean(found: Stats | None) -> float | None:
    return found.mean if found else None


def _plain(sweep: Sweep) -> Any:
    return json.loads(json.dumps(sweep, default=vars, allow_nan=False))


@cache
def _schema() -> TypeAdapter[Sweep]:
    from pydantic import TypeAdapter

    return TypeAdapter(Sweep)


def _problems(sweep: Sweep) -> Iterable[str]:
    """What types alone can't say: figures are divided by what is checked here, and tables are as
    long."""
    if max(sweep.batch_sizes, default=0) > MOST_ROWS or len(set(sweep.batch_sizes)) > 64:
        yield f"it has more than 64 sizes, or one of more than {MOST_ROWS:,} rows"
    if len(set(sweep.batch_sizes)) < len(sweep.batch_sizes):
        yield "it names a size twice"
    many = (
        size.batch_size * sum(len(series.samples) for series in (size.engine, *size.baselines))
        for size in sweep.sizes
    )
    if sum(many) > MOST_NUMBERS:
        yield f"it has more than {MOST_NUMBERS:,} rows over all its runs"
    try:
        datetime.fromisoformat(sweep.started_at).astimezone(UTC)
    except (ValueError, OverflowError):
        yield "it does not say when it began"
    rates, floors = sweep.rates, [size.floor for size in sweep.sizes if size.floor]
    held = [value for floor in floors for value in vars(floor).values()]
    held += [rates.read_bytes_per_second, rates.flops_per_second] if rates else []
    if not all(0 <= value <= LARGEST for value in held):
        yield "a rate or a floor is no possible one"
    numbers = [sweep.max_new_tokens, sweep.runs, *sweep.batch_sizes]
    if min(numbers, default=0) < 1 or sweep.warmup < 0:
        yield "a count is below 1"
    if max(numbers) > LARGEST:
        yield "a count is no possible one"
    if sweep.rates and min(sweep.rates.read_bytes_per_second, sweep.rates.flops_per_second) <= 0:
        yield "a rate is not above 0"
    if [size.batch_size for size in sweep.sizes] != list(sweep.batch_sizes[: len(sweep.sizes)]):
        yield "its sizes are not those that it names, in order"
    for size in sweep.sizes:
        if len(size.prompt_tokens) != size.batch_size or min(size.prompt_tokens) < 1:
            yield f"batch size {size.batch_size} does not have a prompt for each row"
        for series in (size.engine, *size.baselines):
            if len(series.samples) > sweep.runs:
                yield f"batch size {size.batch_size} has more runs than were asked for"
            for sample in series.samples:
                times = [value for name, value in vars(sample).items() if name.endswith("_seconds")]
                known = [value for value in times if value is not None]
                if not all(1e-9 <= value <= 1e9 for value in known):
                    yield f"batch size {size.batch_size} has a run that took no time, or too long"
                if not 1 <= sample.generated_tokens <= LARGEST:
                    yield f"batch size {size.batch_size} has a run without tokens"

"""The record of a sweep: the same prompts at one batch size after another, timed.

Plain data, like engine.run: engine.bench measures it, the shell and the page show it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engine.errors import RecordError
from engine.run import ModelInfo, Status

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = 1
MAX_BYTES = 2 * 2**20
MOST_ROWS = 4096
"""The largest batch of a sweep."""
MOST_NUMBERS = 200_000
"""The most that a saved sweep may have of rows times runs: its report has a number for each."""
LARGEST = 1e18
"""Of bytes, operations and rates; what is larger is no measurement."""
DEFAULT_PROMPT = "Explain KV cache in one sentence."
"""That of nanoLLMServe's benchmark."""

Way = Literal["engine", "eager", "generate", "naive"]
"""How tokens were made: by this engine; by it with neither CUDA graphs nor compiled steps; by
`model.generate`; or without a KV cache."""


class Stats(NamedTuple):
    """Of the runs of one size; the median of an even number is the mean of the middle two."""

    median: float
    mean: float
    least: float
    most: float

    @property
    def spread(self) -> float:
        """From the least to the most, as a share of the median."""
        return (self.most - self.least) / self.median


def stats(values: Iterable[float | None]) -> Stats | None:
    """None where nothing was measured."""
    known = [value for value in values if value is not None]
    return Stats(median(known), mean(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class Progress:
    """What is under way: run `number` (from 1) of `of` at this batch size. `what` is "rates",
    "memory", "warm-up", or the way of a timed run; `batch_size` 0 is before the first."""

    batch_size: int
    what: str
    number: int
    of: int


@dataclass(frozen=True)
class Sample:
    """One timed run of a batch, in seconds from its start until tokens were on the host.

    `generated_tokens` is of all rows together. What a way does not tell is None: of
    `model.generate` only the whole is known. `tpot_seconds` is (t_last - t_first) / (n - 1).
    """

    elapsed_seconds: float
    generated_tokens: int
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None

    @property
    def tokens_per_second(self) -> float:
        return self.generated_tokens / self.elapsed_seconds


@dataclass(frozen=True)
class Series:
    """The timed runs of one way to generate, in the order in which they ran; warm-ups are in none.

    `peak_bytes` is the most that a run held at once beside the weights, None where it can't be
    told. `ids_equal` is whether a baseline gave the ids that the engine gave; None if not asked.
    """

    way: Way
    samples: tuple[Sample, ...] = ()
    peak_bytes: int | None = None
    ids_equal: bool | None = None

    @property
    def elapsed(self) -> Stats | None:
        return stats(sample.elapsed_seconds for sample in self.samples)

    @property
    def tokens_per_second(self) -> Stats | None:
        """Of all rows together."""
        return stats(sample.tokens_per_second for sample in self.samples)

    @property
    def prefill(self) -> Stats | None:
        return stats(sample.prefill_seconds for sample in self.samples)

    @property
    def decode(self) -> Stats | None:
        return stats(sample.decode_seconds for sample in self.samples)

    @property
    def ttft(self) -> Stats | None:
        return stats(sample.ttft_seconds for sample in self.samples)

    @property
    def tpot(self) -> Stats | None:
        return stats(sample.tpot_seconds for sample in self.samples)


@dataclass(frozen=True)
class Rates:
    """What the device can do, measured when the sweep began: bytes read from its memory, and
    operations of a large matrix product in the model's dtype (a multiply and an add are two)."""

    read_bytes_per_second: float
    flops_per_second: float
    dtype: str


@dataclass(frozen=True)
class Floor:
    """What a decode step of one batch size must do, and how long that takes at the measured rates.

    weight_bytes are read once for all rows; kv_bytes are what live tokens hold in the cache, mean
    over the decode steps. Which of the two times is larger is the floor.
    """

    weight_bytes: int
    kv_bytes: int
    flops: int
    memory_seconds: float
    compute_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> Literal["memory", "compute"]:
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"


@dataclass(frozen=True)
class Size:
    """One batch size: `prompt_tokens` of each row, what the engine did, and what it is held to.

    Run k of a baseline ran beside run k of the engine.
    """

    batch_size: int
    prompt_tokens: tuple[int, ...]
    engine: Series
    baselines: tuple[Series, ...] = ()
    floor: Floor | None = None

    @property
    def floor_fraction(self) -> float | None:
        """How much of the possible pace was reached: the floor over the median TPOT."""
        if self.floor is None or self.engine.tpot is None:
            return None
        return self.floor.seconds / self.engine.tpot.median

    def baseline(self, way: Way) -> Series | None:
        return next((series for series in self.baselines if series.way == way), None)

    def median_of_ratios(self, way: Way) -> float | None:
        """Engine time over the baseline's, pair by pair as they ran; below 1 the engine is
        faster."""
        pairs = zip(self.engine.samples, self._samples(way), strict=False)
        ratios = stats(ours.elapsed_seconds / theirs.elapsed_seconds for ours, theirs in pairs)
        return ratios.median if ratios else None

    def ratio_of_medians(self, way: Way) -> float | None:
        """Median engine time over the baseline's."""
        ours, theirs = self.engine.elapsed, stats(s.elapsed_seconds for s in self._samples(way))
        return ours.median / theirs.median if ours and theirs else None

    def _samples(self, way: Way) -> tuple[Sample, ...]:
        series = self.baseline(way)
        return series.samples if series else ()


@dataclass(frozen=True)
class Sweep:
    """A sweep so far. `device` is torch's name for it ("cpu", "cuda:0"); `sizes` are those of
    `batch_sizes` that have begun; every row generates `max_new_tokens`. `warmup` runs of the same
    shape came before the timed ones of each size and are in no figure. `decode_path` is how the
    engine's steps were run ("compiled", "eager, CUDA graphs"). `random_weights`: the model has the
    shapes of the named one and knows nothing."""

    model: ModelInfo
    device: str
    batch_sizes: tuple[int, ...]
    max_new_tokens: int
    runs: int
    warmup: int
    started_at: str
    status: Status = "running"
    error: str | None = None
    rates: Rates | None = None
    sizes: tuple[Size, ...] = ()
    chat_template: bool = False
    decode_path: str = "eager"
    random_weights: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def size(self, batch_size: int) -> Size | None:
        return next((size for size in self.sizes if size.batch_size == batch_size), None)

    def speedup(self, size: Size) -> float | None:
        """Median tokens per second over those of batch size 1; perfect scaling is the size."""
        one = self.size(1)
        if one is None or one.engine.tokens_per_second is None:
            return None
        rate = size.engine.tokens_per_second
        return rate.median / one.engine.tokens_per_second.median if rate else None

    @property
    def compute_bound_from(self) -> int | None:
        """The smallest batch size at which the arithmetic of a step takes longer than its reading,
        by the floors; None if rows bring more reading than arithmetic, or nothing is known.

        Weights are read once whatever the size; cache and arithmetic grow with it."""
        size = next((size for size in self.sizes if size.floor), None)
        if size is None or self.rates is None:
            return None
        floor, rows = size.floor, size.batch_size
        weights = floor.weight_bytes / self.rates.read_bytes_per_second
        kv_per_row = floor.kv_bytes / self.rates.read_bytes_per_second / rows
        gain_per_row = floor.compute_seconds / rows - kv_per_row
        return math.floor(weights / gain_per_row) + 1 if gain_per_row > 0 else None


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
    from pydantic import ValidationError  # only reading needs it

    size = len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    if size > MAX_BYTES:
        raise RecordError(f"The sweep is larger than {MAX_BYTES // 2**20} MiB.")
    try:
        parsed = json.loads(data, parse_constant=_refuse)
        record = parsed.get("record") if isinstance(parsed, dict) else None
        if not isinstance(record, dict):
            raise RecordError("Not a saved sweep: it has no record.")
        if record.get("schema_version") != SCHEMA_VERSION:
            raise RecordError("Not a saved sweep: it is of another version.")
        text = json.dumps(record, allow_nan=False)
        sweep = _schema().validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:80]
        raise RecordError(f"Not a saved sweep: {where}: {first['msg']}.") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"Not a saved sweep: it is not JSON (line {error.lineno}).") from error
    except RecursionError as error:
        raise RecordError("Not a saved sweep: it is nested too deeply.") from error
    except ValueError as error:
        raise RecordError(f"Not a saved sweep: {error}.") from error
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


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


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

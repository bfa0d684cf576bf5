"""The record of a sweep: the same prompts at one batch size after another, timed.

Plain data, like engine.run: engine.bench measures it, engine.sweepfile saves it, the shell and the
page show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Literal, NamedTuple

from engine.run import ModelInfo, Status

SCHEMA_VERSION = 1
MOST_ROWS = 4096
"""The largest batch of a sweep."""
DEFAULT_PROMPT = "Explain KV cache in one sentence."
"""That of nanoLLMServe's benchmark."""

Way = Literal["engine", "eager", "generate", "naive"]
"""How tokens were made: by this engine; by it without graphs, replays, laid-out weights
and compiled steps; by `model.generate`; or without a KV cache."""


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

"""The benchmark: static batches of growing size, timed beside other ways to generate the same.

for news in measure_sweep(load_model(), batch_sizes=[1, 4], prompts=["Why is the sky blue?"]):
    print(news)  # Progress, or the Sweep so far
"""

from __future__ import annotations

import gc
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import torch

from engine.baselines import Timed, run_baseline
from engine.batching import plan
from engine.errors import BatchscopeError, RequestError, RunError, first_line
from engine.free import is_out_of_memory
from engine.metrics import measure
from engine.models import LanguageModel
from engine.peak import counted_while_timed, with_peak
from engine.requests import check_batch_size, make_requests, whole_number
from engine.roofline import floor, measure_rates
from engine.run import Request, Run
from engine.static import RunStream, StaticBatchEngine
from engine.sweep import (
    DEFAULT_PROMPT,
    MOST_ROWS,
    Progress,
    Rates,
    Sample,
    Series,
    Size,
    Sweep,
    Way,
)
from engine.turns import turns_on
from engine.visitors import Flag

WAIT_SECONDS = 0.2

Found = TypeVar("Found")
Counted = Callable[[Callable[[], Timed | Run], torch.device], tuple]
"""Runs some work, once the device is this sweep's -> what it gave, and its peak of memory."""


class SweepStoppedError(Exception):
    """Stop was pressed."""


def measure_sweep(
    lm: LanguageModel,
    *,
    batch_sizes: Sequence[int] = (1, 2, 4, 8),
    prompts: Sequence[str | Sequence[int]] = (DEFAULT_PROMPT,),
    max_new_tokens: int = 32,
    runs: int = 3,
    warmup: int = 1,
    baselines: Sequence[Way] = (),
    chat_template: bool = False,
    memory: bool = True,
    rates: Rates | None = None,
    random_weights: bool = False,
    stop: Flag | None = None,
) -> Iterator[Progress | Sweep]:
    """Measure one batch size after another: what is under way, and the Sweep so far after each run.

    Greedy, every row its whole budget; where a batch has more rows than there are prompts, these
    are repeated in turn. At each size `warmup` runs of the same shape come first and count nowhere.
    Then each run of the engine has one of every baseline beside it, in turn before and after it,
    so that what disturbs the machine disturbs both. "naive" runs at batch size 1 alone. `memory`
    False leaves out the peak of memory, which on a CPU takes an untimed run of its own.

    The last Sweep is "done", "stopped" after `stop` was set, or "error" with a sentence. Raises
    RequestError at once if what is asked for can't be measured.
    """
    sizes = [check_batch_size(size) for size in dict.fromkeys(batch_sizes)]
    if not sizes:
        raise RequestError("There are no batch sizes: name at least one.")
    if max(sizes) > MOST_ROWS:
        raise RequestError(f"The batch size is {max(sizes):,}, a sweep has at most {MOST_ROWS:,}.")
    budget = _at_least(max_new_tokens, 2, "The new tokens of a benchmark")
    sweep = Sweep(
        model=lm.info,
        device=str(lm.device),
        batch_sizes=tuple(sizes),
        max_new_tokens=budget,
        runs=_at_least(runs, 1, "The number of runs"),
        warmup=_at_least(warmup, 0, "The number of warm-up runs"),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        rates=rates,
        chat_template=chat_template and lm.has_chat_template,
        random_weights=random_weights,
        versions=_versions(lm),
    )
    bench = Bench(lm, sweep, tuple(prompts), tuple(baselines), memory, stop or threading.Event())
    bench.check_prompts()
    return bench.measure()


@dataclass
class Bench:
    """A sweep under way on one model. `measure` it once."""

    lm: LanguageModel
    sweep: Sweep
    prompts: tuple[str | Sequence[int], ...]
    baselines: tuple[Way, ...]
    memory: bool
    stop: Flag
    ids: dict[Way, list[list[int]]] = field(default_factory=dict)
    """What each way generated last."""

    def __post_init__(self) -> None:
        self.engines = {"engine": self.lm}
        if "eager" in self.baselines:
            self.engines["eager"] = eager(self.lm)

    def check_prompts(self) -> None:
        """Raise RequestError for prompts that can't be run, or that are none: a benchmark of empty
        prompts gives nice numbers too."""
        longest = max(_lengths(self._requests(len(self.prompts))))
        if longest < 2:
            raise RequestError(
                "No prompt has more than 1 token: there would be no real prefill to measure."
            )

    def measure(self) -> Iterator[Progress | Sweep]:
        try:
            if self.sweep.rates is None:
                yield Progress(0, "rates", 1, 1)
                with self._device():
                    rates = _or_sentence(
                        lambda: measure_rates(self.lm.device, self.lm.model.dtype),
                        "Measuring the device",
                    )
                self.sweep = replace(self.sweep, rates=rates)
                yield self.sweep
            for batch_size in self.sweep.batch_sizes:
                yield from self._measure_size(self._requests(batch_size))
            yield self._over("done")
        except SweepStoppedError:
            yield self._over("stopped")
        except BatchscopeError as error:
            yield self._over("error", str(error))

    def _measure_size(self, requests: list[Request]) -> Iterator[Progress | Sweep]:
        rows, sweep = len(requests), self.sweep
        lengths = _lengths(requests)
        ways: list[Way] = ["engine", *self.baselines]
        if rows > 1:
            ways = [way for way in ways if way != "naive"]
        limit = floor(self.lm, sweep.rates, prompt_tokens=lengths, new_tokens=sweep.max_new_tokens)
        series = {way: Series(way) for way in ways}
        self.ids = {}

        def so_far() -> Sweep:
            ours, *others = series.values()
            size = Size(rows, lengths, ours, tuple(others), limit)
            earlier = tuple(size for size in self.sweep.sizes if size.batch_size != rows)
            self.sweep = replace(self.sweep, sizes=(*earlier, size))
            return self.sweep

        yield so_far()
        for number in range(1, sweep.warmup + 1):
            yield Progress(rows, "warm-up", number, sweep.warmup)
            for way in ways:
                self._timed(way, requests)
        if self.memory and not counted_while_timed(self.lm.device):
            for way in ways:
                yield Progress(rows, "memory", ways.index(way) + 1, len(ways))
                _, peak = self._timed(way, requests, count=True)
                series[way] = replace(series[way], peak_bytes=peak)
        for number in range(1, sweep.runs + 1):
            for way in ways if number % 2 else reversed(ways):
                yield Progress(rows, way, number, sweep.runs)
                series[way] = self._add_run(series[way], requests)
                yield so_far()
        self.sweep = replace(self.sweep, decode_path=self.lm.decode_path)
        for way in ways[1:]:
            series[way] = replace(series[way], ids_equal=self.ids[way] == self.ids["engine"])
        yield so_far()

    def _add_run(self, series: Series, requests: list[Request]) -> Series:
        count = self.memory and counted_while_timed(self.lm.device)
        sample, peak = self._timed(series.way, requests, count=count)
        known = [most for most in (series.peak_bytes, peak) if most is not None]
        samples = (*series.samples, sample)
        return replace(series, samples=samples, peak_bytes=max(known, default=None))

    def _timed(
        self, way: Way, requests: list[Request], *, count: bool = False
    ) -> tuple[Sample, int | None]:
        """One run, and its peak of memory if that is to be counted; its ids are kept. Raises
        SweepStoppedError, or RunError."""
        run = self._run_engine if way in self.engines else self._run_baseline
        timed, peak = run(way, requests, with_peak if count else _without_peak)
        self.ids[way] = timed.ids
        return timed.sample, peak

    def _run_engine(
        self, way: Way, requests: list[Request], counted: Counted
    ) -> tuple[Timed, int | None]:
        engine = StaticBatchEngine(self.engines[way], batch_size=len(requests))
        with closing(engine.stream(requests, stop=self.stop)) as stream:
            while not stream.wait_turn(WAIT_SECONDS):
                continue
            run, peak = counted(lambda: _to_the_end(stream), self.lm.device)
        if run.status != "done":
            raise SweepStoppedError
        return Timed(_sample(run), _ids(run)), peak

    def _run_baseline(
        self, way: Way, requests: list[Request], counted: Counted
    ) -> tuple[Timed, int | None]:
        prompt_ids, budget = [request.prompt for request in requests], self.sweep.max_new_tokens

        def work() -> Timed:
            return run_baseline(way, self.lm, prompt_ids, max_new_tokens=budget)

        with self._device():
            return _or_sentence(
                lambda: counted(work, self.lm.device),
                f'The baseline "{way}" at batch size {len(requests)}',
            )

    def _requests(self, rows: int) -> list[Request]:
        """The prompts in turn, as token ids, so that no way has to read texts."""
        many = min(rows, len(self.prompts))
        asked = make_requests(
            self.prompts[:many], max_new_tokens=self.sweep.max_new_tokens, ignore_eos=True, seed=0
        )
        engine = StaticBatchEngine(self.lm, batch_size=many, chat_template=self.sweep.chat_template)
        [batch] = plan(self.lm, asked, engine.settings)
        return [
            replace(asked[row % many], index=row, prompt=batch.prompt_ids[row % many])
            for row in range(rows)
        ]

    @contextmanager
    def _device(self) -> Iterator[None]:
        """The device, when it is this sweep's turn. Runs of the engine queue by themselves."""
        turn = turns_on(self.lm.device).join()
        try:
            while not turn.wait(WAIT_SECONDS):
                self._check_stop()
            self._check_stop()
            yield
        finally:
            turn.leave()

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise SweepStoppedError

    def _over(self, status: str, error: str | None = None) -> Sweep:
        return replace(self.sweep, status=status, error=error)


def eager(lm: LanguageModel) -> LanguageModel:
    """The same model, whose decode steps are run as they are: not compiled, not captured,
    with the weights as the model holds them."""
    return replace(lm, compiled=False, captures=False)


def _to_the_end(stream: RunStream) -> Run:
    for _ in stream:
        pass
    return stream.record()


def _without_peak(work: Callable[[], Found], _device: torch.device) -> tuple[Found, None]:
    return work(), None


def _sample(run: Run) -> Sample:
    """All rows of a batch run their whole budget, so one row's times are those of all."""
    figures = measure(run)
    row = figures.rows[0]
    return Sample(
        elapsed_seconds=figures.wall_seconds,
        generated_tokens=figures.generated_tokens,
        prefill_seconds=figures.prefill_seconds,
        decode_seconds=figures.decode_seconds,
        ttft_seconds=row.ttft,
        tpot_seconds=row.tpot,
    )


def _lengths(requests: list[Request]) -> tuple[int, ...]:
    return tuple(len(request.prompt) for request in requests)


def _ids(run: Run) -> list[list[int]]:
    return [list(ids) for ids in zip(*(step.tokens for step in run.steps), strict=True)]


def _or_sentence(work: Callable[[], Found], name: str) -> Found:
    """The work's result, or RunError with one sentence; no traceback keeps its tensors."""
    try:
        return work()
    except Exception as error:
        out = is_out_of_memory(error)
        cause = "out of memory" if out else f"{type(error).__name__}: {first_line(error)}"
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise RunError(f"{name} failed: {cause}.")


def _at_least(value: object, least: int, name: str) -> int:
    number = whole_number(value, name)
    if number < least:
        raise RequestError(f"{name} must be at least {least}, not {number}.")
    return number


def _versions(lm: LanguageModel) -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "torch": lm.info.torch,
        "transformers": lm.info.transformers,
    }
    return found | ({"cuda": torch.version.cuda} if lm.device.type == "cuda" else {})

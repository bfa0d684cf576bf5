"""What only a CUDA device can show: equal ids, no waiting, and how near a step is to its floor.

python -m tests.cuda --seconds 420 --out results
python -m tests.cuda --device cpu --shapes tiny --batch-size 1 2 --new-tokens 8 --no-compile

ids     tiny models of every dense family in float32: captured steps against eager ones, on random
        batches with every option, with so few places per graph that runs outgrow several
waits   a run of every kind of option, its decode steps profiled: calls that wait for the device,
        beside the one wait for the tokens; device time; memory before and after
speed   Qwen3's shapes with random weights in bfloat16, at growing batch sizes: the time per token
        and the step in the middle against the floor, beside eager steps and `model.generate`;
        then with compiled steps. Before that, what each kernel for attention takes
refused mixtures of experts in float32 and a model that reads from the device: what can't be
        captured runs eagerly, gives the same ids and says why. Last, as a capture that breaks
        leaves marks in torch before 2.12

Every line is printed as soon as it is known, and OUT/cuda.json is written anew after each, so that
a run that is cut off still tells something. Runs are dropped, then sizes, where the time is short.
The exit status is 1 if an id differs, the host waits or a part fails. torch, transformers and
psutil are all that it needs. Without CUDA, steps are recorded and repeated instead of captured
where ids are compared, nothing is profiled, and times say nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile, record_function

import engine.graphs
import engine.static_cache
from engine.bench import eager, measure_sweep
from engine.graphs import Step
from engine.models import LanguageModel, device_name, pick_device, with_compiled_steps
from engine.randomweights import SHAPES, random_lm
from engine.requests import make_requests
from engine.roofline import synchronise
from engine.run import Request
from engine.static import StaticBatchEngine
from engine.sweep import Rates, Size, Sweep, Way
from engine.sweepfile import dumps
from tests.captured import captured, record
from tests.families import (
    FAMILIES,
    LARGEST_BATCH,
    answers,
    ends_often,
    random_batches,
    random_request,
)
from tests.tiny import tiny_lm

DENSE = ("llama", "qwen3", "gpt2", "gemma3", "mistral")
MIXTURES = ("mixtral", "qwen3_moe")
READS = "reads"
"""A model that reads a number from the device in every forward."""
PLACES = 16
GENERATE_AT = (1, 8)
COMPILE_SECONDS = 100
"""What must be left for steps to be compiled: that can't be cut short."""
KERNELS = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.MATH,
)
CALLS = 50
STEP = "decode step"
WAITS = frozenset(
    {
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
        "cudaMemcpy",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
    }
)
TOKEN_WAIT = "cudaEventSynchronize"
LENGTHS = (12, 30, 40, 40)
"""New tokens of the rows that are watched: some end while the others go on."""
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "changed": {"repetition_penalty": 1.3, "min_new_tokens": 4},
    "sampled": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    "stop": {"stop": ["zq", "qz"]},
}


# What is counted


class Captures:
    """Stands before `engine.graphs.capture`: how long each capture took, and how many replays
    there were."""

    def __init__(self, capture: Callable[[Step], Step]) -> None:
        self._capture = capture
        self.seconds: list[float] = []
        self.replays = 0

    def __call__(self, step: Step) -> Step:
        started = time.perf_counter()
        replay = self._capture(step)
        self.seconds.append(time.perf_counter() - started)

        def counted() -> torch.Tensor:
            self.replays += 1
            return replay()

        return counted


@contextmanager
def counting() -> Iterator[Captures]:
    counted = Captures(engine.graphs.capture)
    with mock.patch.object(engine.graphs, "capture", counted):
        yield counted


class Call(NamedTuple):
    """A call or a span of a profile, in microseconds."""

    name: str
    start: float
    end: float


def calls_within(calls: Sequence[Call], spans: Sequence[Call]) -> Counter[str]:
    """How often each call began within one of the spans."""
    return Counter(
        call.name for call in calls if any(span.start <= call.start < span.end for span in spans)
    )


# ids


@dataclass(frozen=True)
class Ids:
    """What came out of a family's batches, by captured steps and by eager ones. `reason` is why
    steps were not captured."""

    family: str
    rows: int
    tokens: int
    differing: int
    captures: int
    replays: int
    reason: str | None
    first: str | None

    @property
    def line(self) -> str:
        how = self.reason or f"{self.captures} captures, {self.replays} replays"
        told = f"  {self.family:10} {self.rows:4} rows {self.tokens:5} tokens: "
        return f"{told}{self.differing} differ ({how})" + (f"\n  {self.first}" * bool(self.first))


def compare_ids(
    family: str, lm: LanguageModel, plain: LanguageModel, *, batches: int, seed: int = 1
) -> Ids:
    """Run random batches on both; `plain` is the reference."""
    rng = random.Random(seed)
    pool = [random_request(rng, index, options=index % 2 == 1) for index in range(batches + 16)]
    sides = ["left"] if lm.has_sliding_window else ["left", "right"]
    rows = tokens = 0
    wrong: list[str] = []
    with counting() as captures, few_places():
        for batch, side in random_batches(rng, pool, batches, sides):
            ours, theirs = (
                answers(
                    StaticBatchEngine(each, batch_size=LARGEST_BATCH, padding_side=side).run(batch)
                )
                for each in (lm, plain)
            )
            rows += len(batch)
            tokens += sum(len(answer.ids) for answer in theirs)
            wrong += [
                f"{request}: {our}, eagerly {their}"
                for request, our, their in zip(batch, ours, theirs, strict=True)
                if our != their
            ]
    return Ids(
        family,
        rows,
        tokens,
        len(wrong),
        len(captures.seconds),
        captures.replays,
        lm.graphs.reason,
        next(iter(wrong), None),
    )


@contextmanager
def few_places() -> Iterator[None]:
    """Steps are captured for so few places at a time that even short runs outgrow them."""
    with mock.patch.object(
        engine.static_cache, "round_up", lambda columns: -(-columns // PLACES) * PLACES
    ):
        yield


def both_ways(family: str, device: torch.device) -> tuple[LanguageModel, LanguageModel]:
    """A tiny model in float32 on the device: with captured steps, and with eager ones."""
    lm = ends_often(tiny_lm()) if family == READS else FAMILIES[family]()
    lm.model.to(device)
    if family == READS:
        lm.layers[0].register_forward_pre_hook(lambda _layer, given: given[0].max().item() and None)
    return (lm, eager(lm)) if device.type == "cuda" else (captured(lm), lm)


def capturing(device: torch.device) -> AbstractContextManager[object]:
    """Steps are captured, or where there is no CUDA recorded."""
    cuda = device.type == "cuda"
    return nullcontext() if cuda else mock.patch.object(engine.graphs, "capture", record)


# waits


@dataclass(frozen=True)
class Waits:
    """The decode steps of one run, those apart in which a step was captured. `calls` are those to
    the driver, of all of them together; empty where there is no profile. `left_bytes` is what the
    run left allocated, `reason` why nothing was captured."""

    options: str
    steps: int
    reason: str | None = None
    calls: dict[str, int] = field(default_factory=dict)
    wall_seconds: float = 0.0
    device_seconds: float | None = None
    left_bytes: int | None = None

    @property
    def waits(self) -> int:
        """Waits for the device that are none for tokens, or more of those than one a step."""
        more = max(self.calls.get(TOKEN_WAIT, 0) - self.steps, 0)
        return more + sum(many for name, many in self.calls.items() if name in WAITS)

    @property
    def problem(self) -> str | None:
        if self.reason:
            return f"{self.options}: {self.reason}"
        if self.waits:
            return f"{self.options}: the host waited {self.waits} times more than once a step"
        if self.device_seconds is not None and not 0 < self.device_seconds <= self.wall_seconds:
            return f"{self.options}: the device worked {self.device_seconds} s"
        if self.left_bytes:
            return f"{self.options}: {self.left_bytes} bytes were left"
        return None

    @property
    def line(self) -> str:
        each = {name: round(many / max(self.steps, 1), 2) for name, many in self.calls.items()}
        device = f", device {self.device_seconds:.3f} s" if self.device_seconds else ""
        told = f"  {self.options:8} {self.steps:3} steps, {self.wall_seconds:.3f} s{device}"
        return f"{told}, {self.waits} waits; calls per step: {each or 'not profiled'}"


def watch(lm: LanguageModel, requests: Sequence[Request], options: str) -> Waits:
    """Run the requests twice and watch the decode steps of the second time. On CUDA whatever
    makes the host wait raises, a wait for an event apart; those are counted."""
    cuda = lm.device.type == "cuda"
    runner = StaticBatchEngine(lm, batch_size=len(requests))
    runner.run(requests)
    before = torch.cuda.memory_allocated(lm.device) if cuda else None
    captured_in: list[bool] = []
    with counting() as captures, closing(runner.stream(requests)) as stream:
        next(stream)
        with waiting_raises(cuda), profiled(cuda) as profiler:
            while True:
                known = len(captures.seconds)
                with record_function(STEP):
                    if next(stream, None) is None:
                        break
                captured_in.append(len(captures.seconds) > known)
        run = stream.record()
    left = torch.cuda.memory_allocated(lm.device) - before if cuda else None
    calls, spans = calls_and_spans(profiler) if cuda else ([], [])
    replayed = [span for span, anew in zip(spans, captured_in, strict=False) if not anew]
    on_device = [step.device_seconds for step in run.steps]
    return Waits(
        options,
        captured_in.count(False),
        lm.graphs.reason,
        dict(calls_within(calls, replayed)),
        run.steps[-1].finished,
        sum(on_device) if None not in on_device else None,
        left,
    )


@contextmanager
def waiting_raises(cuda: bool) -> Iterator[None]:
    if cuda:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if cuda:
            torch.cuda.set_sync_debug_mode("default")


def profiled(cuda: bool) -> AbstractContextManager[profile | None]:
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    return profile(activities=both) if cuda else nullcontext()


def calls_and_spans(profiler: profile) -> tuple[list[Call], list[Call]]:
    """The calls to the driver, and the steps, in order."""
    on_host = [
        Call(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CPU
    ]
    calls = [call for call in on_host if call.name.startswith(("cuda", "cu"))]
    spans = sorted((call for call in on_host if call.name == STEP), key=lambda call: call.start)
    return calls, spans


def watched_requests(options: str) -> list[Request]:
    """Rows of several lengths, in one group of settings or, where they are "mixed", in several."""
    made = {
        name: make_requests(
            [[65] * 9, [66] * 5, [67] * 7, [68]],
            max_new_tokens=list(LENGTHS),
            ignore_eos=True,
            seed=3,
            **asked,
        )
        for name, asked in OPTIONS.items()
    }
    if options != "mixed":
        return list(made[options])
    return [rows[at] for at, rows in enumerate(made.values())]


# speed


class Budget:
    """Seconds to spend; a Flag that is set once they are gone."""

    def __init__(self, seconds: float) -> None:
        self._until = time.perf_counter() + seconds

    @property
    def left(self) -> float:
        return max(self._until - time.perf_counter(), 0.0)

    def set(self) -> None:
        self._until = 0.0

    def is_set(self) -> bool:
        return self.left == 0


@dataclass(frozen=True)
class Asked:
    """What every batch size is measured with."""

    prompt: tuple[int, ...]
    new_tokens: int
    runs: int


@dataclass(frozen=True)
class Measured:
    """One batch size of one shape. `step_seconds` is the decode step in the middle, in which
    nothing is captured; `capture_seconds` are those of one run."""

    shape: str
    sweep: Sweep
    step_seconds: float
    capture_seconds: tuple[float, ...]

    @property
    def size(self) -> Size:
        return self.sweep.sizes[0]

    @property
    def line(self) -> str:
        size, ours = self.size, self.size.engine
        floor, tpot = size.floor.seconds, ours.tpot.median
        beside = size.baseline("eager")
        generate = size.median_of_ratios("generate")
        return (
            f"  {self.shape:10} {size.batch_size:5} {1e3 * floor:8.3f} {1e3 * tpot:8.3f} "
            f"{floor / tpot:5.0%} {1e3 * self.step_seconds:8.3f} {floor / self.step_seconds:5.0%} "
            f"{1e3 * beside.tpot.median if beside and beside.tpot else float('nan'):8.3f} "
            f"{'-' if generate is None else f'{generate:.2f}':>8} "
            f"{ours.tokens_per_second.median:8.0f} {len(ours.samples):4} "
            f"{(ours.peak_bytes or 0) / 1e9:6.2f} {len(self.capture_seconds):2} x "
            f"{1e3 * median(self.capture_seconds or [0.0]):.0f}  {self.sweep.decode_path}"
        )


COLUMNS = (
    f"  {'shape':10} {'batch':>5} {'floor':>8} {'TPOT':>8} {'':5} {'step':>8} {'':5} {'eager':>8} "
    f"{'generate':>8} {'tok/s':>8} {'runs':>4} {'GB':>6} captures  decode path\n"
    f"  {'':10} {'':5} {'ms':>8} {'ms':>8} {'':5} {'ms':>8} {'':5} {'ms':>8} {'x time':>8}"
)


def measure_size(
    shape: str,
    lm: LanguageModel,
    rows: int,
    asked: Asked,
    *,
    baselines: Sequence[Way],
    rates: Rates | None,
    seconds: float,
    budget: Budget,
) -> Measured | None:
    """With fewer runs where its `seconds` do not suffice, but one of each way at least. None if
    the budget was gone before that. Raises RuntimeError with a sentence if it can't be measured."""
    until = time.perf_counter() + seconds
    newest: Sweep | None = None
    with closing(
        measure_sweep(
            lm,
            batch_sizes=[rows],
            prompts=[asked.prompt],
            max_new_tokens=asked.new_tokens,
            runs=asked.runs,
            baselines=baselines,
            rates=rates,
            memory=lm.device.type == "cuda",
            random_weights=True,
            stop=budget,
        )
    ) as news:
        for newest in (one for one in news if isinstance(one, Sweep)):
            if time.perf_counter() > until and measured_once(newest):
                break
    if newest.error:
        raise RuntimeError(newest.error)
    if not measured_once(newest):
        return None
    requests = make_requests(
        [list(asked.prompt)] * rows, max_new_tokens=asked.new_tokens, ignore_eos=True
    )
    with counting() as captures:
        steps = StaticBatchEngine(lm, batch_size=rows).run(requests).steps
    return Measured(
        shape,
        replace(newest, status="done", decode_path=lm.decode_path),
        median(step.seconds for step in steps[1:]),
        tuple(captures.seconds),
    )


def measured_once(sweep: Sweep) -> bool:
    return bool(sweep.sizes) and all(
        series.samples for series in (sweep.sizes[0].engine, *sweep.sizes[0].baselines)
    )


def make_model(shape: str, device: torch.device) -> LanguageModel:
    if shape == "tiny":
        lm = tiny_lm("qwen3")
        lm.model.to(device)
        return lm
    return random_lm(shape, device=str(device), dtype="bfloat16")


@dataclass(frozen=True)
class Attention:
    """The attention of a decode step with a mask on one kernel, in microseconds: its first call, in
    which a kernel may be built for these shapes, and one of many, as Python launches them. `packed`
    is with heads that share keys in one, otherwise keys are there for every head, as transformers
    before 5.24 repeats them. `chosen` is what torch takes by itself."""

    kernel: str
    rows: int
    packed: bool
    chosen: bool
    first: float
    each: float

    @property
    def line(self) -> str:
        how = "packed" if self.packed else "repeated"
        told = f"  {self.kernel:20} {self.rows:3} rows, {how:8}: first {self.first:9.1f} us, "
        return f"{told}each {self.each:7.1f} us" + (" (chosen)" if self.chosen else "")


def attention_times(lm: LanguageModel, rows: int, places: int) -> Iterator[Attention]:
    """On every kernel that takes such shapes."""
    config = lm.model.config
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    made = {"device": lm.device, "dtype": lm.model.dtype}
    mask = torch.zeros(rows, 1, 1, places, **made)
    for groups, queries in ((heads, 1), (shared, heads // shared)):
        query = torch.zeros(rows, groups, queries, config.head_dim, **made)
        keys = torch.zeros(rows, groups, places, config.head_dim, **made)
        chosen = SDPBackend(torch._fused_sdp_choice(query, keys, keys, mask))
        attend = partial(scaled_dot_product_attention, query, keys, keys, mask)
        for kernel in KERNELS:
            if found := first_and_each(attend, kernel, lm.device):
                yield Attention(kernel.name, rows, groups < heads, kernel == chosen, *found)


def first_and_each(
    attend: Callable[[], object], kernel: SDPBackend, device: torch.device
) -> tuple[float, float] | None:
    """Microseconds; None if the kernel takes no such shapes."""
    try:
        with sdpa_kernel(kernel), torch.inference_mode():
            return 1e6 * timed(attend, 1, device), 1e6 * timed(attend, CALLS, device)
    except RuntimeError:
        return None


def timed(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Seconds of one of so many calls, until the device is done."""
    synchronise(device)
    started = time.perf_counter()
    for _ in range(times):
        work()
    synchronise(device)
    return (time.perf_counter() - started) / times


# The whole


@dataclass
class Report:
    """Lines as they come, and all that is known so far as JSON."""

    out: Path | None
    found: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def tell(self, line: str, **found: Any) -> None:
        print(line, flush=True)
        for part, value in found.items():
            self.found.setdefault(part, []).append(value)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.found | {"problems": self.problems}, indent=1)
            (self.out / "cuda.json").write_text(text + "\n", encoding="utf-8")

    def problem(self, told: str | None) -> None:
        if told:
            self.problems.append(told)
            self.tell(f"PROBLEM {told}")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that fails is a problem, and the others go on."""
        self.tell(f"{name} ({time.strftime('%H:%M:%S')})")
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.problem(f"{name} failed: {type(error).__name__}: {error}")


def show_ids(report: Report, families: Sequence[str], device: torch.device, batches: int) -> None:
    for family in families:
        with report.part(f"ids of {family}"):
            lm, plain = both_ways(family, device)
            found = compare_ids(family, lm, plain, batches=batches)
            report.tell(found.line, ids=asdict(found))
            if found.differing:
                report.problem(f"{family}: {found.differing} rows differ")
            if family in DENSE and not found.replays:
                report.problem(f"{family}: no step was captured")
            if family == READS and not found.reason:
                report.problem("a model that reads from the device was captured")


def show_waits(report: Report, device: torch.device) -> None:
    lm, _ = both_ways("llama", device)
    for options in [*OPTIONS, "mixed"]:
        with report.part(f"waits: {options}"):
            found = watch(lm, watched_requests(options), options)
            report.tell(found.line, waits=asdict(found))
            report.problem(found.problem)


class Speed:
    """Measures one size after another, and tells each."""

    def __init__(self, report: Report, options: argparse.Namespace, budget: Budget) -> None:
        self._report, self._options, self._budget = report, options, budget
        prompt = tuple(7 * at % 251 for at in range(options.prompt_tokens))
        self._asked = Asked(prompt, options.new_tokens, options.runs)
        self._rates: Rates | None = None

    def show(self) -> None:
        """Every size has an equal part of the time; of what is left then, compiled ones."""
        shapes, sizes = self._options.shapes, len(self._options.batch_size)
        compiles = not self._options.no_compile
        for number, shape in enumerate(shapes):
            later = sizes * (len(shapes) - number - 1 + compiles)
            self._on(shape, partial(self._show_sizes, shape, later=later))
        for shape in shapes if compiles else []:
            if self._budget.left < COMPILE_SECONDS:
                self._leave_out(f"{shape} compiled", None)
            else:
                self._on(shape, partial(self._show_compiled, shape))

    def _show_sizes(self, shape: str, lm: LanguageModel, *, later: int) -> None:
        places = self._options.prompt_tokens + self._options.new_tokens
        with self._report.part("attention"):
            for rows in GENERATE_AT:
                for found in attention_times(lm, rows, places):
                    self._report.tell(found.line, attention=asdict(found))
        sizes = self._options.batch_size
        for at, rows in enumerate(sizes):
            beside: list[Way] = ["eager", "generate"] if rows in GENERATE_AT else ["eager"]
            self._measure(shape, lm, rows, baselines=beside, parts=len(sizes) - at + later)

    def _show_compiled(self, shape: str, lm: LanguageModel) -> None:
        started = time.perf_counter()
        quick = with_compiled_steps(lm)
        self._report.tell(f"  compiled in {time.perf_counter() - started:.0f} s")
        sizes = self._options.batch_size
        for at, rows in enumerate(sizes):
            self._measure(f"{shape} c", quick, rows, baselines=[], parts=len(sizes) - at)

    def _on(self, shape: str, show: Callable[[LanguageModel], None]) -> None:
        """On a model that is gone afterwards."""
        device = self._options.device
        with self._report.part(f"speed of {shape}"):
            self._report.tell(f"  {self._budget.left:.0f} s left\n{COLUMNS}")
            show(make_model(shape, device))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    def _measure(
        self, shape: str, lm: LanguageModel, rows: int, *, baselines: Sequence[Way], parts: int
    ) -> None:
        """Take one of so many parts of the time that is left."""
        if self._budget.is_set():
            self._leave_out(shape, rows)
            return
        with self._report.part(f"{shape} at batch size {rows}"):
            found = measure_size(
                shape,
                lm,
                rows,
                self._asked,
                baselines=baselines,
                rates=self._rates,
                seconds=self._budget.left / parts,
                budget=self._budget,
            )
            if found is None:
                self._leave_out(shape, rows)
                return
            self._rates = found.sweep.rates
            measured = {
                "shape": shape,
                "step_seconds": found.step_seconds,
                "capture_seconds": found.capture_seconds,
                "sweep": json.loads(dumps(found.sweep)),
            }
            self._report.tell(found.line, speed=measured)

    def _leave_out(self, shape: str, rows: int | None) -> None:
        self._report.tell(f"  {shape} {rows or ''}: left out, no time", left_out=[shape, rows])


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    budget, device, batches = Budget(options.seconds), options.device, options.batches
    torch.backends.cuda.matmul.allow_tf32 = False
    report = Report(options.out)
    about = {
        "device": device_name(device),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    report.tell(" ".join(about.values()), about=about)
    with capturing(device):
        show_ids(report, DENSE, device, batches)
        show_waits(report, device)
    Speed(report, options, budget).show()
    with capturing(device):
        show_ids(report, [*MIXTURES, READS], device, max(batches // 4, 1))
    report.tell("\n".join([f"{len(report.problems)} problems", *report.problems]))
    return 1 if report.problems else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cuda", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--device", default="cuda", help="cuda (default), or cpu to try the script")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all (%(default)s)")
    parser.add_argument("--out", type=Path, help="a folder for cuda.json")
    parser.add_argument(
        "--shapes",
        nargs="*",
        default=["qwen3-8b", "qwen3-0.6b"],
        choices=[*SHAPES, "tiny"],
        help="(qwen3-8b qwen3-0.6b)",
    )
    parser.add_argument("--batch-size", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--prompt-tokens", type=int, default=128, help="(%(default)s)")
    parser.add_argument("--new-tokens", type=int, default=128, help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each size, at most (%(default)s)")
    parser.add_argument("--batches", type=int, default=16, help="per family (%(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="leave out compiled steps")
    options = parser.parse_args(arguments)
    options.device = pick_device(options.device)
    return options


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    sys.exit(main())

"""Runs and sweeps as people read them: numbers with units, percents with fractions, sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from engine.metrics import Figures, Row, Spread, Waste, padding_waste
from engine.run import Batch, KVBytes, ModelInfo, Run
from engine.sweep import Progress, Way


def percent(waste: Waste, digits: int = 0) -> str:
    """ "46 %"; "n/a" where there are no slots."""
    # Multiplied before it is divided: 23 of 80 is 28.75 and not a hair below.
    return f"{100 * waste.wasted / waste.slots:.{digits}f} %" if waste.slots else "n/a"


def fraction(waste: Waste, what: str) -> str:
    """ "55 of 120 prompt slots"."""
    return f"{waste.wasted:,} of {waste.slots:,} {what}"


def seconds(value: float | None) -> str:
    """ "7.3 ms", "118 ms" below a second, "2.1 s" from there; "n/a" for None."""
    if value is None:
        return "n/a"
    digits = 1 if 0.00005 <= value < 0.00995 else 0
    return f"{1000 * value:.{digits}f} ms" if value < 0.9995 else f"{value:.1f} s"


def shares(amounts: Sequence[float], units: int) -> list[int]:
    """So many units, handed out whole in proportion to the amounts (largest remainder), so that
    what is shown of them adds up."""
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    exact = [units * amount / total for amount in amounts]
    whole = [int(share) for share in exact]
    if left := units - sum(whole):
        by_rest = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
        for place in by_rest[:left]:
            whole[place] += 1
    return whole


def rate(value: float | None) -> str:
    """Tokens per second, without the unit."""
    if value is None:
        return "n/a"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def byte_scale(count: int) -> tuple[float, str]:
    """The decimal unit to show so many bytes in, as (bytes per unit, name)."""
    scales = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((scale for scale in scales if count >= scale[0]), (1, "B"))


def size(count: int) -> str:
    """ "4.1 MB"."""
    scale, unit = byte_scale(count)
    return f"{count / scale:.1f} {unit}" if scale > 1 else f"{count} B"


class Cache(NamedTuple):
    """What a cache holds, as it is shown: all in one unit, and the parts add up."""

    parts: dict[str, str]
    total: str
    unit: str


@lru_cache(maxsize=1)  # a moment of a run tells it twice
def cache(held: KVBytes) -> Cache:
    """Cache({"live": "1.7", "padding": "1.2", "ended": "0.0"}, "2.9", "MB")."""
    scale, unit = byte_scale(held.total)
    digits = 1 if scale > 1 else 0
    units = round(10**digits * held.total / scale)
    *parts, total = [
        f"{count / 10**digits:.{digits}f}"
        for count in (*shares([held.live, held.padding, held.dead], units), units)
    ]
    return Cache(dict(zip(("live", "padding", "ended"), parts, strict=True)), total, unit)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """ "1 row", "2 rows"; `nouns` where the plural is not the noun and an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def rounded(count: int) -> str:
    """ "999", "1.0k", "1.5M": a count where there is little room."""
    if count < 1000:
        return str(count)
    return f"{count / 1e6:.1f}M" if count >= 999_950 else f"{count / 1e3:.1f}k"


def listing(values: Iterable[object]) -> str:
    """ "10, 30 and 5"."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


@lru_cache
def date(moment: str) -> str:
    """ "29 Nov 2026", from an ISO date and time."""
    day = datetime.fromisoformat(moment)
    return f"{day.day} {day:%b %Y}"


def prompt_text(prompt: str | tuple[int, ...]) -> str:
    """A prompt as text; one that was given as token ids is its ids."""
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def caption(model: ModelInfo) -> str:
    """What ran, on one line: "Qwen/Qwen3-0.6B · bfloat16 · CPU, 8 threads"."""
    threads = f", {plural(model.threads, 'thread')}" if model.device == "CPU" else ""
    return f"{model.name} · {model.dtype} · {model.device}{threads}"


WAYS: dict[Way, str] = {
    "engine": "the engine",
    "eager": "eager steps (neither captured nor compiled)",
    "generate": "model.generate",
    "naive": "no KV cache",
}
"""What the ways to make tokens are called."""


def under_way(progress: Progress | None) -> str:
    """ "Batch size 8: run 2 of 3"."""
    if progress is None:
        return "Beginning"
    if not progress.batch_size:
        return "Measuring what the device can do"
    count = f"{progress.number} of {progress.of}"
    told = {
        "memory": "measuring its memory",
        "warm-up": f"warm-up {count}, not counted",
        "engine": f"run {count}",
    }
    what = told.get(progress.what) or f"{WAYS[progress.what]}, run {count}"
    return f"Batch size {progress.batch_size}: {what}"


def batching(run: Run) -> str:
    """How many rows a forward had at most."""
    return "one by one" if run.settings.engine == "serial" else f"batch of {run.slots}"


def how_and_when(run: Run) -> list[str]:
    """["batch of 4", "1 Jan 2025"]."""
    return [batching(run), date(run.started_at)]


class ColumnNames(NamedTuple):
    """What stands under the columns of a batch, each from long to short; {} is their number."""

    prompt: tuple[str, ...]
    new: tuple[str, ...]


def column_names(run: Run, batch: Batch) -> ColumnNames:
    """Of one batch the kinds of its columns; of several, under the prompts, who sits there."""
    if len(run.batches) == 1:
        prompt = ("{} prompt tokens, all in one prefill forward", "{} prompt tokens", "{} tokens")
    else:
        name = f"batch {batch.index + 1}"
        first, last = batch.requests[0] + 1, batch.requests[-1] + 1
        members = f"request {first}" if first == last else f"requests {first}–{last}"
        prompt = (f"{name}: {members}", name)
    return ColumnNames(prompt, ("{} new tokens, one forward each", "{} new tokens"))


class Part(NamedTuple):
    """A part of the wall time, as it is shown."""

    name: str
    seconds: str
    percent: str


def wall_time(figures: Figures) -> list[Part]:
    """What the wall time went to, to the millisecond and to a tenth of a percent; as they are
    shown, the parts add up. Before the first token there are none."""
    parts = {
        "prefill": figures.prefill_seconds,
        "decode": figures.decode_seconds,
        "between forwards": figures.between_seconds,
    }
    if not figures.wall_seconds:
        return []
    milliseconds = shares([*parts.values()], round(1000 * figures.wall_seconds))
    tenths = shares([*parts.values()], 1000)
    return [
        Part(name, _milliseconds(count), f"{tenth / 10:.1f} %")
        for name, count, tenth in zip(parts, milliseconds, tenths, strict=True)
    ]


def sum_of_seconds(parts: Sequence[float]) -> list[str]:
    """The parts and then their sum, to the millisecond; as they are shown, the parts add up."""
    total = round(1000 * sum(parts))
    return [_milliseconds(count) for count in (*shares(parts, total), total)]


def exact_seconds(value: float) -> str:
    """ "1.503 s"."""
    return _milliseconds(round(1000 * value))


def _milliseconds(count: int) -> str:
    return f"{count / 1000:,.3f} s"


def time_split(figures: Figures) -> str:
    """ "2.003 s: prefill 0.502 s (25.1 %), decode ...": where the wall time went, in one line."""
    parts = [f"{part.name} {part.seconds} ({part.percent})" for part in wall_time(figures)]
    if not parts:
        return "n/a"
    told = f"{exact_seconds(figures.wall_seconds)}: {', '.join(parts)}"
    if figures.device_seconds is not None:
        told += f"; device time {exact_seconds(figures.device_seconds)}"
    if queued := in_line(figures):
        told += f"; {queued} in line before it"
    return told


def in_line(figures: Figures) -> str:
    """How long the run stood in line; "" where that was no time, or where nobody knows."""
    queued = round(1000 * figures.queued_seconds)
    return _milliseconds(queued) if queued else ""


def step_times(figures: Figures) -> str:
    """ "median 41 ms, p90 44 ms, longest 61 ms (nearest rank of 31 steps)", of the decode steps;
    p99 in the place of the longest where it is another (`has_p99`)."""
    steps = figures.decode_steps
    if not steps.count:
        return "n/a"
    tail = f"p99 {seconds(steps.p99)}" if has_p99(steps) else f"longest {seconds(steps.largest)}"
    return (
        f"median {seconds(steps.median)}, p90 {seconds(steps.p90)}, {tail} "
        f"(nearest rank of {plural(steps.count, 'step')})"
    )


def has_p99(spread: Spread) -> bool:
    """Whether p99 is to be told: of fewer than 100 values, it is the longest."""
    return spread.count >= 100


def sentence(run: Run, figures: Figures) -> str:
    """What there is to say about the run at the moment of the figures."""
    return so_far(run, figures) if figures.status == "running" else summary(run, figures)


def so_far(run: Run, figures: Figures) -> str:
    """One sentence on what the batch under way shows at the moment of the figures."""
    step = figures.newest
    if step is None:
        return ""
    seated = [figures.rows[request] for request in run.batches[step.batch].requests]
    ended = [row for row in seated if row.end is not None]
    if ended and len(ended) < len(seated):
        slots = "its slot is" if len(ended) == 1 else "their slots are"
        return f"{_who_ended(ended, len(seated))}, but {slots} computed until the last row ends."
    return _prefill_sentence(run, step.batch) if step.forward == 1 else ""


def summary(run: Run, figures: Figures) -> str:
    """One sentence on what happened, from the record alone."""
    tokens = plural(figures.generated_tokens, "token")
    took = seconds(figures.wall_seconds)
    told = f"{plural(len(figures.rows), 'request')}, {tokens} in {took}."
    if figures.status == "stopped":
        told = f"Stopped: {told}"
    if figures.status == "error":
        told = f"{run.error} Until then: {told}"
    return " ".join([told, _wastes(figures)]).strip()


def _who_ended(ended: list[Row], seated: int) -> str:
    if len(ended) > 3:
        return f"{len(ended)} of {seated} requests have ended"
    first, *others = sorted(ended, key=lambda row: row.generated)
    told = [f"Request {first.request + 1} ended at token {first.generated}"]
    return listing([*told, *(f"{row.request + 1} at {row.generated}" for row in others)])


def _prefill_sentence(run: Run, batch: int) -> str:
    lengths = run.batches[batch].prompt_lengths
    waste = padding_waste([lengths])
    return (
        f"One forward has read all {plural(len(lengths), 'prompt')}: "
        f"{fraction(waste, 'prompt slots')} were padding ({percent(waste)})."
    )


def _wastes(figures: Figures) -> str:
    if not figures.padding.slots:
        return ""
    padding = (
        f"{fraction(figures.padding, 'prompt slots')} were padding ({percent(figures.padding)})"
    )
    if not figures.idle.slots:
        return f"{padding}; nothing was decoded after the prefill."
    return f"{padding}, {fraction(figures.idle, 'decode slots')} idle ({percent(figures.idle)})."

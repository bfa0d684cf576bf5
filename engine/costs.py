"""What a forward costs in seconds, fitted to the steps of recorded runs; schedules at that price.

    a decode step of B rows = step(B) + column * cached columns that its rows attend to
    a prefill               = prefill + prompt_token * its tokens, pads included
    both in one forward     = max(prefill, step(B)) + prompt_token * tokens + column * columns

step(B) has a value for each number of rows that was measured, which needs no assumption about how
rows add up, and is a line between two of them. The forward that reads the prompts of newcomers
while others decode is in no static run: that its fixed part is paid once, is assumed.

Seconds of a step last from the end of the step before, so they add up to the wall time. The fit is
of relative errors, by least squares with Huber's weights, since a few steps take much longer
because the machine did something else (P. J. Huber, Robust Estimation of a Location Parameter,
1964), and no price is below 0. What the runs can't tell is assumed, and said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from engine.errors import RequestError
from engine.lanes import Lane, LaneFigures, spans_of
from engine.metrics import percentile, spread
from engine.run import ModelInfo, Run
from engine.schedules import Schedule, Stretch
from engine.sweep import Sweep

TELLING = 3.0
"""So many standard errors from 0 the price of a column must be, or there is none: it is taken to
contexts much longer than those that were measured."""
SPREAD = 1.5
"""So many times the smallest prefill the largest must be to tell its tokens from its fixed part."""
LARGEST = 1e9
"""Seconds; what is more is no price."""
HUBER = 1.345
"""In units of the noise: up to there residuals count in full. Huber's for 95 % efficiency."""


class FitError(NamedTuple):
    """Relative errors on what was fitted: of a step, |computed - measured| / measured; of the wall
    time of the run for which it is largest, with its sign."""

    steps: int
    median: float
    p90: float
    wall: float


@dataclass(frozen=True)
class CostModel:
    """The prices in seconds, and how well they fit.

    `steps` are (rows, seconds), in order of rows. `assumed` says in sentences what the runs could
    not tell. `column_bytes` is what a column of one row holds in the KV cache; None if that
    varies, as it does with sliding windows.
    """

    steps: tuple[tuple[int, float], ...]
    prefill: float
    prompt_token: float
    column: float
    error: FitError
    assumed: tuple[str, ...] = ()
    column_bytes: int | None = None

    def __post_init__(self) -> None:
        """Prices may come from elsewhere; raises ValueError where they are none."""
        rows = [rows for rows, _ in self.steps]
        if not rows or rows[0] < 1 or any(a >= b for a, b in pairwise(rows)):
            raise ValueError("Steps need a price for each number of rows, in order.")
        prices = [*(price for _, price in self.steps), self.prefill, self.prompt_token, self.column]
        if not all(0 <= price <= LARGEST for price in prices):
            raise ValueError(f"A price must be from 0 to {LARGEST:g} s.")

    def step(self, rows: int) -> float:
        """Seconds of a decode step of so many rows, beside what they attend to.

        Outside of what was measured a row is taken to cost what a prompt token does, but a step of
        fewer rows no less than its share.
        """
        at = bisect_left(self.steps, (rows,))  # the first that is of as many rows or more
        if at == len(self.steps):
            most, largest = self.steps[-1]
            return largest + (rows - most) * self.prompt_token
        more, larger = self.steps[at]
        if rows == more:
            return larger
        if at == 0:
            return max(larger - (more - rows) * self.prompt_token, larger * rows / more)
        fewer, smaller = self.steps[at - 1]
        return smaller + (larger - smaller) * (rows - fewer) / (more - fewer)

    def seconds(self, stretch: Stretch) -> float:
        """Of all the forwards of a stretch together, columns by the sum of an arithmetic series."""
        fixed = self.step(stretch.decoding) if stretch.decoding else 0.0
        if stretch.prompt_tokens:
            fixed = max(self.prefill, fixed)
        return (
            stretch.steps * fixed
            + stretch.prompt_tokens * self.prompt_token
            + _columns(stretch) * self.column
        )

    @property
    def formula(self) -> str:
        """The prices in words."""
        steps = ", ".join(f"{_rows(rows)} {_duration(price)}" for rows, price in self.steps)
        column = f", and {_duration(self.column)} for each cached column that its rows attend to"
        return (
            f"A decode step of {steps}{column if self.column else ''}; a prefill "
            f"{_duration(self.prefill)}, and {_duration(self.prompt_token)} for each of its tokens."
        )

    @property
    def words(self) -> str:
        """How far off the fit is."""
        error = self.error
        side = "short" if error.wall < 0 else "long"
        return (
            f"Seconds are computed from {error.steps:,} measured steps. On these they are off by "
            f"{error.median:.1%} (median; 9 of 10 steps by at most {error.p90:.1%}), and the "
            f"wall time comes out {abs(error.wall):.1%} too {side}."
        )


def fit(runs: Sequence[Run], sweep: Sweep | None = None) -> CostModel:
    """Prices from the steps of static and serial runs, and from a sweep of the same model on the
    same device, or from a sweep alone; continuous runs have forwards of another engine and are left
    out.

    Raises RequestError where no decode step or no prefill was measured, or what was measured does
    not belong together.
    """
    own = [run for run in runs if run.settings.engine in ("static", "serial") and run.steps]
    if len({_machine(each.model) for each in [*own, *filter(None, [sweep])]}) > 1:
        raise RequestError(
            "The runs are of different models or devices: their seconds don't belong together."
        )
    timings = [list(_timings(run)) for run in own]
    measured = [timing for run in timings for timing in run]
    measured += _timings_of_sweep(sweep) if sweep else []
    if not any(timing.stretch.decoding for timing in measured):
        raise RequestError("No decode step was measured, so other schedules can't be priced.")
    if all(timing.stretch.decoding for timing in measured):
        raise RequestError("No prefill was measured, so other schedules can't be priced.")
    timings = timings or [measured]
    prices = _fitted(measured)
    off = [prices.seconds(timing.stretch) / timing.seconds - 1 for timing in measured]
    error = FitError(
        steps=sum(timing.stretch.steps for timing in measured),
        median=median(map(abs, off)),
        p90=percentile(map(abs, off), 90),
        wall=max((_off(run, prices) for run in timings), key=abs),
    )
    column_bytes = _column_bytes(zip(own, timings, strict=True)) if own else None
    return replace(prices, error=error, column_bytes=column_bytes)


def priced(schedule: Schedule, costs: CostModel) -> Lane:
    """The lane of a computed schedule, in seconds by the cost model; its error in words says what
    of it was not measured."""
    steps = accumulate((stretch.steps for stretch in schedule.stretches), initial=0)
    seconds = accumulate(map(costs.seconds, schedule.stretches), initial=0.0)
    at = dict(zip(steps, seconds, strict=True))
    wall = at[schedule.steps]
    held = costs.column_bytes
    return Lane(
        name=schedule.name,
        computed=True,
        slots=schedule.slots,
        spans=tuple(
            span
            for stay in schedule.stays
            for span in spans_of(
                stay.slot,
                stay.request,
                (at[stay.start], at[stay.start + 1], at[stay.end], at[stay.left]),
            )
        ),
        figures=LaneFigures(
            wall_seconds=wall,
            forwards=schedule.steps,
            generated_tokens=schedule.generated,
            output_tokens_per_second=schedule.generated / wall if wall > 0 else None,
            first_token=spread(sorted(at[stay.start + 1] for stay in schedule.stays)),
            latency=spread(sorted(at[stay.end] for stay in schedule.stays)),
            padding=schedule.padding,
            idle=schedule.idle,
            peak_kv_bytes=None if held is None else held * schedule.peak_columns,
        ),
        error=" ".join([costs.words, *costs.assumed, *_unmeasured(schedule, costs)]),
    )


def _unmeasured(schedule: Schedule, costs: CostModel) -> Iterator[str]:
    """What of a schedule's forwards no fitted step was like, in sentences."""
    measured = [rows for rows, _ in costs.steps]
    used = {stretch.decoding for stretch in schedule.stretches} - {0, *measured}
    between = {rows for rows in used if measured[0] < rows < measured[-1]}
    if between:
        yield f"Steps of {_some(between)} are interpolated."
    if outside := used - between:
        yield (
            f"Steps of {_some(outside)} were not measured: a row is assumed to cost what a prompt "
            f"token does, {_duration(costs.prompt_token)}."
        )
    if any(stretch.prompt_tokens and stretch.decoding for stretch in schedule.stretches):
        yield (
            "A forward that reads prompts while others decode is assumed to cost what this "
            "engine's forwards do, the fixed part once; another engine's may cost more."
        )


class _Timing(NamedTuple):
    stretch: Stretch
    seconds: float


def _timings(run: Run) -> Iterator[_Timing]:
    """Every step of a run as a stretch of one forward. Idle rows are in the forward like others."""
    widths = [batch.padded_length for batch in run.batches]
    before = 0.0
    for step in run.steps:
        rows = len(step.tokens)
        columns = rows * (widths[step.batch] + step.forward - 1)
        prefill = step.phase == "prefill"
        yield _Timing(
            Stretch(1, columns, 0, 0) if prefill else Stretch(1, 0, rows, columns),
            max(step.finished - before, 1e-9),
        )
        before = step.finished


def _timings_of_sweep(sweep: Sweep) -> Iterator[_Timing]:
    """Two of each timed run: its prefill, and its decode steps together."""
    for size in sweep.sizes:
        rows, width = size.batch_size, max(size.prompt_tokens)
        for sample in size.engine.samples:
            later = sample.generated_tokens // rows - 1
            if sample.prefill_seconds:
                yield _Timing(Stretch(1, rows * width, 0, 0), sample.prefill_seconds)
            if sample.decode_seconds and later > 0:
                yield _Timing(Stretch(later, 0, rows, rows * (width + 1)), sample.decode_seconds)


def _columns(stretch: Stretch) -> int:
    """Cached columns that the forwards of a stretch attend to, all together."""
    later = stretch.steps * (stretch.steps - 1) // 2
    return stretch.steps * stretch.columns + later * stretch.decoding


def _fitted(measured: Sequence[_Timing]) -> CostModel:
    """The prices; how good they are, and what a column holds, is still to be told.

    The unknowns are the steps, in order of rows, the fixed part of a prefill, a prompt token, and a
    column. Where all prefills are of about the same size, their fixed part is taken to be that of a
    step without its rows, and is no unknown. Nor is a column where for each number of rows the
    cache held as much, as in a sweep.
    """
    stretches = [timing.stretch for timing in measured]
    sizes = sorted({stretch.decoding for stretch in stretches if stretch.decoding})
    prefills = [stretch.prompt_tokens for stretch in stretches if stretch.prompt_tokens]
    told = max(prefills) >= SPREAD * min(prefills)
    held = {(s.decoding, _columns(s) / s.steps) for s in stretches if s.decoding}
    varied = len(held) > len(sizes)
    amounts = np.zeros((len(measured), len(sizes) + 3))
    for row, stretch in zip(amounts, stretches, strict=True):
        if stretch.decoding:
            row[sizes.index(stretch.decoding)] = stretch.steps
        elif told:
            row[-3:-1] = stretch.steps, stretch.prompt_tokens
        else:
            row[0], row[-2] = stretch.steps, max(stretch.prompt_tokens - sizes[0], 0)
        row[-1] = _columns(stretch) if varied else 0
    seconds = np.array([timing.seconds for timing in measured])
    repeated = np.array([stretch.steps for stretch in stretches])
    found, deviation = _least_relative_errors(amounts, seconds, repeated)
    if found[-1] < TELLING * deviation:
        amounts[:, -1] = 0
        found, _ = _least_relative_errors(amounts, seconds, repeated)
    *steps, prefill, prompt_token, column = found.tolist()
    assumed = []
    if not told:
        prefill = max(steps[0] - sizes[0] * prompt_token, 0.0)
        assumed.append(
            "All prefills were of about the same size: the fixed part of one is assumed to be that "
            "of a decode step, and what is left is the price of its tokens, which no other step "
            "checks."
        )
    if not varied:
        assumed.append(
            "For each number of rows the cache held the same in all runs: what that costs is in "
            "the price of a step, and not known apart."
        )
    elif not column:
        assumed.append("How much the cache held made no difference that stood out from the noise.")
    if np.count_nonzero(amounts.any(axis=0)) >= len(measured):
        assumed.append("There are no more steps than prices, so their error tells nothing.")
    return CostModel(
        tuple(zip(sizes, steps, strict=True)),
        prefill,
        prompt_token,
        column,
        FitError(0, 0.0, 0.0, 0.0),
        tuple(assumed),
    )


def _least_relative_errors(
    amounts: np.ndarray, seconds: np.ndarray, repeated: np.ndarray
) -> tuple[np.ndarray, float]:
    """x >= 0 with amounts @ x about `seconds`, (n, k) and (n,), and the standard error of the last
    x; each row counts `repeated` times."""
    relative = amounts / seconds[:, None]
    weights = every = np.sqrt(repeated)
    for _ in range(20):
        found = _non_negative(relative * weights[:, None], weights)
        off = np.abs(relative @ found - 1) * every
        noise = max(1.4826 * float(np.median(off)), 1e-9)  # of a normal distribution, its sigma
        weights = every * np.sqrt(np.minimum(1, HUBER * noise / np.maximum(off, 1e-12)))
    weighted = relative * weights[:, None]
    others, last = weighted[:, :-1][:, found[:-1] > 0], weighted[:, -1]
    own = last - others @ np.linalg.lstsq(others, last, rcond=None)[0]  # what only it explains
    return found, noise / max(float(np.linalg.norm(own)), 1e-12)


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The x >= 0 of the least |matrix @ x - target| (C. L. Lawson and R. J. Hanson, Solving Least
    Squares Problems, 1974, chapter 23)."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1
    gram, right = matrix.T @ matrix / np.outer(scale, scale), matrix.T @ target / scale
    found, free = np.zeros(len(scale)), np.zeros(len(scale), dtype=bool)
    for _ in range(3 * len(scale)):
        gain = np.where(free, -np.inf, right - gram @ found)
        if gain.max() <= 1e-9 * np.linalg.norm(target):
            break
        free[gain.argmax()] = True
        while True:
            aim = np.zeros(len(scale))
            aim[free] = np.linalg.lstsq(gram[np.ix_(free, free)], right[free], rcond=None)[0]
            below = free & (aim <= 0)
            if not below.any():
                break
            found += (found[below] / (found[below] - aim[below])).min() * (aim - found)
            free &= found > 1e-15
            found[~free] = 0
        found = aim
    return found / scale


def _off(timings: Sequence[_Timing], costs: CostModel) -> float:
    """By how much the computed seconds of these together are too long, as a share of the measured
    ones."""
    computed = sum(costs.seconds(timing.stretch) for timing in timings)
    return computed / sum(timing.seconds for timing in timings) - 1


def _column_bytes(timed: Iterable[tuple[Run, Sequence[_Timing]]]) -> int | None:
    """What a column of a row holds, if it is the same in all steps of these runs."""
    (held, rest), *others = {
        divmod(step.kv_bytes.total, timing.stretch.prompt_tokens + timing.stretch.columns)
        for run, timings in timed
        for step, timing in zip(run.steps, timings, strict=True)
    }
    return held if not (rest or others) else None


def _machine(model: ModelInfo) -> tuple[str, str, str, int]:
    return model.name, model.dtype, model.device, model.threads


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _some(counts: Iterable[int]) -> str:
    """ "1 row", "2 to 3, 5 rows" """
    ordered = sorted(counts)
    spans: list[list[int]] = []
    for rows in ordered:
        if spans and spans[-1][-1] == rows - 1:
            spans[-1][1:] = [rows]
        else:
            spans.append([rows])
    text = ", ".join(" to ".join(map(str, span)) for span in spans)
    return f"{text} row{'' if ordered == [1] else 's'}"


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"

"""Requests that arrive over time: how long they wait for a slot, computed at the price of forwards.

Static batching collects: a batch leaves when it has all of its rows, or when its first request has
waited for the window, but not before a replica is free, which with one of them is when the batch
ahead is over. Continuous batching gives a request a slot from the next forward on, as soon as one
is free. Both serve first come, first served, and both pay what engine.costs says.

Nothing is computed per token: in static batches there is one computation per batch, and in
continuous batching one per event (requests get their slots, a request ends, one arrives while a
slot is free), since between two events all forwards are alike.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush, heapreplace
from typing import Literal, NamedTuple

import numpy as np

from engine.costs import CostModel
from engine.errors import RequestError
from engine.metrics import Spread
from engine.schedules import Job

MOST_REQUESTS = 1_000_000
MOST_SECONDS = 1e9


class Load(NamedTuple):
    """N requests in the order in which they come: seconds (float), tokens of the prompt and tokens
    that will be generated (int), each of shape (N,)."""

    arrived: np.ndarray
    prompt: np.ndarray
    generated: np.ndarray


@dataclass(frozen=True, eq=False)
class Service:
    """How a load was served, computed. Per request, in seconds since the start, of shape (N,): when
    it `arrived`, was `given` a slot, and had its `first` and its `last` token. Spreads are from its
    arrival on. `busy_seconds` is how long a forward was running, all `replicas` together, each with
    so many `slots`; `batches` is how many static ones there were."""

    name: Literal["static", "continuous"]
    slots: int
    load: Load
    given: np.ndarray
    first: np.ndarray
    last: np.ndarray
    busy_seconds: float
    replicas: int = 1
    batches: int | None = None

    @property
    def seconds(self) -> float:
        """From 0 until the last token of all."""
        return float(self.last.max())

    @property
    def utilisation(self) -> float:
        """The share of the time for which a replica was busy. Near 1, requests come faster than
        they can be served, and waits grow for as long as they come."""
        return self.busy_seconds / (self.replicas * self.seconds)

    @property
    def output_tokens_per_second(self) -> float:
        return float(self.load.generated.sum()) / self.seconds

    @property
    def mean_waiting(self) -> float:
        """How many requests wait at a time: the sum of waits over time (J. D. C. Little, A Proof
        for the Queuing Formula L = λW, 1961)."""
        return float((self.given - self.load.arrived).sum()) / self.seconds

    @cached_property
    def waited(self) -> Spread:
        """For a slot: for the batch to fill, and for those ahead to end."""
        return _spread(self.given - self.load.arrived)

    @cached_property
    def first_token(self) -> Spread:
        return _spread(self.first - self.load.arrived)

    @cached_property
    def latency(self) -> Spread:
        """To the last token."""
        return _spread(self.last - self.load.arrived)


def poisson(*, per_second: float, requests: int, seed: int) -> np.ndarray:
    """Arrival times of a Poisson process: the gaps are exponential and independent. Seeded."""
    if not (math.isfinite(per_second) and per_second > 0):
        raise RequestError("Requests per second must be more than 0.")
    if not 1 <= requests <= MOST_REQUESTS:
        raise RequestError(f"The number of requests must be from 1 to {MOST_REQUESTS:,}.")
    gaps = np.random.default_rng(seed).exponential(1 / per_second, requests)
    return checked(gaps.cumsum())


def read_times(text: str) -> np.ndarray:
    """Arrival times in a file: seconds, one a line (blank lines are left out), or a JSON list."""
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise RequestError("The arrival times begin like a JSON list, but are none.") from None
        if not all(type(time) in (int, float) for time in found):
            raise RequestError("The arrival times must be a JSON list of numbers.")
        return checked(found)
    times = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            times.append(float(line))
        except ValueError:
            shown = line.strip()[:40]
            raise RequestError(
                f"Line {number} of the arrival times is no number: {shown}"
            ) from None
    return checked(times)


def checked(times: Sequence[float] | np.ndarray) -> np.ndarray:
    """The arrival times as an array of seconds; RequestError names the first that can't be one."""
    if len(times) == 0:
        raise RequestError("There are no arrival times.")
    if len(times) > MOST_REQUESTS:
        raise RequestError(
            f"There are {len(times):,} arrival times: the limit is {MOST_REQUESTS:,}."
        )
    try:
        seconds = np.array(times, dtype=float)
    except OverflowError:
        raise RequestError(f"An arrival time is larger than {MOST_SECONDS:g} s.") from None
    possible = (seconds >= 0) & (seconds <= MOST_SECONDS)  # NaN is neither
    if not possible.all():
        raise RequestError(f"Arrival {possible.argmin() + 1} must be from 0 to {MOST_SECONDS:g} s.")
    back = np.diff(seconds) < 0
    if back.any():
        at = int(back.argmax()) + 2
        raise RequestError(f"Arrival {at} comes before arrival {at - 1}: put the times in order.")
    return seconds


def load_of(jobs: Sequence[Job], arrived: np.ndarray, *, seed: int) -> Load:
    """A request like one of these, drawn at random and seeded, for each arrival."""
    if not jobs:
        raise RequestError("There are no requests to draw from.")
    drawn = np.random.default_rng(seed).integers(len(jobs), size=len(arrived))
    prompts, generated = (
        np.array([getattr(job, name) for job in jobs]) for name in ("prompt", "generated")
    )
    return Load(arrived, prompts[drawn], generated[drawn])


def static(
    load: Load, costs: CostModel, *, batch_size: int, window: float, replicas: int = 1
) -> Service:
    """Serve in static batches, each on the replica that has been free for longest. `window` is how
    many seconds the first request of a batch waits for others; with `math.inf` only a full batch
    leaves, and the last one once all have come."""
    _check_slots(batch_size)
    if replicas < 1:
        raise RequestError("It takes at least 1 replica to serve requests.")
    if not window >= 0:
        raise RequestError("The window must be 0 seconds or more.")
    arrived, prompts, generated = (column.tolist() for column in load)
    requests = len(arrived)
    prices = _step_prices(costs, min(batch_size, requests))
    leaves: list[float] = []
    begins: list[int] = []
    free = [0.0] * replicas  # a heap
    begin, busy = 0, 0.0
    while begin < requests:
        full = begin + batch_size
        all_there = arrived[-1] if window == math.inf else math.inf
        filled = arrived[full - 1] if full <= requests else all_there
        leave = max(free[0], min(filled, arrived[begin] + window))
        end = bisect_right(arrived, leave, begin + 1, min(full, requests))
        rows, width = end - begin, max(prompts[begin:end])
        later = max(generated[begin:end]) - 1
        seconds = (
            costs.prefill
            + rows * width * costs.prompt_token
            + later * prices[rows]
            + rows * (later * (width + 1) + later * (later - 1) // 2) * costs.column
        )
        leaves.append(leave)
        begins.append(begin)
        heapreplace(free, leave + seconds)
        busy += seconds
        begin = end
    at = np.array(begins)
    rows = np.diff(at, append=requests)
    rows, width, given = (
        np.repeat(each, rows)
        for each in (rows, np.maximum.reduceat(load.prompt, at), np.array(leaves))
    )
    first = given + costs.prefill + rows * width * costs.prompt_token
    later = load.generated - 1
    columns = rows * (later * (width + 1) + later * (later - 1) // 2)
    last = first + later * np.array(prices)[rows] + columns * costs.column
    return Service(
        "static", batch_size, load, given, first, last, busy, replicas=replicas, batches=len(at)
    )


def continuous(load: Load, costs: CostModel, *, slots: int) -> Service:
    """Serve with a slot for each request as soon as one is free."""
    _check_slots(slots)
    arrived, prompts, generated = (column.tolist() for column in load)
    requests = len(arrived)
    prices = _step_prices(costs, min(slots, requests))
    prefill, prompt_token, column = costs.prefill, costs.prompt_token, costs.column
    given, first, last = [0.0] * requests, [0.0] * requests, [0.0] * requests
    columns_less_steps = [0] * requests
    held: list[tuple[int, int]] = []  # (step of its last token, request)
    step = offset = 0  # the columns of all rows that decode are offset + rows * step
    newest = 0
    now = busy = 0.0
    while True:
        rows = len(held)
        begin = newest
        while newest < requests and newest - begin < slots - rows and arrived[newest] <= now:
            newest += 1
        if newest > begin:
            read = sum(prompts[begin:newest])
            seconds = max(prefill, prices[rows]) + read * prompt_token
            seconds += (offset + rows * step) * column
            for request in range(begin, newest):
                given[request], first[request] = now, now + seconds
                behind = columns_less_steps[request] = prompts[request] - step
                offset += behind
                heappush(held, (step + generated[request], request))
            steps = 1
        elif rows:
            steps = held[0][0] - step
            each = prices[rows] + (offset + rows * step) * column
            growth = rows * column / 2
            seconds = steps * (each + (steps - 1) * growth)
            if rows < slots and newest < requests and arrived[newest] < now + seconds:
                steps = min(steps, _steps_until(arrived[newest] - now, each - growth, growth))
                seconds = steps * (each + (steps - 1) * growth)
        elif newest < requests:
            now = arrived[newest]
            continue
        else:
            break
        now += seconds
        busy += seconds
        step += steps
        while held and held[0][0] == step:
            request = heappop(held)[1]
            last[request] = now
            offset -= columns_less_steps[request]
    return Service(
        "continuous", slots, load, np.array(given), np.array(first), np.array(last), busy
    )


def _steps_until(gap: float, each: float, growth: float) -> int:
    """The smallest k >= 1 with each * k + growth * k**2 >= gap."""
    if growth:
        return max(1, math.ceil((math.sqrt(each * each + 4 * growth * gap) - each) / (2 * growth)))
    return max(1, math.ceil(gap / each))


def _step_prices(costs: CostModel, most: int) -> list[float]:
    """By the number of rows; 0 for none."""
    return [0.0, *map(costs.step, range(1, most + 1))]


def _check_slots(slots: int) -> None:
    if slots < 1:
        raise RequestError("It takes at least 1 slot to serve requests.")


def _spread(values: np.ndarray) -> Spread:
    """Nearest-rank percentiles, as engine.metrics.percentile gives them, and the largest."""
    ranks = [-(-percent * len(values) // 100) - 1 for percent in (50, 90, 99, 100)]
    ordered = np.partition(values, sorted(set(ranks)))
    return Spread(len(values), *(float(ordered[rank]) for rank in ranks))

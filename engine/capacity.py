"""How many replicas hold a number of requests within a limit on the first token, on paper.

Nothing runs: requests like those of a record arrive at random (a Poisson process), are collected
into static batches as engine.collecting does it, and each batch goes to the replica that has been
free for longest, at the price of the measured steps (engine.arrivals, engine.costs). All of it is
computed. It assumes that each replica has for itself the hardware on which the steps were measured,
that a request is one row, and that the network and the tokenizer take no time.

Nothing is said of batches larger than those that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean
from typing import NamedTuple

import numpy as np

from engine.arrivals import MOST_REQUESTS, Service, load_of, poisson, static
from engine.costs import CostModel
from engine.errors import RequestError
from engine.schedules import Job

MOST_PER_HOUR = 1_000_000
UNLIMITED = 10_000
"""Replicas of which one is always free, for what is simulated here."""
LEAST_REQUESTS = 20_000
"""Of a simulation: their 95th percentile then rests on hundreds of requests that were slower."""
ROUNDS = 20
"""A simulation is at least so long that every replica is busy for so many batches."""
SETTLED = 0.5
"""The share of the requests that come before any is counted: the first find all replicas free."""
WINDOWS = (0.0, 0.05, 0.2, 1.0)
"""Seconds that are tried unless others are named."""


class Times(NamedTuple):
    """Of the requests that are counted, in seconds from arrival, by the nearest rank."""

    first_token_median: float
    first_token_p95: float
    latency_p95: float


@dataclass(frozen=True)
class Setup:
    """So many replicas with batches of so many rows, of which the first waits for `window` seconds,
    and what comes of it, computed: `rows` of a batch on average, the share of the time for which a
    replica is `busy`, and the times of the requests."""

    replicas: int
    batch_size: int
    window: float
    rows: float
    busy: float
    times: Times


@dataclass(frozen=True)
class Plan:
    """The setup with the fewest replicas that serves so many requests an hour, with 95 of 100 first
    tokens within the limit; None where no number of replicas does. Of two with as many replicas it
    is the one with the shorter p95. `alone` is what the fastest first token takes, without a line:
    a batch of its own."""

    per_hour: float
    ttft_seconds: float
    best: Setup | None
    alone: float


def plan(
    jobs: Sequence[Job],
    costs: CostModel,
    *,
    per_hour: float,
    ttft_seconds: float,
    batch_sizes: Iterable[int] | None = None,
    windows: Iterable[float] = WINDOWS,
    seed: int = 0,
) -> Plan:
    """Search batch sizes and windows for the fewest replicas. Requests are like `jobs`, drawn at
    random. Without `batch_sizes` the powers of two up to the largest that was measured are tried.

    Raises RequestError for what can't be planned.
    """
    if not 0 < per_hour <= MOST_PER_HOUR:
        raise RequestError(f"Requests per hour must be more than 0 and at most {MOST_PER_HOUR:,}.")
    if not (math.isfinite(ttft_seconds) and ttft_seconds > 0):
        raise RequestError("The limit on the first token must be more than 0 seconds.")
    sizes = sorted(set(_measured_sizes(costs) if batch_sizes is None else batch_sizes))
    for size in sizes:
        check_measured(size, costs)
    alone = costs.prefill + mean(job.prompt for job in jobs) * costs.prompt_token
    best: Setup | None = None
    for size, window in product(reversed(sizes), sorted(set(windows))):
        most = best.replicas if best else UNLIMITED
        found = _fewest(jobs, costs, per_hour, ttft_seconds, size, window, most, seed)
        if found and (best is None or _order(found) < _order(best)):
            best = found
    return Plan(per_hour, ttft_seconds, best, alone)


def simulated(
    jobs: Sequence[Job],
    costs: CostModel,
    *,
    per_hour: float,
    batch_size: int,
    window: float,
    replicas: int,
    requests: int | None = None,
    seed: int = 0,
) -> Setup:
    """What comes of one setup, from so many requests, or as many as it takes. Where they come
    faster than they can be served, times grow with their number, and `busy` is near 1."""
    enough = max(LEAST_REQUESTS, ROUNDS * replicas * batch_size)
    requests = min(MOST_REQUESTS, enough) if requests is None else requests
    arrived = poisson(per_second=per_hour / 3600, requests=requests, seed=seed)
    load = load_of(jobs, arrived, seed=seed)
    served = static(load, costs, batch_size=batch_size, window=window, replicas=replicas)
    return Setup(
        replicas=replicas,
        batch_size=batch_size,
        window=window,
        rows=requests / served.batches,
        busy=served.utilisation,
        times=times_of(served, settled=SETTLED),
    )


def times_of(served: Service, *, settled: float = 0.0) -> Times:
    """Without the requests of the first part, `settled` of all."""
    counted = slice(int(settled * len(served.load.arrived)), None)
    first = (served.first - served.load.arrived)[counted]
    latency = (served.last - served.load.arrived)[counted]
    return Times(_percentile(first, 50), _percentile(first, 95), _percentile(latency, 95))


def seconds_per_request(jobs: Sequence[Job], costs: CostModel, *, batch_size: int) -> float:
    """What a replica needs for a request when batches are always full: the least that it can."""
    requests = max(LEAST_REQUESTS // batch_size, 1) * batch_size
    load = load_of(jobs, np.zeros(requests), seed=0)
    return static(load, costs, batch_size=batch_size, window=0.0).busy_seconds / requests


def check_measured(batch_size: int, costs: CostModel) -> None:
    """Raises RequestError for a batch larger than those that were measured."""
    largest = costs.steps[-1][0]
    if not 1 <= batch_size <= largest:
        raise RequestError(
            f"A batch of {batch_size:,} rows was not measured: the largest had {largest:,}."
        )


def _fewest(
    jobs: Sequence[Job],
    costs: CostModel,
    per_hour: float,
    ttft_seconds: float,
    batch_size: int,
    window: float,
    most: int,
    seed: int,
) -> Setup | None:
    """The fewest replicas, at most `most`, that hold the limit with this batch size and window.

    Below the first number that is tried, full batches alone would not do, and requests would pile
    up whatever the limit. From there on it is found by doubling what is added, then by halves,
    since another replica makes nobody wait longer.
    """
    each = seconds_per_request(jobs, costs, batch_size=batch_size)
    least = math.floor(per_hour / 3600 * each) + 1
    setup_of = partial(
        simulated,
        jobs,
        costs,
        per_hour=per_hour,
        batch_size=batch_size,
        window=window,
        seed=seed,
    )

    def holds(replicas: int, requests: int | None = None) -> Setup | None:
        setup = setup_of(replicas=replicas, requests=requests)
        return setup if setup.times.first_token_p95 <= ttft_seconds else None

    if least > most or not holds(UNLIMITED, LEAST_REQUESTS):
        return None
    below, above, found = least - 1, least, None
    while (found := holds(above)) is None:
        if above == most:
            return None
        below, above = above, min(most, above + max(1, 2 * (above - least)))
    while above - below > 1:
        middle = (below + above) // 2
        setup = holds(middle)
        below, above, found = (below, middle, setup) if setup else (middle, above, found)
    return found


def _measured_sizes(costs: CostModel) -> list[int]:
    largest = costs.steps[-1][0]
    return [2**power for power in range(largest.bit_length()) if 2**power <= largest]


def _order(setup: Setup) -> tuple[int, float]:
    return setup.replicas, setup.times.first_token_p95


def _percentile(values: np.ndarray, percent: int) -> float:
    """Nearest rank, as engine.metrics.percentile gives it."""
    rank = -(-percent * len(values) // 100) - 1
    return float(np.partition(values, rank)[rank])

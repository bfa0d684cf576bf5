"""Requests that arrive over time, as the page shows them: how long they wait, static against
continuous. All of it is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.arrivals import Service, continuous, load_of, poisson, read_times, static
from engine.costs import priced
from engine.errors import RequestError
from engine.metrics import Spread
from engine.schedules import static as static_schedule
from viz import words
from viz.compare.computed import Basis

Value = dict[str, Any]

REQUESTS = 5_000
SEED = 1
MOST_WINDOW = 3600.0
MOST_TIMES_BYTES = 2**20
"""Of a file of arrival times; it goes along with every question."""
OVERLOADED = 0.99
"""With a forward running for so much of the time, waits grow for as long as requests come."""
SHARES = tuple(range(1, 100))
"""Percent of the requests for which the curves are drawn."""

COLUMNS = ("median · p90 · p99", "Static", "Continuous")
ROWS = ("Waits for a slot", "First token after", "Last token after", "A forward runs")


def arriving(basis: Basis, asked: Value) -> Value:
    """What the page shows. `asked` has "per_second", "slots" and "window" (seconds) as typed, and
    "times", the text of a file of arrival times or None; without "per_second" it is a rate that
    static batches can just about serve. Raises RequestError."""
    slots = asked.get("slots", basis.slots)
    if type(slots) is not int or not 1 <= slots <= 1024:
        raise RequestError(f"The slots must be from 1 to 1,024, not {slots!r:.40}.")
    rate = asked.get("per_second", _bearable(basis, slots))
    window = _number(asked.get("window", 1.0), "The window", most=MOST_WINDOW)
    times = asked.get("times")
    if times is None:
        rate = _number(rate, "Requests per second", most=1e6)
        arrived = poisson(per_second=rate, requests=REQUESTS, seed=SEED)
    else:
        if not isinstance(times, str) or len(times) > MOST_TIMES_BYTES:
            raise RequestError("The arrival times must be a text of at most 1 MiB.")
        arrived = read_times(times)
    load = load_of(basis.jobs, arrived, seed=SEED)
    services = [
        static(load, basis.costs, batch_size=slots, window=window),
        continuous(load, basis.costs, slots=slots),
    ]
    return {
        "per_second": rate,
        "slots": slots,
        "window": window,
        "curves": [_curve(service) for service in services],
        "shares": list(SHARES),
        "columns": list(COLUMNS),
        "rows": [list(each) for each in zip(ROWS, *map(_told, services), strict=True)],
        "told": told(*services),
        "about": _about(basis, len(arrived), from_file=times is not None),
    }


def told(batches: Service, refilled: Service) -> str:
    """What the two services have in common, and what not, in a sentence."""
    late = [
        name
        for name, service in (("static batches", batches), ("continuous batching", refilled))
        if service.utilisation > OVERLOADED
    ]
    waits = [words.seconds(service.first_token.p90) for service in (batches, refilled)]
    said = (
        f"9 of 10 requests have their first token within {waits[0]} of their arrival in static "
        f"batches, within {waits[1]} by continuous batching."
    )
    if late:
        said += f" They come faster than {words.listing(late)} can serve them: waits grow on."
    return said


def _about(basis: Basis, count: int, *, from_file: bool) -> str:
    when = "from a file" if from_file else f"at random (Poisson, seed {SEED})"
    return (
        f"Computed: {words.plural(count, 'request')} {when}, each like one of the "
        f"{len(basis.jobs)} above. A static batch leaves when it is full, or "
        "when its first request has waited for the window."
    )


def _curve(service: Service) -> list[float]:
    """Seconds from the arrival to the first token that so many percent of the requests do not
    exceed."""
    waits = service.first - service.load.arrived
    return [round(float(each), 4) for each in np.percentile(waits, SHARES, method="inverted_cdf")]


def _told(service: Service) -> list[str]:
    """What ROWS say."""
    return [
        *map(_percentiles, (service.waited, service.first_token, service.latency)),
        f"{100 * service.utilisation:.0f} % of the time",
    ]


def _percentiles(spread: Spread) -> str:
    return " · ".join(words.seconds(value) for value in (spread.median, spread.p90, spread.p99))


def _bearable(basis: Basis, slots: int) -> float:
    """Four fifths of what full static batches would serve, to two significant digits."""
    lane = priced(static_schedule(basis.jobs, batch_size=slots), basis.costs)
    return float(f"{0.8 * len(basis.jobs) / lane.figures.wall_seconds:.2g}")


def _number(value: object, what: str, *, most: float) -> float:
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= most):
        raise RequestError(f"{what} must be a number from 0 to {most:,.0f}, not {value!r:.40}.")
    return float(value)

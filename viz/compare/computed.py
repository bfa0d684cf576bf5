"""What other schedules would have done with the requests of a recorded run: computed, not measured.

The page keeps the basis, which is small: what each request needs, and what a forward costs. It goes
along with every question, so that the server keeps nothing, and a question is not longer for a
longer run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.comparison import Comparison
from engine.costs import CostModel, fit, priced
from engine.errors import RecordError, RequestError
from engine.lanes import Lane, lane_of
from engine.run import Run
from engine.schedules import KEYS, Job, Order, continuous, jobs_of, static
from viz import words
from viz.compare.lane import drawn, line

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Value = dict[str, Any]

MOST_JOBS = 1024
MOST_TOKENS = 10**7
"""Of one request: the schedules are as quick for many tokens as for few."""

UNREADABLE = "These are no requests to compute schedules for."

ORDERS: dict[Order, str] = {
    "as given": "as given",
    "by prompt length": "longest prompt first",
    "by budget": "largest budget first",
    "by generated length": "longest answer first (known only afterwards)",
}


@dataclass(frozen=True)
class Basis:
    """What the computed lanes are made from. `slots` are those of the measured static run, and
    `serial_seconds` is how long the measured serial one took."""

    jobs: tuple[Job, ...]
    slots: int
    costs: CostModel
    serial_seconds: float | None


def basis_of(comparison: Comparison) -> Basis | str:
    """The basis that a comparison gives, or why there is none."""
    static_run, serial_run = (comparison.entry(name).run for name in ("static", "serial"))
    if static_run is None:
        return "Other schedules can be computed once there is a static run."
    try:
        jobs = jobs_of(static_run)
        done = [run for run in (static_run, serial_run) if run and run.status == "done"]
        return Basis(jobs, static_run.slots, fit(done), serial_seconds(serial_run))
    except RequestError as error:
        return str(error)


def serial_seconds(run: Run | None) -> float | None:
    """The wall time of the serial run, which others are compared with once it is done."""
    if run is None or run.status != "done":
        return None
    return lane_of(run).figures.wall_seconds


class Computed(NamedTuple):
    """A computed lane, and what it is called."""

    title: str
    note: str
    lane: Lane


def computed_lanes(basis: Basis, *, slots: int, order: Order) -> list[Computed]:
    """Static, shrinking and continuous with so many slots, the requests in that order."""
    first = "" if order == "as given" else f", {ORDERS[order].partition(' (')[0]}"
    made = [
        ("Static", f"batches of {slots}", static(basis.jobs, batch_size=slots, order=order)),
        (
            "Shrinking",
            f"ended rows leave, batches of {slots}",
            static(basis.jobs, batch_size=slots, order=order, shrinking=True),
        ),
        (
            "Continuous",
            f"{words.plural(slots, 'slot')}, each refilled at once",
            continuous(basis.jobs, slots=slots, order=order),
        ),
    ]
    return [
        Computed(title, note + first, priced(schedule, basis.costs))
        for title, note, schedule in made
    ]


def computed(basis: Basis, *, slots: int, order: Order) -> Value:
    """What the page shows for such settings."""
    lanes = computed_lanes(basis, slots=slots, order=order)
    return shown_lanes(lanes, basis, slots=slots, order=order)


def shown_lanes(lanes: Sequence[Computed], basis: Basis, *, slots: int, order: Order) -> Value:
    """The lanes for these settings as the page shows them."""
    alone = basis.serial_seconds
    return {
        "slots": slots,
        "order": order,
        "lanes": [
            drawn(lane, title=title, note=note, serial_seconds=alone) for title, note, lane in lanes
        ],
        "rows": [line(title, lane, alone) for title, _, lane in lanes],
        "about": [basis.costs.formula, max((each.lane.error for each in lanes), key=len)],
    }


def read_basis(value: object) -> Basis:
    """The inverse of `asdict`, for a value of whatever type a visitor sent. Raises RecordError."""
    from pydantic import ValidationError

    try:
        basis = _schema().validate_python(value)
    except ValidationError:
        raise RecordError(UNREADABLE) from None
    if not (
        0 < len(basis.jobs) <= MOST_JOBS
        and all(0 < amount <= MOST_TOKENS for job in basis.jobs for amount in job[1:])
        and all(seconds > 0 for _, seconds in basis.costs.steps)
    ):
        raise RecordError(UNREADABLE)
    return basis


def read_settings(value: Value, basis: Basis) -> Value:
    """`slots` and `order` for `computed`, out of a question. Raises RequestError."""
    slots, order = value.get("slots"), value.get("order")
    if type(slots) is not int or not 1 <= slots <= len(basis.jobs):
        raise RequestError(f"The slots must be from 1 to {len(basis.jobs)}, not {slots!r:.40}.")
    if not isinstance(order, str) or order not in KEYS:
        raise RequestError(f"The order must be one of {', '.join(KEYS)}, not {order!r:.40}.")
    return {"slots": slots, "order": order}


@cache
def _schema() -> TypeAdapter[Basis]:
    from pydantic import TypeAdapter

    return TypeAdapter(Basis)

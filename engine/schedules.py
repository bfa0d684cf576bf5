"""What another schedule would have done with the requests of a recorded run, counted in steps.

No model is needed: how many tokens each request generated is in the record, and a row's tokens do
not depend on its neighbours. A step is one forward. In it, every slot that holds a request gives
that request one token: a request that has just been given the slot has its whole prompt read and
gets its first token out of that; the others decode one. So a request needs as many steps as it
generates tokens, whatever the schedule, and schedules differ in when it gets its slot and in how
long it keeps it:

- static: a batch starts when the one before is over. Its first step reads all of its prompts, and
  every row keeps its slot until the last one ends.
- shrinking: the same steps, but a row that has ended is dropped from the forward.
- continuous: a request that ends leaves, and the next one that waits has its slot from the next
  step on. Such a step may read the prompts of newcomers and decode the others in one forward; a
  prompt is never read in parts, and however many prompts may be read at once.
- serial: static batches of one.

With the same slots and the same order, continuous never needs more steps than static. By induction:
once k batches would be over, only requests of batch k + 1 can hold a slot, and they are at most as
many as the slots, so each of them has started by then.

Between two events (a request starts or ends) all steps are alike, so a schedule is a list of such
stretches, and costs no more to compute for 2,048 tokens than for two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import Literal, NamedTuple

from engine.errors import RequestError
from engine.metrics import Waste, idle_waste, padding_waste, rows
from engine.run import Run

Order = Literal["as given", "by prompt length", "by budget", "by generated length"]


class Job(NamedTuple):
    """A request as a schedule sees it: the tokens of its prompt, how many it may generate, and how
    many it did."""

    request: int
    prompt: int
    budget: int
    generated: int


class Stay(NamedTuple):
    """One request in its slot. Numbers of steps since the start: it was given the slot after
    `start` of them, had its last token after `end`, and left after `left`."""

    slot: int
    request: int
    start: int
    end: int
    left: int


class Stretch(NamedTuple):
    """So many forwards that are alike.

    A forward that reads prompts, pads included, is a stretch by itself. `decoding` rows get their
    next token; in the first of the forwards they attend to `columns` cached columns, their newest
    and their pads included, all rows together, and in each later one to one more per row.
    """

    steps: int
    prompt_tokens: int
    decoding: int
    columns: int

    @property
    def held(self) -> int:
        """Columns in the cache after the last of the forwards."""
        return self.prompt_tokens + self.columns + self.decoding * (self.steps - 1)


@dataclass(frozen=True)
class Schedule:
    """Who has which slot when, and what the forwards do. `order` is by request number."""

    name: str
    slots: int
    order: tuple[int, ...]
    stays: tuple[Stay, ...]
    stretches: tuple[Stretch, ...]
    padding: Waste
    idle: Waste

    @property
    def steps(self) -> int:
        return sum(stretch.steps for stretch in self.stretches)

    @property
    def generated(self) -> int:
        return sum(stay.end - stay.start for stay in self.stays)

    @property
    def peak_columns(self) -> int:
        """The most columns that the cache holds, all rows together."""
        return max(stretch.held for stretch in self.stretches)


KEYS: dict[Order, Callable[[Job], int]] = {
    "as given": lambda _: 0,
    "by prompt length": lambda job: -job.prompt,
    "by budget": lambda job: -job.budget,
    "by generated length": lambda job: -job.generated,
}
"""The longest first, so that it is the last batch that may be short of rows; who is as long keeps
his place. By generated length no order needs fewer steps in static batches: to hold the longest
(k - 1) * B + 1 requests takes k batches, so in any order the k-th longest batch is as long as the
shortest of those requests. But nobody knows that length before the run."""


def jobs_of(run: Run) -> tuple[Job, ...]:
    """The requests of a run that is over. Raises RequestError if it did not come to its end."""
    if run.status != "done":
        raise RequestError("Other schedules can be computed once all rows of the run have ended.")
    return tuple(
        Job(row.request, row.prompt_tokens, run.requests[row.request].max_new_tokens, row.generated)
        for row in rows(run)
    )


def static(
    jobs: Sequence[Job], *, batch_size: int, order: Order = "as given", shrinking: bool = False
) -> Schedule:
    """Consecutive batches of at most `batch_size` rows; `shrinking` drops rows that have ended."""
    queue = _queue(jobs, order, batch_size)
    batches = [queue[at : at + batch_size] for at in range(0, len(queue), batch_size)]
    stays: list[Stay] = []
    stretches: list[Stretch] = []
    step = 0
    for batch in batches:
        left = step + max(job.generated for job in batch)
        for slot, job in enumerate(batch):
            end = step + job.generated
            stays.append(Stay(slot, job.request, step, end, end if shrinking else left))
        stretches += _batch(batch, shrinking=shrinking)
        step = left
    generated = [[job.generated for job in batch] for batch in batches]
    idle = idle_waste(generated)
    return Schedule(
        name=_name("shrinking" if shrinking else "static", order),
        slots=min(batch_size, len(jobs)),
        order=tuple(job.request for job in queue),
        stays=tuple(stays),
        stretches=tuple(stretches),
        padding=padding_waste([job.prompt for job in batch] for batch in batches),
        idle=Waste(0, idle.slots - idle.wasted) if shrinking else idle,
    )


def serial(jobs: Sequence[Job]) -> Schedule:
    """One request after another."""
    return replace(static(jobs, batch_size=1), name="serial")


def continuous(jobs: Sequence[Job], *, slots: int, order: Order = "as given") -> Schedule:
    """Every slot is given to the next request as soon as it is free, the lowest first."""
    queue = _queue(jobs, order, slots)
    waiting = iter(queue)
    free = list(range(min(slots, len(queue))))  # a heap, as it is in order
    held: list[tuple[int, int, int]] = []  # (step of its last token, slot, columns - steps)
    stays: list[Stay] = []
    stretches: list[Stretch] = []
    step = offset = 0  # the columns of all rows that decode are offset + rows * step
    while True:
        if newcomers := list(islice(waiting, len(free))):
            decoding = len(held)
            read = sum(job.prompt for job in newcomers)
            stretches.append(Stretch(1, read, decoding, offset + decoding * step))
            for job in newcomers:
                slot = heappop(free)
                end = step + job.generated
                heappush(held, (end, slot, job.prompt - step))
                offset += job.prompt - step
                stays.append(Stay(slot, job.request, step, end, end))
            step += 1
        if not held:
            break
        if (until := held[0][0]) > step:
            columns = offset + len(held) * step
            stretches.append(Stretch(until - step, 0, len(held), columns))
            step = until
        while held and held[0][0] == step:
            _, slot, columns_less_steps = heappop(held)
            offset -= columns_less_steps
            heappush(free, slot)
    return Schedule(
        name=_name("continuous", order),
        slots=min(slots, len(jobs)),
        order=tuple(job.request for job in queue),
        stays=tuple(stays),
        stretches=tuple(stretches),
        padding=padding_waste([job.prompt] for job in queue),
        idle=idle_waste([job.generated] for job in queue),
    )


def _batch(batch: Sequence[Job], *, shrinking: bool) -> Iterator[Stretch]:
    """The forwards of a static batch: its prefill, then a stretch up to every end of a row."""
    width = max(job.prompt for job in batch)
    yield Stretch(1, width * len(batch), 0, 0)
    ends = sorted(job.generated for job in batch)
    done = 1
    for ended, end in enumerate(ends):
        if end > done:
            decoding = len(batch) - ended if shrinking else len(batch)
            yield Stretch(end - done, 0, decoding, decoding * (width + done))
            done = end


def _queue(jobs: Sequence[Job], order: Order, slots: int) -> list[Job]:
    if not jobs:
        raise RequestError("There are no requests to schedule.")
    if slots < 1:
        raise RequestError("A schedule needs at least 1 slot.")
    if order not in KEYS:
        raise RequestError(f"There is no order {order!r}: choose one of {', '.join(KEYS)}.")
    return sorted(jobs, key=KEYS[order])


def _name(kind: str, order: Order) -> str:
    return kind if order == "as given" else f"{kind}, {order}"

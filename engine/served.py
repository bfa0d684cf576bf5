"""Batches that were collected, as plain data: their records, who waited and who left, and what the
last minutes were like."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.metrics import Spread, spread
from engine.run import Request, Run, Step

MINUTES = 5
"""How far back `Lately` looks."""
SLICE_SECONDS = 5
"""How long each of its slices is."""
SLICES = 60 * MINUTES // SLICE_SECONDS
MOST_BATCHES = 4096
"""Batches that it looks at, should more have ended in that time."""


@dataclass(frozen=True)
class Served:
    """A batch that was collected: its number, its record, how long each of its requests waited for
    its call's first forward, and when the client of each left, in seconds since the start of the
    run (None: it stayed). `prompts` is what the prompts say, where the host logs or shows it: the
    record has them in tokens."""

    number: int
    run: Run
    waited: tuple[float, ...]
    left: tuple[float | None, ...]
    prompts: tuple[str, ...] = ()

    @property
    def queued(self) -> tuple[float, ...]:
        """How long each request waited for its own first forward: in a call of more rows than a
        batch has, the later ones wait for the batches before theirs, too."""
        return tuple(
            waited + later for waited, later in zip(self.waited, after_first(self.run), strict=True)
        )


def after_first(run: Run) -> list[float]:
    """Seconds from the start of the first batch to that of each request's own; 0 where either has
    none yet."""
    first = run.batches[0].started
    later = [0.0] * len(run.requests)
    for batch in run.batches:
        if first is not None and batch.started is not None:
            for request in batch.requests:
                later[request] = batch.started - first
    return later


def without_texts(run: Run) -> Run:
    """The run with nothing in it that anybody wrote or could read: no prompt, no stop string, no
    token, no answer. Lengths, times and ends are what they were."""
    return replace(
        run,
        requests=tuple(map(_without_prompt, run.requests)),
        batches=tuple(
            replace(batch, prompt_ids=tuple((0,) * len(ids) for ids in batch.prompt_ids))
            for batch in run.batches
        ),
        steps=tuple(map(step_without_texts, run.steps)),
        texts=("",) * len(run.texts),
        # What a model raises might quote what it was fed.
        error=run.error and "The batch failed; the server's log says why.",
    )


def _without_prompt(request: Request) -> Request:
    return replace(request, prompt="", stop=(), seed=0)


def step_without_texts(step: Step) -> Step:
    """The step with 0 for every token, and no piece of text."""
    return replace(
        step,
        tokens=tuple(None if token is None else 0 for token in step.tokens),
        pieces=("",) * len(step.pieces),
    )


class Lately(NamedTuple):
    """What the last MINUTES were like: how many batches ended, with how many rows, how long those
    rows had waited, and for each slice of the time, the oldest first, the mean rows of its batches
    (None: none ended)."""

    batches: int
    rows: int
    waited: Spread
    fill: tuple[float | None, ...]


class _Ended(NamedTuple):
    at: float
    rows: int
    waited: tuple[float, ...]


class Traffic:
    """Remembers the batches of the last minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: deque[_Ended] = deque(maxlen=MOST_BATCHES)

    def add(self, served: Served) -> None:
        """A collected batch is over; a call with more rows than one has ran in several."""
        queued, now = served.queued, self._clock()
        with self._lock:
            for batch in served.run.batches:
                if batch.started is not None:
                    waited = tuple(queued[request] for request in batch.requests)
                    self._ended.append(_Ended(now, len(batch.requests), waited))

    def lately(self) -> Lately:
        first = _slice(self._clock()) - SLICES + 1
        with self._lock:
            ended = [each for each in self._ended if _slice(each.at) >= first]
        rows: list[list[int]] = [[] for _ in range(SLICES)]
        for each in ended:
            rows[_slice(each.at) - first].append(each.rows)
        return Lately(
            batches=len(ended),
            rows=sum(each.rows for each in ended),
            waited=spread(sorted(wait for each in ended for wait in each.waited)),
            fill=tuple(sum(of) / len(of) if of else None for of in rows),
        )


def _slice(at: float) -> int:
    """Slices begin at the same moments whenever they are looked at, so that none of them changes
    once it is over."""
    return int(at // SLICE_SECONDS)

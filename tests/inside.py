"""What a test asks of a replica, in the process of which it is called: it imports little there."""

from __future__ import annotations

import os
from typing import NamedTuple

from engine.active import ActiveBatch
from engine.models import LanguageModel
from engine.replica import Replica


def process_of(_: LanguageModel) -> int:
    return os.getpid()


class Counts(NamedTuple):
    """Forwards that have begun in a process, and how many had when it was last told to stop."""

    forwards: int
    at_stop: int


_counts = Counts(0, 0)


def counts(_: LanguageModel) -> Counts:
    return _counts


def count(_: LanguageModel) -> None:
    """Count from now on, in the process where this is called."""
    step = ActiveBatch.step

    def counted_step(rows: ActiveBatch) -> None:
        global _counts
        _counts = _counts._replace(forwards=_counts.forwards + 1)
        step(rows)

    def stopped(replica: Replica, number: int) -> None:
        global _counts
        if number > vars(replica)["_stopped"]:
            _counts = _counts._replace(at_stop=_counts.forwards)
        vars(replica)["_stopped"] = number

    ActiveBatch.step = counted_step
    Replica._stopped = property(lambda replica: vars(replica)["_stopped"], stopped)

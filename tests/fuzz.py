"""Throw random and mutated inputs at everything that reads what a visitor sent.

python -m tests.fuzz --examples 20000

An input may be taken, or refused with one of the project's own errors. Anything else is a failure,
and so is an input that keeps the program busy for a second. What is taken must also work: an order
runs, a saved run can be measured, drawn and exported.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, given, settings

from engine.errors import BatchscopeError, RunError
from tests.targets import TARGETS

SLOW_SECONDS = 1.0
HANG_SECONDS = 60


@dataclass
class Tally:
    """What came of the inputs of one target."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    slowest_input: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    """By what went wrong and where: the first input that did it."""

    @property
    def examples(self) -> int:
        return self.accepted + self.refused

    def count(self, value: Any, attempt: Callable[[], None]) -> None:
        started = time.perf_counter()
        try:
            attempt()
            self.accepted += 1
        except Exception as error:
            self.refused += 1
            if isinstance(error, RunError) or not isinstance(error, BatchscopeError):
                self.failures.setdefault(_where(error), f"{value!r:.2000}")
        seconds = time.perf_counter() - started
        if seconds > SLOW_SECONDS:  # or the machine was busy with something else
            started = time.perf_counter()
            with suppress(Exception):
                attempt()
            seconds = min(seconds, time.perf_counter() - started)
        if seconds > self.slowest:
            self.slowest, self.slowest_input = seconds, f"{value!r:.500}"


def fuzz(name: str, *, examples: int, seed: int) -> Tally:
    """Try so many inputs of the target; the same seed gives the same ones."""
    target, tally = TARGETS[name], Tally()
    with target.ready() as ready:
        first = () if ready is None else (ready,)

        @hypothesis.seed(seed)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs())
        def try_one(value: Any) -> None:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=sys.__stderr__)
            tally.count(value, lambda: target.attempt(*first, value))
            faulthandler.cancel_dump_traceback_later()

        try_one()
    return tally


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error!s:.200} ({frame.filename}:{frame.lineno})"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--examples",
        type=int,
        default=20_000,
        help="of all targets together; over HTTP, one for each hundred of another target",
    )
    parser.add_argument("--target", choices=TARGETS, action="append", help="the default is each")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args(argv)
    names = options.target or list(TARGETS)
    each = ceil(options.examples / max(1, sum(TARGETS[name].rarity == 1 for name in names)))
    torch.set_num_threads(1)  # the models are tiny
    print(f"seed {options.seed}")
    print(f"{'target':<12}{'examples':>10}{'accepted':>10}{'refused':>10}{'slowest':>11}  failures")
    failed = False
    for name in names:
        tally = fuzz(name, examples=ceil(each / TARGETS[name].rarity), seed=options.seed)
        print(
            f"{name:<12}{tally.examples:>10,}{tally.accepted:>10,}{tally.refused:>10,}"
            f"{1000 * tally.slowest:>8,.0f} ms  {len(tally.failures)}",
            flush=True,
        )
        for failure, value in tally.failures.items():
            print(f"  {failure}\n    input: {value}")
        if tally.slowest > SLOW_SECONDS:
            print(f"  too slow, input: {tally.slowest_input}")
        failed |= bool(tally.failures) or tally.slowest > SLOW_SECONDS
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The options of `python -m engine capacity`, and the plans that they ask for."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

from engine.capacity import MOST_PER_HOUR, WINDOWS, Plan, plan
from engine.comparison import MAX_BYTES
from engine.errors import RecordError
from engine.measured import Measured, read_measured
from engine.options import at_least_one, milliseconds


def add_capacity(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    capacity = commands.add_parser(
        "capacity",
        help="how many replicas hold a number of requests, computed from measured steps",
        description="From a saved sweep, run or comparison: the fewest replicas, the batch size "
        "and the window with which so many requests an hour have their first token in time, by a "
        "simulation of random arrivals. Nothing runs, and all of it is computed.",
        epilog="example: python -m engine bench --batch-size 1 2 4 8 16 --json sweep.json && "
        "python -m engine capacity sweep.json --per-hour 1000 100000 --ttft 2",
    )
    capacity.add_argument("measured", type=Path, metavar="SAVED.json")
    capacity.add_argument(
        "--per-hour",
        nargs="+",
        type=at_least_one,
        required=True,
        metavar="N",
        help=f"requests an hour, one or more numbers, at most {MOST_PER_HOUR:,}",
    )
    capacity.add_argument(
        "--ttft",
        type=positive,
        default=2.0,
        metavar="S",
        help="seconds within which 95 of 100 requests must have their first token (%(default)s)",
    )
    capacity.add_argument(
        "--batch-size",
        nargs="+",
        type=at_least_one,
        metavar="B",
        help="sizes to try (default: powers of two up to the largest that was measured)",
    )
    capacity.add_argument(
        "--batch-window-ms",
        nargs="+",
        type=milliseconds,
        default=[round(1000 * window) for window in WINDOWS],
        metavar="MS",
        help=f"windows to try (default: {', '.join(f'{1000 * window:.0f}' for window in WINDOWS)})",
    )
    capacity.add_argument("--seed", type=int, default=0, metavar="S", help="of the arrivals (0)")
    return capacity


def read_file(options: argparse.Namespace) -> Measured:
    """Raises RecordError where there is nothing to plan with."""
    try:
        with options.measured.open("rb") as file:
            return read_measured(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise RecordError(f"{options.measured} can't be read: {error.strerror}.") from error


def plans(measured: Measured, options: argparse.Namespace) -> Iterator[Plan]:
    """One for each number of requests, as soon as it is computed."""
    for per_hour in options.per_hour:
        yield plan(
            measured.jobs,
            measured.costs,
            per_hour=per_hour,
            ttft_seconds=options.ttft,
            batch_sizes=options.batch_size,
            windows=[milliseconds / 1000 for milliseconds in options.batch_window_ms],
            seed=options.seed,
        )


def positive(text: str) -> float:
    """The type of an option that is a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number

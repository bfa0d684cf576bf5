"""Replicas that are killed in the middle of their runs: what becomes of the run, of the one beside
it, and of the next, and does anything pile up?

python -m tests.replicas --kills 20            a tiny random model, minutes
python -m tests.replicas --kills 20 --default  the default model in float32
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch

from engine import StaticBatchEngine, load_model
from engine.fleet import Fleet
from engine.keeper import Keeper
from engine.models import LanguageModel
from engine.presets import DEFAULT_MODEL
from engine.requests import Limits, make_requests
from engine.run import Run
from tests.clients import Served, served
from tests.inside import process_of
from tests.serving import Visitor, rows_of, wait_for
from tests.tiny import row_ids, tiny_lm

DIED = "The process that ran this has died; another one takes its place."
LIMITS = Limits(new_tokens=4000)
WARM = 10
"""Kills before memory and processes are compared: caches fill in the first ones."""
MOST_GROWTH = 0.02
SPARED = 5
"""Budgets of the run beside the one that is killed, which must not be over by then."""


@dataclass(frozen=True)
class Farm:
    """Replicas behind a page with OpenAI's endpoints, and their model in this process too."""

    fleet: Fleet
    served: Served
    lm: LanguageModel

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def name(self) -> str:
        return self.fleet.names[0]

    def alone(self, prompts: list[str], budget: int) -> list[list[int]]:
        """The ids of each prompt's run by itself, in this process."""
        engine = StaticBatchEngine(self.lm, batch_size=1)
        return row_ids(engine.run(make_requests(prompts, max_new_tokens=budget, ignore_eos=True)))

    def busy(self) -> list[Keeper]:
        return [keeper for keeper in self.fleet.keepers if keeper.runs]

    def ask(self, keeper: Keeper, question: Callable[[LanguageModel], Any]) -> Any:
        """What a function says in the process of this replica."""
        asks = keeper.actor.ask.options(concurrency_group="asks")
        return ray.get(asks.remote(self.name, question, ()))

    def wait_until_up(self) -> None:
        wait_for(lambda: all(keeper.has(self.name) for keeper in self.fleet.keepers), seconds=60)

    def wait_until_free(self) -> None:
        wait_for(lambda: not self.busy() and not self.fleet.line)


@contextmanager
def farm(name: str, *others: str, window: float = 0.02, batch_size: int = 4) -> Iterator[Farm]:
    """Two replicas of a model, up and free; the others are offered too."""
    torch.set_num_threads(1)  # beside the replicas, which have one each on two cores
    lm = load_model(name, dtype="float32", device="cpu")
    how = {"device": "cpu", "dtype": "float32", "log_level": "warning"}
    fleet = Fleet([name, *others], replicas=2, **how)
    try:
        fleet.start(name)
        with served(shelf=fleet, limits=LIMITS, window=window, batch_size=batch_size) as here:
            wait_for(lambda: fleet.keepers, seconds=60)
            here = Farm(fleet, here, lm)
            here.wait_until_up()
            yield here
    finally:
        fleet.close()


def save_tiny(folder: Path) -> str:
    """A random model on disk, of so many layers that a step takes some milliseconds -> its name."""
    lm = tiny_lm(num_hidden_layers=16, max_position_embeddings=8192)
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return str(folder)


class Watched(threading.Thread):
    """A run by a visitor who watches it to its end."""

    def __init__(self, here: Farm, prompt: str, budget: int) -> None:
        super().__init__(daemon=True)
        self.here = here
        self.visitor = Visitor(here.url)
        self.began = threading.Event()
        self.steps = 0
        self.record: Run | None = None
        self.ended = 0.0
        rows = rows_of([prompt], budget)
        self.visitor.join(rows, here.name, ignore_eos=True)
        self.start()

    def run(self) -> None:
        for frame in self.visitor.frames():
            if frame.drawn:
                self.steps = len(frame.tokens[0])
                if self.steps:
                    self.began.set()
        self.record = frame.record
        self.ended = time.monotonic()
        self.visitor.http.close()

    def to_the_end(self) -> Run:
        self.join(60)
        assert self.record is not None, "the run never ended"
        return self.record


@dataclass(frozen=True)
class Killed:
    """Seconds from the kill to the end of the run, and until the replica could run again."""

    told: float
    back: float


def expected_of(here: Farm, budget: int) -> dict[str, list[int]]:
    """The ids of each of two prompts, run alone in this process: as many as `kill_one` needs."""
    budgets = {"left": budget, "right": SPARED * budget}
    return {prompt: here.alone([prompt], most)[0] for prompt, most in budgets.items()}


def kill_one(here: Farm, *, budget: int, expected: dict[str, list[int]]) -> Killed:
    """Kill the replica of one of two runs, and check both, and the two after them, which have that
    budget."""
    doomed = Watched(here, "left", LIMITS.new_tokens)
    wait_for(here.busy)
    (keeper,) = here.busy()
    spared = Watched(here, "right", SPARED * budget)
    assert doomed.began.wait(30)
    assert spared.began.wait(30)
    assert len(here.busy()) == 2
    seen = doomed.steps
    pid = here.ask(keeper, process_of)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    broken = doomed.to_the_end()
    assert (broken.status, broken.error) == ("error", DIED)
    assert len(broken.steps) >= seen
    here.wait_until_up()
    back = time.monotonic()
    assert row_ids(spared.to_the_end()) == [expected["right"]]
    here.wait_until_free()
    both = {prompt: Watched(here, prompt, budget) for prompt in ("left", "right")}
    for prompt, run in both.items():
        assert row_ids(run.to_the_end()) == [expected[prompt][:budget]]
    here.wait_until_free()
    return Killed(doomed.ended - killed, back - killed)


def resident() -> int:
    """Bytes of resident memory of this process, which serves the page."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def processes(parent: int | None = None) -> int:
    """How many processes this one, or that one, has begotten."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:  # it has ended meanwhile
            continue
    family = {parent or os.getpid()}
    while more := {child for child, of in parents.items() if of in family} - family:
        family |= more
    return len(family) - 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replicas", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--default", action="store_true", help="the default model, not a tiny one")
    options = parser.parse_args()
    if options.kills <= WARM:
        parser.error(f"--kills must be more than {WARM}: memory is compared from then on")
    budget = 40 if options.default else 200
    with tempfile.TemporaryDirectory() as folder:
        name = DEFAULT_MODEL if options.default else save_tiny(Path(folder))
        began = time.monotonic()
        with farm(name) as here:
            print(f"two replicas after {time.monotonic() - began:.1f} s")
            expected = expected_of(here, budget)
            return _report(here, options.kills, budget, expected)


def _report(here: Farm, kills: int, budget: int, expected: dict[str, list[int]]) -> int:
    found, sizes = [], []
    for number in range(1, kills + 1):
        found.append(kill_one(here, budget=budget, expected=expected))
        sizes.append((resident(), processes(), threading.active_count()))
        bytes_, children, threads = sizes[-1]
        print(
            f"kill {number}: told after {found[-1].told:.2f} s, back after {found[-1].back:.1f} s; "
            f"{bytes_ / 1e6:.1f} MB, {children} processes, {threads} threads",
            flush=True,
        )
    told, back = [each.told for each in found], [each.back for each in found]
    print(f"told: median {statistics.median(told):.2f} s, longest {max(told):.2f} s")
    print(f"back: median {statistics.median(back):.1f} s, longest {max(back):.1f} s")
    growth = sizes[-1][0] / sizes[WARM - 1][0] - 1
    print(f"resident memory, kill {WARM} to kill {kills}: {growth:+.2%}")
    flat = sizes[-1][1] == sizes[WARM - 1][1] and abs(growth) <= MOST_GROWTH
    return 0 if flat and max(told) < 5 else 1


if __name__ == "__main__":
    sys.exit(main())

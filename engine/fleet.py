"""Replicas: the models of a host in several processes, each with a GPU or some cores of its own, on
this machine or on others, kept up by Ray.

The process of the page holds no weights. What is to run takes a place in one line, and gets the
first replica that is free; what it shows comes back as it is made.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from engine import cluster
from engine.cluster import drawn, raised_there
from engine.errors import LostError, ModelError, RunError
from engine.growing import whole
from engine.live import WAIT_SECONDS, Waiting
from engine.replica import Elsewhere, Replica, each_step
from engine.run import Request, Run, Step
from engine.shelf import Loading
from engine.visitors import Flag, Signal

log = logging.getLogger("batchscope.replicas")

GROUPS = {"said": 1, "loads": 1, "runs": 1, "asks": 2, "stops": 1}
"""The threads of a replica, by what they do."""

MOST_DEATHS = 3
"""One after another, in which a replica has loaded nothing; then its model can't be."""
LONGEST_PAUSE = 60.0
"""Seconds between two of more of them."""

PATIENCE = 30.0
"""Seconds that a question waits for a replica to be up again."""

Answer = TypeVar("Answer")


class Fleet:
    """So many replicas, for the names of a shelf; `where` runs run on it. Nothing of Ray is there
    before the first model is asked for.

    `address` is that of a cluster; None starts one on this machine. `how` goes to each replica's
    own shelf.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        replicas: int,
        address: str | None = None,
        log_level: str = "info",
        device: str = "auto",
        **how: Any,
    ) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.at_once = replicas
        self.changed = threading.Condition()
        self.numbers = itertools.count(1)
        self.line: list[Seat] = []
        self.keepers: list[Keeper] = []
        self.closed = threading.Event()
        self._address = address
        self._device = device
        self._how = {"log_level": logging.getLevelName(log_level.upper()), "device": device, **how}
        self._loadings: dict[str, Loading] = {}
        self._owner: threading.Thread | None = None

    # What a shelf does

    def start(self, name: str) -> Loading:
        """Have every replica load a model, unless that is under way or done; what failed is tried
        again."""
        if name not in self.names:
            raise ModelError(f"This page does not offer the model {name!r:.60}.")
        with self.changed:
            loading = self._loadings.get(name)
            if loading is None or loading.error is not None:
                count = "a replica" if self.at_once == 1 else f"{self.at_once} replicas"
                loading = self._loadings[name] = Loading(message=f"Starting {count}")
                for keeper in self.keepers:
                    keeper.models.pop(name, None)
                self.changed.notify_all()
            if self._owner is None:
                self._owner = threading.Thread(target=self._own, name="ray", daemon=True)
                self._owner.start()
            return loading

    def loaded(self, name: str) -> Elsewhere | None:
        """The model if a replica has had it already."""
        loading = self._loadings.get(name)
        return loading and loading.lm

    # Where runs run

    @property
    def where(self) -> Fleet:
        return self

    def new_flag(self) -> Flag:
        return Signal()

    def ask(self, question: Callable[..., Answer], lm: Elsewhere, *asked: Any) -> Answer:
        """Of a replica that is free, if there is one. Raises ModelError if none is up."""
        import ray

        deadline = time.monotonic() + PATIENCE
        while True:
            keeper, actor = self._up(lm.name, deadline - time.monotonic())
            answer = actor.ask.options(concurrency_group="asks").remote(lm.name, question, asked)
            try:
                return ray.get(answer)
            except ray.exceptions.RayError as error:
                if not isinstance(raised := raised_there(error), LostError):
                    raise raised from None
                keeper.lost(actor, raised)

    def show(
        self, frames: Callable[..., Iterator], lm: Elsewhere, what: Any, stop: Flag, **how: Any
    ) -> Iterator[Any]:
        """The place in the line, and then the frames; nothing if it is stopped before these. Close
        it to end what runs. Raises LostError if its replica dies."""
        joined = time.monotonic()
        with self._seat(lm.name) as seat:
            had_to_wait = not seat.wait(0)
            while not seat.wait(WAIT_SECONDS):
                if stop.is_set():
                    return
                yield self._waiting(seat, time.monotonic() - joined)
            queued = time.monotonic() - joined if had_to_wait else 0.0
            pieces = seat.keeper.begin(seat, frames, what, how)
            stop.then(partial(seat.keeper.stop, seat.number))
            with closing(whole(drawn(pieces))) as shown:
                for frame in shown:
                    is_late = isinstance(frame, Run) and queued
                    yield replace(frame, queued_seconds=queued) if is_late else frame

    def stream(
        self,
        lm: Elsewhere,
        requests: Sequence[Request],
        stop: Flag,
        *,
        batch_size: int,
        seconds: float | None,
    ) -> Followed:
        how = {"batch_size": batch_size, "seconds": seconds}
        return Followed(self.show(each_step, lm, requests, stop, **how))

    def close(self) -> None:
        """End all replicas; and Ray, where it is its own."""
        self.closed.set()
        with self.changed:
            self.changed.notify_all()
        if self._owner is not None:
            self._owner.join()

    def _own(self) -> None:
        """The thread in which Ray is started and ended."""
        try:
            cluster.connect(self._address)
            share = cluster.share_of(self.at_once, self._device)
        except ModelError as error:
            cluster.disconnect()
            with self.changed:
                self._owner = None
                for loading in self._loadings.values():
                    loading.update(error=str(error))
            return
        atexit.register(self.close)  # before Ray's own, so that no replica is made again
        replica = cluster.actors(Replica, GROUPS, share)
        self.made = partial(replica.remote, self.names, threads=share.threads, **self._how)
        with self.changed:
            self.keepers = [Keeper(self, number) for number in range(1, self.at_once + 1)]
        threads = [threading.Thread(target=keeper.keep, daemon=True) for keeper in self.keepers]
        for thread in threads:
            thread.start()
        self.closed.wait()
        for thread in threads:
            thread.join()
        cluster.disconnect()

    # The line

    @contextmanager
    def _seat(self, name: str) -> Iterator[Seat]:
        """A place in the line, and then a replica for as long as what runs there does."""
        seat = Seat(self, name)
        with self.changed:
            self.line.append(seat)
            self.match()
        try:
            yield seat
        finally:
            with self.changed:
                if seat in self.line:
                    self.line.remove(seat)
            if seat.keeper is not None:
                seat.keeper.leave(seat)

    def match(self) -> None:
        """Give each that waits, the first one first, a replica that is free and has its model."""
        for seat in list(self.line):
            free = (keeper for keeper in self.keepers if keeper.has(seat.name) and not keeper.runs)
            if (keeper := min(free, key=lambda each: each.used, default=None)) is not None:
                self.line.remove(seat)
                seat.number = keeper.runs = keeper.used = next(self.numbers)
                seat.keeper, seat.actor = keeper, keeper.actor
        self.changed.notify_all()

    def told(self, name: str) -> None:
        """What a replica has come to know of a model is what visitors are told: it is there if one
        has it, and can't be if none can have it."""
        found = [keeper.models.get(name) for keeper in self.keepers]
        loading = self._loadings[name]
        models = [each for each in found if isinstance(each, Elsewhere)]
        if models and not loading.over:
            loading.update(lm=models[0])
        if all(isinstance(each, ModelError) for each in found) and not loading.over:
            loading.update(error=str(found[0]))
        self.match()

    def wanted(self) -> list[str]:
        """The models that have been asked for."""
        return list(self._loadings)

    def say(self, keeper: Keeper, name: str, message: str) -> None:
        """How far a model is: the first replica that loads it speaks."""
        with self.changed:
            loads = next((each for each in self.keepers if name not in each.models), None)
            if loads is keeper and (loading := self._loadings[name]).message != message:
                loading.update(message=message)

    def _waiting(self, seat: Seat, seconds: float) -> Waiting | str:
        """What is shown of a place in the line. Raises ModelError if no replica will come."""
        with self.changed:
            found = [keeper.models.get(seat.name) for keeper in self.keepers]
            if all(isinstance(each, ModelError) for each in found):
                raise ModelError(str(found[0]))
            before = self.line.index(seat) if seat in self.line else 0
            ahead = before + any(keeper.runs for keeper in self.keepers)
        return Waiting(ahead, seconds) if ahead else "Waiting for a replica to be up again."

    def _up(self, name: str, seconds: float) -> tuple[Keeper, Any]:
        """A replica that has the model, a free one if there is."""

        def up() -> list[Keeper]:
            return [keeper for keeper in self.keepers if keeper.has(name)]

        with self.changed:
            if not self.changed.wait_for(up, max(0.0, seconds)):
                raise ModelError("No replica is up: try again in a minute.")
            keeper = min(up(), key=lambda each: (bool(each.runs), each.asked))
            keeper.asked += 1
            return keeper, keeper.actor


class Followed(Iterator[Step]):
    """The steps of a run on a replica, and its record."""

    def __init__(self, frames: Iterator[Any]) -> None:
        self._frames = frames
        self._run: Run | None = None
        self._unread: deque[Step] = deque()

    def __next__(self) -> Step:
        while not self._unread:
            self._follow()
        return self._unread.popleft()

    def record(self) -> Run | None:
        return self._run

    def close(self) -> None:
        self._frames.close()

    def _follow(self) -> None:
        """To the next frame. Raises what ended the run, StopIteration if nothing did."""
        try:
            frame = next(self._frames)
        except StopIteration:
            if self._run is not None and self._run.status == "error":
                raise RunError(self._run.error) from None
            raise
        except LostError as error:
            if self._run is not None:
                self._run = replace(self._run, status="error", error=str(error))
            raise
        if isinstance(frame, Run):
            seen = len(self._run.steps) if self._run else 0
            self._unread += frame.steps[seen:]
            self._run = frame


@dataclass(eq=False)
class Seat:
    """A place in the line for a model; once it has a number, a replica."""

    fleet: Fleet
    name: str
    number: int = 0
    keeper: Keeper | None = None
    actor: Any = None
    begun: bool = False

    def wait(self, timeout: float) -> bool:
        """Until it has a replica, at most so many seconds; whether it has."""
        with self.fleet.changed:
            return self.fleet.changed.wait_for(lambda: self.keeper is not None, timeout)


class Keeper:
    """Keeps one replica up: makes it, has it load what is wanted, and makes it anew when it has
    died.

    `runs` is the number of what runs on it, `used` that of the last; 0 is none.
    """

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.number = number
        self.actor: Any = None
        self.models: dict[str, Elsewhere | ModelError] = {}
        self.runs = self.used = self.asked = 0
        self._fleet = fleet
        self._deaths = 0

    def has(self, name: str) -> bool:
        return self.actor is not None and isinstance(self.models.get(name), Elsewhere)

    def begin(
        self, seat: Seat, frames: Callable[..., Iterator], what: Any, how: dict[str, Any]
    ) -> Any:
        """Run what has been given this replica -> its frames, in pieces. Whoever does not draw
        them holds them back, and not what runs."""
        pieces = seat.actor.show.options(
            num_returns="streaming",
            concurrency_group="runs",
            _generator_backpressure_num_objects=1,
        ).remote(seat.number, seat.name, frames, what, how)
        seat.begun = True
        over = partial(self._over, seat.actor, seat.number)
        pieces.completed().future().add_done_callback(over)
        return pieces

    def leave(self, seat: Seat) -> None:
        """Nobody looks at what runs any more. The replica is free once it has ended."""
        if seat.begun:
            self.stop(seat.number)
        else:
            self._free(seat.number)

    def stop(self, number: int) -> None:
        """End what has this number; harmless after its end."""
        with self._fleet.changed:
            actor = self.actor if self.runs == number else None
        if actor is not None:
            actor.stop.options(concurrency_group="stops").remote(number)

    def lost(self, actor: Any, error: LostError) -> None:
        """It has died, as somebody found out."""
        with self._fleet.changed:
            if self.actor is not actor or self._fleet.closed.is_set():
                return
            self.actor, self.models, self.runs = None, {}, 0
            self._deaths += 1
            self._fleet.changed.notify_all()
        log.warning("replica %d has died: %s", self.number, error.cause)

    def keep(self) -> None:
        """Until the fleet is closed; the keeper's thread."""
        import ray

        while not self._fleet.closed.wait(pause_after(self._deaths)):
            actor = self._fleet.made()
            with self._fleet.changed:
                self.actor = actor
            threading.Thread(target=self._listen, args=(actor,), daemon=True).start()
            while (name := self._next_to_load(actor)) is not None:
                self._load(actor, name)
            ray.kill(actor)

    def _listen(self, actor: Any) -> None:
        """Write down what it says, until it has died."""
        said = actor.said.options(num_returns="streaming", concurrency_group="said").remote()
        try:
            for record in drawn(said):
                record.msg = f"replica {self.number}: {record.msg}"
                logging.getLogger(record.name).handle(record)
        except Exception as error:
            self.lost(actor, error if isinstance(error, LostError) else LostError(str(error)))

    def _next_to_load(self, actor: Any) -> str | None:
        """A model that is wanted, as soon as there is one; None if the replica is over."""

        def found() -> str | None:
            return next((name for name in self._fleet.wanted() if name not in self.models), None)

        with self._fleet.changed:
            self._fleet.changed.wait_for(
                lambda: self._fleet.closed.is_set() or self.actor is not actor or found()
            )
            is_over = self._fleet.closed.is_set() or self.actor is not actor
            return None if is_over else found()

    def _load(self, actor: Any, name: str) -> None:
        said = actor.load.options(num_returns="streaming", concurrency_group="loads").remote(name)
        found: Elsewhere | ModelError | None = None
        try:
            for told in drawn(said):
                if isinstance(told, Elsewhere):
                    found = told
                else:
                    self._fleet.say(self, name, told)
        except LostError as error:
            self.lost(actor, error)
            if self._deaths < MOST_DEATHS or self._fleet.loaded(name):
                return
            found = ModelError(f"{name} can't be loaded: its process died.")
        except Exception as error:
            found = ModelError(str(error))
            log.warning("replica %d: %s", self.number, error)
        else:
            self._deaths = 0
        with self._fleet.changed:
            if self.actor is actor or isinstance(found, ModelError):
                self.models[name] = found
            self._fleet.told(name)

    def _over(self, actor: Any, number: int, ended: Any) -> None:
        """What ran on it has ended, in whatever way."""
        error = ended.exception() and raised_there(ended.exception())
        if isinstance(error, LostError):
            self.lost(actor, error)
        self._free(number)

    def _free(self, number: int) -> None:
        with self._fleet.changed:
            if self.runs == number:
                self.runs = 0
            self._fleet.match()


def pause_after(deaths: int) -> float:
    """Seconds before a replica is made again: none after its first death, and ever more."""
    return min(LONGEST_PAUSE, 2.0**deaths) if deaths > 1 else 0.0

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from engine import cluster
from engine.cluster import drawn, raised_there
from engine.errors import LostError, ModelError, first_line
from engine.followed import Followed
from engine.growing import whole
from engine.keeper import Keeper
from engine.live import WAIT_SECONDS, Waiting
from engine.replica import Elsewhere, Replica, each_step
from engine.run import Request, Run
from engine.shelf import Loading
from engine.visitors import Flag, Signal

log = logging.getLogger("batchscope.replicas")

GROUPS = {"said": 1, "loads": 1, "runs": 1, "asks": 2, "stops": 1}
"""The threads of a replica, by what they do."""

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
        self.over = threading.Event()
        self._closed = False
        self._failure: Exception | None = None
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
        """End all replicas, also those that load; and Ray, where it is its own."""
        with self.changed:
            self._closed, owner = True, self._owner
            self._end()
        if owner is not None:
            owner.join()

    def _own(self) -> None:
        """The thread in which Ray is started and ended. Whatever ends it but `close` is told to all
        that wait, and tried again for the next who asks for a model."""
        try:
            self._keep_up()
        except Exception as error:
            if isinstance(error, ModelError):
                told = str(error)
            else:
                log.exception("replicas can't be kept up")
                told = f"Replicas can't be kept up: {first_line(error)}."
            with self.changed:
                self.keepers = []
                if not self._closed:
                    self._owner = None
                    self.over.clear()
                for loading in self._loadings.values():
                    loading.update(lm=None, error=told)
                self.changed.notify_all()

    def _keep_up(self) -> None:
        """So many replicas, until the fleet is over. Raises ModelError if there can't be so many,
        and what Ray raises."""
        self._failure = None
        try:
            cluster.connect(self._address)
            share = cluster.share_of(self.at_once, self._device)
            atexit.register(self.close)  # before Ray's own, so that no replica is made again
            replica = cluster.actors(Replica, GROUPS, share)
            make = partial(replica.remote, self.names, threads=share.threads, **self._how)
            numbers = range(1, self.at_once + 1)
            with self.changed:
                self.keepers = [Keeper(self, number, make) for number in numbers]
            threads = [
                threading.Thread(target=self._keep, args=(keeper,), daemon=True)
                for keeper in self.keepers
            ]
            for thread in threads:
                thread.start()
            self.over.wait()
            for keeper in self.keepers:
                keeper.end()
            for thread in threads:
                thread.join()
        finally:
            cluster.disconnect()
        if self._failure is not None:
            raise self._failure

    def _keep(self, keeper: Keeper) -> None:
        """One that can't go on ends the fleet: what ails it is Ray's, and the same for all."""
        try:
            keeper.keep()
        except Exception as error:
            with self.changed:
                self._failure = error
                self._end()

    def _end(self) -> None:
        self.over.set()
        self.changed.notify_all()

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
            if error := self._loadings[seat.name].error:
                raise ModelError(error)
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

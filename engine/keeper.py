"""Keeps a replica up: makes it, has it load what is wanted, and makes it anew when it has died."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from engine import cluster
from engine.cluster import drawn, raised_there
from engine.errors import LostError, ModelError
from engine.replica import Elsewhere

if TYPE_CHECKING:
    from engine.fleet import Fleet, Seat

log = logging.getLogger("batchscope.replicas")

MOST_DEATHS = 3
"""One after another, without all that is wanted once being there; then the model that was loaded
can't be had."""
LONGEST_PAUSE = 60.0
"""Seconds between two of more of them."""


class Keeper:
    """Keeps one replica of a fleet up; `make` begins one, in a process of its own.

    `runs` is the number of what runs on it, `used` that of the last; 0 is none.
    """

    def __init__(self, fleet: Fleet, number: int, make: Callable[[], Any]) -> None:
        self.number = number
        self.actor: Any = None
        self.models: dict[str, Elsewhere | ModelError] = {}
        self.runs = self.used = self.asked = 0
        self._fleet = fleet
        self._make = make
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
        if self._give_up(actor):
            log.warning("replica %d has died: %s", self.number, error.cause)

    def _give_up(self, actor: Any) -> bool:
        """Another one takes its place. False if that is known already, or the fleet is over."""
        with self._fleet.changed:
            if self.actor is not actor or self._fleet.over.is_set():
                return False
            self.actor, self.models, self.runs = None, {}, 0
            self._deaths += 1
            self._fleet.changed.notify_all()
        return True

    def end(self) -> None:
        """Kill its process, whatever that does."""
        with self._fleet.changed:
            actor = self.actor
        if actor is not None:
            cluster.kill(actor)

    def keep(self) -> None:
        """Until the fleet is over; the keeper's thread. Raises what Ray does if it can't go on."""
        while not self._fleet.over.wait(pause_after(self._deaths)):
            actor = self._make()
            with self._fleet.changed:
                self.actor = actor
            threading.Thread(target=self._listen, args=(actor,), daemon=True).start()
            while (name := self._next_to_load(actor)) is not None:
                self._load(actor, name)
            cluster.kill(actor)

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

        def is_over() -> bool:
            return self._fleet.over.is_set() or self.actor is not actor

        with self._fleet.changed:
            self._fleet.changed.wait_for(lambda: is_over() or self._missing())
            return None if is_over() else self._missing()

    def _missing(self) -> str | None:
        """A model that is wanted, and of which it does not know yet whether it can have it."""
        return next((name for name in self._fleet.wanted() if name not in self.models), None)

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
            log.warning("replica %d: %s", self.number, error)
            if self._fleet.loaded(name):  # so it can be had: another process tries again
                self._give_up(actor)
                return
            found = ModelError(str(error))
        with self._fleet.changed:
            if self.actor is actor or isinstance(found, ModelError):
                self.models[name] = found
            if self.actor is actor and self._missing() is None:
                self._deaths = 0
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
    return min(LONGEST_PAUSE, 2.0 ** min(deaths, 10)) if deaths > 1 else 0.0

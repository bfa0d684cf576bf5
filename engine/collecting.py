"""Requests that arrive one by one -> static batches: who comes within a window shares one.

A full batch starts at once, any other when its first call has waited for the window. Who comes
later waits for the next batch, also where a row of this one has ended long ago: that is what a
static batch costs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, count
from typing import NamedTuple

from engine.errors import BatchscopeError, RequestError, RunError
from engine.loglines import figures_line, prompts_line
from engine.run import End, Request, Run, Step
from engine.served import Served, Traffic
from engine.visitors import Signal
from engine.where import Here, Named, Stream, Where

log = logging.getLogger("batchscope.collecting")

RECENT = 8
"""Batches that are over and still remembered."""


class FullError(RequestError):
    """As many requests wait as may."""


def check_room(waiting: int, more: int, *, most: int) -> None:
    """Raises FullError where so many requests more would be too many to wait."""
    if waiting + more > most:
        raise FullError(
            f"{waiting} requests wait already, and at most {most} may: try again in a moment."
        )


class Started(NamedTuple):
    """A call's first row runs: what it has waited for that (seconds), and with how many rows."""

    waited: float
    rows: int


class Wrote(NamedTuple):
    """A row of a call has one token more: the text that became readable with it, and why the row
    ends with it."""

    row: int
    text: str
    end: End | None


class Over(NamedTuple):
    """The last thing a call is told: all of its rows have ended, or why they can't."""

    error: BatchscopeError | None


News = Started | Wrote | Over

Report = Callable[[Served], None]


class Call:
    """Requests that came together and run together. `tell` hears what becomes of them, in the
    engine's thread, which it must not hold up. `prompts` is what they say, if that is kept."""

    def __init__(
        self,
        requests: Sequence[Request],
        tell: Callable[[News], None],
        *,
        window: float,
        prompts: Sequence[str] = (),
    ) -> None:
        self.requests = tuple(requests)
        self.prompts = tuple(prompts)
        self.tell = tell
        self.arrived = time.perf_counter()
        self.due = self.arrived + window
        self.started: float | None = None
        self.left: float | None = None
        self.going = len(requests)
        self._had: set[int] = set()

    @property
    def waited(self) -> float:
        """Seconds from its arrival to its first forward."""
        return (self.started or time.perf_counter()) - self.arrived

    def has_left(self, row: int) -> bool:
        """Whether its client left before this row's end."""
        return self.left is not None and row not in self._had

    def write(self, row: int, text: str, end: End | None) -> None:
        if end is not None and self.left is None:
            self._had.add(row)
        self.tell(Wrote(row, text, end))
        self.going -= end is not None
        if not self.going:
            self.tell(Over(None))


class Seat(NamedTuple):
    """Which row of which call."""

    call: Call
    row: int


class Shared:
    """What is known of a batch while it runs: whose rows share it, and since when."""

    def __init__(self, number: int, calls: Sequence[Call]) -> None:
        self.number = number
        self.calls = tuple(calls)
        self.stop = Signal()
        self._stream: Stream | None = None
        self._began: float | None = None
        self._seats = [Seat(call, row) for call in calls for row in range(len(call.requests))]

    def run(self, where: Where, lm: Named, *, batch_size: int, seconds: float | None) -> None:
        """To the end; every call hears of each of its tokens. Raises BatchscopeError."""
        asked = [call.requests[row] for call, row in self._seats]
        requests = [replace(request, index=index) for index, request in enumerate(asked)]
        self._stream = where.stream(lm, requests, self.stop, batch_size=batch_size, seconds=seconds)
        with closing(self._stream):
            for step in self._stream:
                self._tell(step, self._seats[step.batch * batch_size :])

    def stop_if_nobody_waits(self) -> None:
        """Each of the clients has all of its answer, or has left."""
        if all(call.left is not None or not call.going for call in self.calls):
            self.stop.set()

    def record(self) -> Run | None:
        """The run so far; None before it has a replica, or a place in the line for the device."""
        return self._stream and self._stream.record()

    def served(self) -> Served | None:
        """The batch so far; None before there is a record of it."""
        if (run := self.record()) is None:
            return None
        calls = [call for call, _ in self._seats]
        return Served(
            number=self.number,
            run=run,
            waited=tuple(call.waited for call in calls),
            left=tuple(self._left(seat) for seat in self._seats),
            prompts=tuple(prompt for call in self.calls for prompt in call.prompts),
        )

    def _left(self, seat: Seat) -> float | None:
        if not seat.call.has_left(seat.row):
            return None
        return max(0.0, seat.call.left - self._began) if self._began else 0.0

    def _tell(self, step: Step, seats: Sequence[Seat]) -> None:
        now = time.perf_counter()
        self._began = self._began or now - step.finished
        rows = len(step.tokens)
        for (call, row), token, piece, end in zip(
            seats[:rows], step.tokens, step.pieces, step.ends, strict=True
        ):
            if token is None:
                continue
            if call.started is None:
                call.started = now - step.seconds
                call.tell(Started(call.waited, rows))
            call.write(row, piece, end)
        if any(call.left is not None for call in self.calls):
            self.stop_if_nobody_waits()


class Collector:
    """Collects the calls for one model and runs them, batch after batch, in a thread that is there
    as long as there is something to run; in several where several batches can run at once.

    A call with more rows than `batch_size` runs by itself, in consecutive batches. `window` is in
    seconds, `most_waiting` counts requests, and `seconds` is how long a batch may have the device.
    `report` is called with each batch that is over, in the collector's thread. The log says what
    prompts say only with `log_prompts`.
    """

    def __init__(
        self,
        lm: Named,
        *,
        batch_size: int,
        window: float,
        most_waiting: int,
        seconds: float | None = None,
        where: Where | None = None,
        report: Report | None = None,
        log_prompts: bool = False,
    ) -> None:
        self.lm = lm
        self.batch_size = batch_size
        self.traffic = Traffic()
        self._window = window
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._where = where or Here()
        self._report = report
        self._log_prompts = log_prompts
        self._numbers = count(1)
        self._changed = threading.Condition()
        self._waiting: list[Call] = []
        self._running: list[Shared] = []
        self._most = batch_size  # rows of the next batch: fewer where these did not fit the memory
        self._collecting = False
        self._threads = 0
        self._recent: deque[Served] = deque(maxlen=RECENT)

    @property
    def waiting(self) -> int:
        """Requests of which there is no record yet: their batch is collected, or in the line for a
        replica."""
        return _rows(self._without_record())

    @property
    def first_waits(self) -> float:
        """For how long the request that waits longest has, in seconds; 0 where none does."""
        return max((call.waited for call in self._without_record()), default=0.0)

    @property
    def recent(self) -> tuple[Served, ...]:
        """The last batches, the newest last; the one under way is not among them."""
        with self._changed:
            return tuple(self._recent)

    @property
    def current(self) -> Served | None:
        """The batch under way, or in line for the device; the oldest, if there are several."""
        return next(iter(self.under_way), None)

    @property
    def under_way(self) -> tuple[Served, ...]:
        """All batches of which there is a record, the oldest first: they are under way, or in line
        for the device of this process."""
        with self._changed:
            running = list(self._running)
        return tuple(served for shared in running if (served := shared.served()))

    def _without_record(self) -> list[Call]:
        with self._changed:
            running, waiting = list(self._running), list(self._waiting)
        in_line = [shared for shared in running if shared.record() is None]
        return [call for shared in in_line for call in shared.calls] + waiting

    def submit(
        self,
        requests: Sequence[Request],
        tell: Callable[[News], None],
        *,
        prompts: Sequence[str] = (),
    ) -> Call:
        """Take these requests into the next batch that has room. They must fit the model: what is
        found out later ends all that share the batch. `prompts` is what they say, to be logged or
        shown. Raises FullError."""
        call = Call(requests, tell, window=self._window, prompts=prompts)
        with self._changed:
            check_room(_rows(self._waiting), len(requests), most=self._most_waiting)
            self._waiting.append(call)
            self._changed.notify_all()
            self._begin()
        return call

    def leave(self, call: Call) -> None:
        """Nobody waits for this call any more. If it has not begun it never will; if it has, its
        rows go on, since the others of their batch can't do without, until all have left. Harmless
        after its end."""
        with self._changed:
            if not call.going or call.left is not None:
                return
            call.left = time.perf_counter()
            if call in self._waiting:
                self._waiting.remove(call)
                self._changed.notify_all()
            for shared in self._running:
                if call in shared.calls:
                    shared.stop_if_nobody_waits()

    def _begin(self) -> None:
        """A thread for what waits, unless one collects it already, or as many run as may."""
        if self._waiting and not self._collecting and self._threads < self._where.at_once:
            self._threads += 1
            threading.Thread(target=self._serve, name="collector", daemon=True).start()

    def _serve(self) -> None:
        """A thread of the collector."""
        while shared := self._next():
            calls = shared.calls
            try:
                self._run(shared)
                with self._changed:
                    self._most = min(2 * self._most, self.batch_size)
            except RequestError as error:
                # Each of them fits the model, so it is the memory that all together don't fit.
                if len(calls) == 1:
                    _end(calls, error)
                else:
                    self._put_back(calls)
            except BatchscopeError as error:
                _end(calls, error)
            except Exception:
                log.exception("a batch can't be run")
                _end(calls, RunError("The batch can't be run."))

    def _next(self) -> Shared | None:
        """The next batch, once it is full or its window over. None, and the end of the thread, if
        nobody waits, or another one collects."""
        with self._changed:
            calls = [] if self._collecting else self._collected()
            if not calls:
                self._threads -= 1
                return None
            shared = Shared(next(self._numbers), calls)
            self._running.append(shared)
            self._begin()
        return shared

    def _collected(self) -> list[Call]:
        self._collecting = True
        while self._waiting and _rows(self._waiting) < self.batch_size:
            rest = self._waiting[0].due - time.perf_counter()
            if rest <= 0:
                break
            self._changed.wait(rest)
        self._collecting = False
        calls = _first(self._waiting, self._most)
        del self._waiting[: len(calls)]
        return calls

    def _run(self, shared: Shared) -> None:
        calls, runs_again = shared.calls, False
        try:
            shared.run(self._where, self.lm, batch_size=self.batch_size, seconds=self._seconds)
        except RequestError:
            runs_again = len(calls) > 1
            raise
        finally:
            served = shared.served()
            with self._changed:
                self._running.remove(shared)
                self._recent += [served] if served else []
            if served:
                self._log(served, len(calls))
            if served and not runs_again:
                self.traffic.add(served)
                if self._report:
                    self._report(served)

    def _log(self, served: Served, calls: int) -> None:
        told = figures_line(served.run)
        if self._log_prompts:
            told += prompts_line(served.prompts)
        who = "1 call" if calls == 1 else f"{calls} calls"
        log.info("batch of %s %s: %s", who, served.run.status, told)

    def _put_back(self, calls: Sequence[Call]) -> None:
        """In front of all others, and not to wait any longer; half as many share the next batch."""
        for call in calls:
            call.due = call.arrived
        with self._changed:
            self._most = max(1, _rows(calls) // 2)
            self._waiting[:0] = [call for call in calls if call.left is None]
            self._changed.notify_all()


def _first(waiting: Sequence[Call], most: int) -> list[Call]:
    """As many calls, from the first one on, as have so many rows together; at least one."""
    sizes = accumulate(len(call.requests) for call in waiting)
    fitting = sum(rows <= most for rows in sizes)
    return list(waiting[: max(1, fitting)])


def _rows(calls: Sequence[Call]) -> int:
    return sum(len(call.requests) for call in calls)


def _end(calls: Sequence[Call], error: BatchscopeError) -> None:
    for call in calls:
        if call.going:
            call.going = 0
            call.tell(Over(error))

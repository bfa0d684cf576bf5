"""What each visitor has under way: one run, which Stop reaches, and one thing that is told."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.errors import RequestError


class StillRunningError(RequestError):
    """A visitor has one run at a time."""


class Flag(Protocol):
    """What ends a run when it is set; a `threading.Event` is one."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class StopFlag:
    """A flag that reaches a run in a forked process too: it is set once its file is gone.

    Asking costs a microsecond, once a step.
    """

    path: Path

    @classmethod
    def new(cls) -> StopFlag:
        handle, path = tempfile.mkstemp(prefix="batchscope-run-")
        os.close(handle)
        return cls(Path(path))

    def set(self) -> None:
        self.path.unlink(missing_ok=True)

    def is_set(self) -> bool:
        return not self.path.exists()


class Signal(threading.Event):
    """A flag that tells whoever asked for it as soon as it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._told: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            super().set()
            told, self._told = self._told, []
        for tell in told:
            tell()

    def then(self, tell: Callable[[], None]) -> None:
        """Call it once the flag is set; now, if it is."""
        with self._lock:
            if not self.is_set():
                self._told.append(tell)
                return
        tell()


class LatestOnly:
    """A flag per visitor that is set once the visitor has begun something else."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._flags: dict[str, threading.Event] = {}

    @contextmanager
    def flag(self, visitor: str) -> Iterator[threading.Event]:
        """A flag that `end(visitor)` sets, and the visitor's next one does."""
        flag = threading.Event()
        with self._lock:
            self.end(visitor)
            self._flags[visitor] = flag
        try:
            yield flag
        finally:
            with self._lock:
                if self._flags.get(visitor) is flag:
                    del self._flags[visitor]

    def end(self, visitor: str) -> None:
        with self._lock:
            if visitor in self._flags:
                self._flags.pop(visitor).set()


class StopFlags:
    """A flag per visitor, set by Stop and read by the engine at every step.

    `most` runs, of all visitors together, are under way or wait; `new` makes a flag for one.
    Nothing is rationed by address: behind a proxy or in a lecture hall all visitors have the same.
    """

    def __init__(self, *, most: int, new: Callable[[], Flag] = StopFlag.new) -> None:
        self._most = most
        self._new = new
        self._lock = threading.Lock()
        self._flags: dict[str, Flag] = {}

    @contextmanager
    def flag(self, visitor: str) -> Iterator[Flag]:
        """A flag that `stop(visitor)` sets, for as long as the run lasts.

        Raises StillRunningError if the visitor has one already, RequestError if too many have.
        """
        with self._lock:
            if visitor in self._flags:
                raise StillRunningError("Your last run is still under way: stop it, or wait.")
            if len(self._flags) >= self._most:
                runs = "1 run is" if self._most == 1 else f"{self._most} runs are"
                raise RequestError(
                    f"{runs} under way or waiting, as many as this host takes: "
                    "try again in a minute."
                )
            flag = self._flags[visitor] = self._new()
        try:
            yield flag
        finally:
            with self._lock:
                del self._flags[visitor]
            flag.set()  # nobody reads it any more: its file goes

    def stop(self, visitor: str) -> None:
        with self._lock:
            if visitor in self._flags:
                self._flags[visitor].set()

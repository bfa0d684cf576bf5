"""Who has a run under way: one each, and Stop reaches one's own and no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import RequestError


class StillRunningError(RequestError):
    """A visitor has one run at a time."""


class StopFlags:
    """A flag per visitor, set by Stop and read by the engine at every step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flags: dict[str, threading.Event] = {}

    @contextmanager
    def flag(self, visitor: str) -> Iterator[threading.Event]:
        """A flag that `stop(visitor)` sets, for as long as the run lasts. Raises
        StillRunningError if the visitor has one already."""
        flag = threading.Event()
        with self._lock:
            if visitor in self._flags:
                raise StillRunningError("Your last run is still under way: stop it, or wait.")
            self._flags[visitor] = flag
        try:
            yield flag
        finally:
            with self._lock:
                del self._flags[visitor]

    def stop(self, visitor: str) -> None:
        with self._lock:
            if visitor in self._flags:
                self._flags[visitor].set()

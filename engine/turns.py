"""One run at a time on a device, first come first served, and everyone knows their place."""

from __future__ import annotations

import threading
from collections import defaultdict


class Turns:
    """A fair lock that tells how many are ahead."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: list[Turn] = []

    def __len__(self) -> int:
        """Turns running or waiting."""
        return len(self._line)


class Turn:
    """One place in the line: `wait` for it, and always `leave`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        with turns._changed:
            turns._line.append(self)

    @property
    def ahead(self) -> int:
        """Runs that come first; 0 when it is this one's turn."""
        with self._turns._changed:
            return self._turns._line.index(self) if self in self._turns._line else 0

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is this one's turn, at most `timeout` seconds; False if it is not."""
        with self._turns._changed:
            return self._turns._changed.wait_for(
                lambda: self._turns._line and self._turns._line[0] is self, timeout
            )

    def leave(self) -> None:
        """Give up the place, whether running or waiting; harmless if called twice."""
        with self._turns._changed:
            if self in self._turns._line:
                self._turns._line.remove(self)
                self._turns._changed.notify_all()


_turns_by_device: defaultdict[str, Turns] = defaultdict(Turns)


def turns_on(device: object) -> Turns:
    """The line in front of a device, one for the whole process."""
    return _turns_by_device[str(device)]

"""One run at a time on a device, first come first served, and everyone knows their place."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Turns:
    """A fair lock that tells how many are ahead."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.line: list[Turn] = []

    def __len__(self) -> int:
        """Turns running or waiting."""
        return len(self.line)

    def join(self) -> Turn:
        """A place at the end of the line."""
        turn = Turn(self)
        with self.changed:
            self.line.append(turn)
        return turn

    def present(self) -> list[Turn]:
        """Who runs or waits now, in order."""
        with self.changed:
            return list(self.line)

    def remaining(self, turns: Iterable[Turn]) -> int:
        """How many of these have not left."""
        with self.changed:
            return sum(turn in self.line for turn in turns)


class Turn:
    """One place in the line: `wait` for it, and always `leave`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    @property
    def ahead(self) -> int:
        """Runs that come first; 0 when it is this one's turn."""
        with self._turns.changed:
            return self._turns.line.index(self) if self in self._turns.line else 0

    def wait(self, timeout: float) -> bool:
        """Block until it is this one's turn, at most `timeout` seconds; False if it is not."""
        with self._turns.changed:
            return self._turns.changed.wait_for(lambda: self._turns.line[:1] == [self], timeout)

    def leave(self) -> None:
        """Give up the place, whether running or waiting; harmless if called twice."""
        with self._turns.changed:
            if self in self._turns.line:
                self._turns.line.remove(self)
                self._turns.changed.notify_all()


_turns_by_device: dict[str, Turns] = {}


def turns_on(device: object) -> Turns:
    """The line in front of a device, one for the whole process."""
    return _turns_by_device.setdefault(str(device), Turns())

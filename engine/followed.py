"""A run on a replica, followed step by step as if it were here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.errors import LostError, RunError
from engine.run import Run, Step


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

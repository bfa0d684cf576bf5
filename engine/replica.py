"""What a replica does: it keeps models of its own, in a process of its own, and runs what it is
given on them (engine.fleet gives it)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from engine.growing import in_pieces
from engine.live import EngineThread
from engine.logs import OneLine
from engine.run import Request, Run
from engine.shelf import ModelShelf
from engine.visitors import Flag

if TYPE_CHECKING:
    from engine.models import LanguageModel


@dataclass(frozen=True)
class Elsewhere:
    """A model whose weights lie in other processes."""

    name: str
    notes: tuple[str, ...]


class Replica:
    """One thing runs at a time, and each has a greater number than the one before; questions and
    the word to stop come beside it, from other threads.

    `threads` is how many a product may use; None leaves it to torch.
    """

    def __init__(
        self, names: Sequence[str], *, log_level: int, threads: int | None, **how: Any
    ) -> None:
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # torch, not there yet, reads it
        self._said: SimpleQueue[logging.LogRecord] = SimpleQueue()
        log = logging.getLogger("batchscope")
        log.setLevel(log_level)
        log.addHandler(Teller(self._said))
        log.propagate = False
        self._shelf = ModelShelf(names, **how)
        self._stopped = 0

    def said(self) -> Iterator[logging.LogRecord]:
        """Every line of its log, for as long as it lives."""
        while True:
            yield self._said.get()

    def load(self, name: str) -> Iterator[str | Elsewhere]:
        """What is being done, and the model in the end. Raises ModelError."""
        loading = self._shelf.start(name)
        yield from loading.messages()
        lm = loading.result()
        yield Elsewhere(lm.name, lm.notes)

    def ask(self, name: str, question: Callable[..., Any], asked: tuple[Any, ...]) -> Any:
        """What a function says of a model. Raises what it raises."""
        return question(self._shelf.loaded(name), *asked)

    def show(
        self,
        number: int,
        name: str,
        frames: Callable[..., Any],
        what: Any,
        how: dict[str, Any],
    ) -> Iterator[Any]:
        """The frames of what runs on a model, in pieces (engine.growing)."""
        stop = UpTo(self, number)
        yield from in_pieces(frames(self._shelf.loaded(name), what, stop, **how))

    def stop(self, number: int) -> None:
        """End what has this number, or a smaller one, also if it has not begun."""
        self._stopped = max(self._stopped, number)

    def is_stopped(self, number: int) -> bool:
        return number <= self._stopped


@dataclass(frozen=True)
class UpTo:
    """The flag of what has a number."""

    replica: Replica
    number: int

    def set(self) -> None:
        self.replica.stop(self.number)

    def is_set(self) -> bool:
        return self.replica.is_stopped(self.number)


class Teller(QueueHandler):
    """Keeps lines of a log for another process."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        told = copy(record)
        told.msg, told.args = record.getMessage(), None
        if record.exc_info:
            told.exc_text, told.exc_info = OneLine().formatException(record.exc_info), None
        return told


def each_step(
    lm: LanguageModel,
    requests: Sequence[Request],
    stop: Flag,
    *,
    batch_size: int,
    seconds: float | None,
) -> Iterator[Run]:
    """The record of a run before its first step, whenever it has more of them, and at its end. What
    breaks the run is in it; RequestError after it if it can't be run."""
    from engine import StaticBatchEngine

    stream = StaticBatchEngine(lm, batch_size=batch_size).stream(
        requests, stop=stop, seconds=seconds
    )
    first = stream.record()
    engine = EngineThread(stream)
    try:
        yield first
        while not engine.over.is_set():
            engine.wait_for_step()
            if not engine.over.is_set():
                yield stream.record()
        yield stream.record()
        engine.result()
    finally:
        stop.set()

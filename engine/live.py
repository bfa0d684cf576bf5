"""A run as plain frames, for a page: the engine in a thread of its own, which never waits for them.

On a ZeroGPU host the body of `frames` runs in a worker that was forked after the models were
loaded: what goes in and what comes out is pickled, nothing else is shared, and the engine's loop
stays inside the generator.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from engine.errors import BatchscopeError, RunError
from engine.run import PaddingSide, Request, Run
from engine.visitors import Flag

if TYPE_CHECKING:
    from engine.compare import ComparisonStream
    from engine.comparison import Comparison
    from engine.models import LanguageModel
    from engine.static import RunStream

FRAME_SECONDS = 0.1
WAIT_SECONDS = 0.5

ON_ZERO_GPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
"""Whether this host lends a GPU for the time of a run, to a forked worker."""


@dataclass(frozen=True)
class Waiting:
    """The run stands in line: so many others come first, and it has waited so long (seconds)."""

    ahead: int
    seconds: float


@dataclass(frozen=True)
class Refused:
    """The run can't be: a BatchscopeError's sentence, which a worker could not raise."""

    sentence: str


Frame = Waiting | Refused | Run


Shown = TypeVar("Shown", bound=Callable[..., Iterator])


def lent_gpu(seconds_of: Callable[..., int]) -> Callable[[Shown], Shown]:
    """Decorates a generator, which then runs in a worker with a GPU where the host lends one;
    `seconds_of` its arguments is for how long."""
    if not ON_ZERO_GPU:
        return lambda frames: frames
    import spaces  # it patches torch, which must not be there before it

    return partial(spaces.GPU, duration=seconds_of)


def gpu_seconds(
    _lm: LanguageModel,
    requests: Sequence[Request],
    _stop: Flag,
    *,
    batch_size: int,
    seconds: int,
    **_: object,
) -> int:
    """For how long to ask for a GPU: its start, and 50 ms a step; at most two minutes, or what a
    run may take here."""
    budgets = [request.max_new_tokens for request in requests]
    starts = range(0, len(budgets), batch_size)
    steps = sum(max(budgets[start : start + batch_size]) for start in starts)
    return min(120, seconds, 15 + steps // 20)


@lent_gpu(gpu_seconds)
def frames(
    lm: LanguageModel,
    requests: Sequence[Request],
    stop: Flag,
    *,
    batch_size: int,
    padding_side: PaddingSide,
    chat_template: bool,
    seconds: int,
) -> Iterator[Frame]:
    """Run the requests: its place in the line, then the record so far, at most ten a second and
    always the newest, and once more at the end.

    Close it to end the run: the device is free once the forward under way is over. `seconds` is how
    long the run may have the device.
    """
    from engine import StaticBatchEngine

    try:
        engine = StaticBatchEngine(
            lm, batch_size=batch_size, padding_side=padding_side, chat_template=chat_template
        )
        stream = engine.stream(requests, stop=stop, seconds=seconds)
        yield from _in_line(stream, stop)
        yield from inside(stream) if ON_ZERO_GPU else _beside(stream)
    except BatchscopeError as error:
        yield Refused(str(error))


def _in_line(stream: RunStream, stop: Flag) -> Iterator[Waiting]:
    """What is shown until it is the run's turn. Raises RequestError if it turns out not to fit into
    memory."""
    joined = time.monotonic()
    try:
        while not stream.wait_turn(WAIT_SECONDS):
            yield Waiting(stream.ahead, time.monotonic() - joined)
        if not stop.is_set():
            stream.check_memory()  # before there is a picture
    except BaseException:
        stream.close()
        raise


def _beside(stream: RunStream) -> Iterator[Run]:
    """What is shown of a run that goes on in another thread meanwhile. Raises what ends the run,
    except RunError: the record, which comes last, says so."""
    first = stream.record()
    engine = EngineThread(stream)
    try:
        yield first
        while not engine.over.wait(FRAME_SECONDS):
            engine.wait_for_step()
            if not engine.over.is_set():
                yield stream.record()
        engine.result()
        yield stream.record()
    finally:
        # Whoever closes a generator may be the loop that serves all visitors, and a forward can
        # take long: it is told to end and not waited for.
        stream.stop()


class EngineThread:
    """Draws the steps of a run as fast as they come, and closes it: nothing that becomes of them
    holds up a forward. The thread ends with its run; `over` is set then."""

    def __init__(self, stream: RunStream) -> None:
        self.over = threading.Event()
        self._stream = stream
        self._stepped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def wait_for_step(self) -> None:
        """Until there is a step that came after the last call, or the run is over."""
        self._stepped.wait()
        self._stepped.clear()

    def result(self) -> None:
        """Wait for the end; raises what ended the run, if it is not in the record."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with closing(self._stream), suppress(RunError):
                for _ in self._stream:
                    self._stepped.set()
        except Exception as error:
            self._error = error
        finally:
            self.over.set()
            self._stepped.set()


def inside(stream: RunStream | ComparisonStream) -> Iterator[Run | Comparison]:
    """What is shown of what goes on between the frames."""
    with closing(stream):
        yield stream.record()
        shown = time.monotonic()
        with suppress(RunError):
            for _ in stream:
                if time.monotonic() - shown >= FRAME_SECONDS:
                    yield stream.record()
                    shown = time.monotonic()
        yield stream.record()

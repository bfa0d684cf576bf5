"""A run as plain frames, for a page: one generator on every host, also where ZeroGPU forks it.

On a ZeroGPU host the body of `frames` runs in a worker that was forked after the models were
loaded: what goes in and what comes out is pickled, and nothing else is shared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import BatchscopeError, RunError
from engine.run import PaddingSide, Request, Run
from engine.visitors import Flag

if TYPE_CHECKING:
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


def with_lent_gpu(frames: Callable[..., Iterator[Frame]]) -> Callable[..., Iterator[Frame]]:
    """The generator, in a worker with a GPU where the host lends one."""
    if not ON_ZERO_GPU:
        return frames
    import spaces  # it patches torch, which must not be there before it

    return spaces.GPU(frames, duration=gpu_seconds)


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


@with_lent_gpu
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
    always the newest, and once more at the end. Close it to end the run.

    `seconds` is how long it may have the device.
    """
    from engine import StaticBatchEngine

    try:
        engine = StaticBatchEngine(
            lm, batch_size=batch_size, padding_side=padding_side, chat_template=chat_template
        )
        with closing(engine.stream(requests, stop=stop, seconds=seconds)) as stream:
            yield from _shown(stream, stop)
    except BatchscopeError as error:
        yield Refused(str(error))


def _shown(stream: RunStream, stop: Flag) -> Iterator[Waiting | Run]:
    """What is shown of a run. Raises RequestError if it turns out not to fit into memory."""
    joined = time.monotonic()
    while not stream.wait_turn(WAIT_SECONDS):
        yield Waiting(stream.ahead, time.monotonic() - joined)
    if not stop.is_set():
        stream.check_memory()  # before there is a picture
    yield stream.record()
    shown = time.monotonic()
    with suppress(RunError):  # the record, which comes last, says so
        for _ in stream:
            if time.monotonic() - shown >= FRAME_SECONDS:
                yield stream.record()
                shown = time.monotonic()
    yield stream.record()

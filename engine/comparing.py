"""A comparison as plain frames, for a page: its runs in a thread of their own, which never waits
for them.

On a ZeroGPU host the body of `compare_frames` runs in a worker that was forked after the models
were loaded; there the runs go on between the frames, as the loop of a single run does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.comparison import Comparison
from engine.errors import BatchscopeError
from engine.live import (
    FRAME_SECONDS,
    ON_ZERO_GPU,
    EngineThread,
    Refused,
    Waiting,
    inside,
    lent_gpu,
)
from engine.run import PaddingSide, Request
from engine.visitors import Flag

if TYPE_CHECKING:
    from engine.compare import ComparisonStream
    from engine.models import LanguageModel

CompareFrame = Waiting | Refused | Comparison


def compare_gpu_seconds(
    _lm: LanguageModel,
    requests: Sequence[Request],
    _stop: Flag,
    *,
    seconds: int,
    **_: object,
) -> int:
    """For how long to ask for a GPU: its start and the warm-ups, and 50 ms a step, of which the
    serial run has most by far; at most two minutes, or what a run may take here."""
    steps = 2 * sum(request.max_new_tokens for request in requests)
    return min(120, seconds, 20 + steps // 20)


@lent_gpu(compare_gpu_seconds)
def compare_frames(
    lm: LanguageModel,
    requests: Sequence[Request],
    stop: Flag,
    *,
    batch_size: int,
    padding_side: PaddingSide,
    chat_template: bool,
    seconds: int,
) -> Iterator[CompareFrame]:
    """Run the requests by each engine: the place in the line before each run, then the comparison
    so far, at most ten times a second and always the newest, and once more at the end.

    Close it to end the comparison. `seconds` is how long its runs may have the device together.
    """
    from engine.compare import compare

    try:
        stream = compare(
            lm,
            requests,
            batch_size=batch_size,
            padding_side=padding_side,
            chat_template=chat_template,
            stop=stop,
            seconds=seconds,
        )
        yield from inside(stream) if ON_ZERO_GPU else _beside(stream)
    except BatchscopeError as error:
        yield Refused(str(error))


def _beside(stream: ComparisonStream) -> Iterator[Waiting | Comparison]:
    """What is shown of a comparison that goes on in another thread meanwhile."""
    engine = EngineThread(stream)
    shown, since = stream.record(), time.monotonic()
    try:
        yield shown
        while not engine.over.wait(FRAME_SECONDS):
            if ahead := stream.ahead:
                yield Waiting(ahead, time.monotonic() - since)
                continue
            since = time.monotonic()
            if (newest := stream.record()) != shown:
                yield newest
                shown = newest
        engine.result()
        yield stream.record()
    finally:
        # Whoever closes a generator may be the loop that serves all visitors, and a forward can
        # take long: it is told to end and not waited for.
        stream.stop()

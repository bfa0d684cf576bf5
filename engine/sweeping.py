"""A sweep as plain frames, for a page: measured in a thread of its own, which never waits for them.

On a ZeroGPU host the body of `sweep_frames` runs in a worker that was forked after the models were
loaded; there it is measured between the frames, as the loop of a run is.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.errors import BatchscopeError
from engine.live import FRAME_SECONDS, ON_ZERO_GPU, WAIT_SECONDS, Refused, Waiting, lent_gpu
from engine.sweep import Progress, Rates, Sweep
from engine.turns import Turn, Turns, turns_on
from engine.visitors import Flag

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from engine.models import LanguageModel

WARMUP = 1
"""Runs of each size before those that are timed."""

_rates: WeakKeyDictionary[PreTrainedModel, Rates] = WeakKeyDictionary()
"""What the device can do with a model's numbers, measured by the first sweep on it."""

SweepFrame = Waiting | Refused | Progress | Sweep
News = Iterator[Progress | Sweep]


def sweep_gpu_seconds(
    _lm: LanguageModel,
    batch_sizes: Sequence[int],
    _stop: Flag,
    *,
    max_new_tokens: int,
    runs: int,
    seconds: int,
    **_: object,
) -> int:
    """For how long to ask for a GPU: its start and its rates, and 50 ms a step; at most two
    minutes, or what a run may take here."""
    steps = len(batch_sizes) * (WARMUP + runs) * max_new_tokens
    return min(120, seconds, 20 + steps // 20)


@lent_gpu(sweep_gpu_seconds)
def sweep_frames(
    lm: LanguageModel,
    batch_sizes: Sequence[int],
    stop: Flag,
    *,
    prompt: str,
    max_new_tokens: int,
    runs: int,
    seconds: int,
) -> Iterator[SweepFrame]:
    """Measure the sizes: the place in the line before each run, what is under way, and the sweep so
    far, at most ten times a second and always the newest; the sweep's end comes last.

    Close it to end the sweep. `seconds` is how long it may take, without waiting in line; what was
    measured until then is kept.
    """
    from engine.bench import measure_sweep

    deadline = Deadline(stop, seconds)
    try:
        news = measure_sweep(
            lm,
            batch_sizes=batch_sizes,
            prompts=[prompt],
            max_new_tokens=max_new_tokens,
            runs=runs,
            warmup=WARMUP,
            memory=False,
            rates=_rates.get(lm.model),
            stop=deadline,
        )
        shown = news if ON_ZERO_GPU else _beside(news, turns_on(lm.device), deadline)
        for frame in shown:
            if isinstance(frame, Sweep) and frame.rates:
                _rates[lm.model] = frame.rates
            yield deadline.explain(frame) if isinstance(frame, Sweep) else frame
    except BatchscopeError as error:
        yield Refused(str(error))
    finally:
        # Whoever closes a generator may be the loop that serves all visitors: the run under way is
        # told to end and not waited for.
        deadline.set()


class Deadline:
    """A flag that is set when another one is, and after so many seconds without the waiting."""

    def __init__(self, flag: Flag, seconds: float) -> None:
        self._flag = flag
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._closed = False

    def set(self) -> None:
        self._closed = True

    def is_set(self) -> bool:
        return self._closed or self._is_over or self._flag.is_set()

    def put_off(self, seconds: float) -> None:
        """Time that was spent in line does not count."""
        self._ends += seconds

    def explain(self, sweep: Sweep) -> Sweep:
        """A sweep that was stopped because its time was over ended in an error that says so."""
        if sweep.status != "stopped" or self._flag.is_set() or not self._is_over:
            return sweep
        reason = f"The sweep took longer than this host allows: {self._seconds:g} s."
        return replace(sweep, status="error", error=reason)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._ends


def _beside(news: News, turns: Turns, deadline: Deadline) -> Iterator[Waiting | Progress | Sweep]:
    """What is shown of a sweep that goes on in another thread meanwhile."""
    bench = BenchThread(news, turns)
    since = time.monotonic()
    while True:
        fresh = bench.newest(WAIT_SECONDS)
        now = time.monotonic()
        if ahead := bench.ahead():
            deadline.put_off(now - since)
        since = now
        yield from fresh
        if bench.is_over:
            return
        if ahead:
            yield Waiting(ahead, bench.waited)
        elif fresh:
            time.sleep(FRAME_SECONDS)


class BenchThread:
    """Measures as fast as it goes; nothing that becomes of the news holds up a run.

    Each run of the sweep joins the line as soon as the one before is over, so that others may come
    between: who stood there then is ahead of it.
    """

    def __init__(self, news: News, turns: Turns) -> None:
        self._news = news
        self._turns = turns
        self._before: tuple[list[Turn], float] = ([], 0.0)  # who is ahead, and since when
        self._heard: queue.SimpleQueue[Progress | Sweep | Exception | None] = queue.SimpleQueue()
        self.is_over = False
        threading.Thread(target=self._measure, name="bench", daemon=True).start()

    def newest(self, timeout: float) -> list[Progress | Sweep]:
        """The newest Sweep and the newest Progress since the last call, the older one first;
        nothing after `timeout` seconds without any. Raises what broke the sweep."""
        found: dict[type, Progress | Sweep] = {}
        try:
            item = self._heard.get(timeout=timeout)
            while True:
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    self.is_over = True
                    break
                found.pop(type(item), None)
                found[type(item)] = item
                item = self._heard.get_nowait()
        except queue.Empty:
            pass
        return list(found.values())

    def ahead(self) -> int:
        """How many runs come before the one that the sweep waits for."""
        before, _ = self._before
        return self._turns.remaining(before)

    @property
    def waited(self) -> float:
        """Seconds since the sweep last joined the line."""
        return time.monotonic() - self._before[1]

    def _measure(self) -> None:
        try:
            self._note_line()
            for item in self._news:
                self._heard.put(item)
                self._note_line()
        except Exception as error:
            self._heard.put(error)
        finally:
            self._heard.put(None)

    def _note_line(self) -> None:
        self._before = (self._turns.present(), time.monotonic())

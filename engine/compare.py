"""Run the same requests serially, as static batches and by continuous batching, one after another.

comparing = compare(lm, make_requests(["Hello", "What is a slot?"]), batch_size=4)
for step in comparing:
    print(comparing.record().under_way, step.pieces)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime

from engine.comparison import ENGINES, Comparison, Engine, Entry, begun, with_entry
from engine.continuous import ContinuousEngine
from engine.errors import BatchscopeError, RequestError
from engine.models import LanguageModel
from engine.requests import check_batch_size
from engine.run import PaddingSide, Request, Run, Step
from engine.serial import SerialEngine
from engine.static import STOP_CHECK_SECONDS, RunStream, StaticBatchEngine
from engine.tape import WORTH
from engine.visitors import Flag

WARMUP_TOKENS = WORTH + 4
"""Of each request of a warm-up, as far as its budget goes: enough that steps are written down for
their replay, where they are (engine.tape), as they would have been in a server for long."""


def compare(
    lm: LanguageModel,
    requests: Sequence[Request],
    *,
    batch_size: int,
    padding_side: PaddingSide = "left",
    chat_template: bool = False,
    stop: Flag | None = None,
    seconds: float | None = None,
) -> ComparisonStream:
    """Start a comparison: iterate the result for Steps, and ask it for its `record`.

    Before each run the engine runs the first batch of the same prompts for a few tokens, so that no
    engine pays for being first; that is in no figure. An engine that can't run these requests is
    left out with a reason, and one that fails ends its own run alone. Setting `stop` ends it all;
    so does, as an error, that its runs have had the device for `seconds` together. Raises
    BatchscopeError at once if the requests can't be run at all.
    """
    size = check_batch_size(batch_size)
    engines: dict[Engine, Callable[[], StaticBatchEngine]] = {
        "serial": lambda: SerialEngine(lm, chat_template=chat_template),
        "static": lambda: StaticBatchEngine(
            lm, batch_size=size, padding_side=padding_side, chat_template=chat_template
        ),
        "continuous": lambda: ContinuousEngine(lm, batch_size=size, chat_template=chat_template),
    }
    engines["serial"]().stream(requests).close()
    return ComparisonStream(engines, requests, stop or threading.Event(), seconds)


def _short(request: Request) -> Request:
    """The request as a warm-up runs it, whatever it would end with."""
    return replace(
        request,
        max_new_tokens=min(request.max_new_tokens, WARMUP_TOKENS),
        min_new_tokens=min(request.min_new_tokens, WARMUP_TOKENS, request.max_new_tokens),
        ignore_eos=True,
        stop=(),
    )


class ComparisonStream(Iterator[Step]):
    """One comparison under way, in the manner of a RunStream: draw its steps, `stop` it from any
    thread, always `close` it. What goes wrong in it is in its `record`. Each run stands in the
    device's line by itself, so others may come between two of them."""

    def __init__(
        self,
        engines: dict[Engine, Callable[[], StaticBatchEngine]],
        requests: Sequence[Request],
        stop: Flag,
        seconds: float | None,
    ) -> None:
        self._engines = engines
        self._requests = tuple(requests)
        self._stop = stop
        self._limit = seconds
        self._used = 0.0  # seconds that the runs had the device
        self._writing = threading.Lock()
        self._comparison = begun(datetime.now(UTC).isoformat(timespec="seconds"))
        self._stream: RunStream | None = None  # that runs or waits now
        self._shown: Engine | None = None  # whose run it is, unless it is a warm-up
        self._steps = self._run()

    def __next__(self) -> Step:
        return next(self._steps)

    def stop(self) -> None:
        """End the comparison after the forward under way."""
        self._stop.set()

    @property
    def engine(self) -> Engine | None:
        """Whose turn it is."""
        return self._comparison.under_way

    @property
    def ahead(self) -> int:
        """How many runs are before the next one of this on the device."""
        stream = self._stream
        return stream.ahead if stream else 0

    def record(self) -> Comparison:
        """The comparison so far; from any thread."""
        with self._writing:
            comparison, engine, stream = self._comparison, self._shown, self._stream
        run = stream.record() if engine and stream else None
        return with_entry(comparison, Entry(engine, run)) if run and run.steps else comparison

    def close(self) -> None:
        """End the comparison now and give the device back. Harmless after the end."""
        self._steps.close()
        self._finish()

    def _run(self) -> Iterator[Step]:
        try:
            for engine in ENGINES:
                if not self._is_over:
                    yield from self._run_engine(engine)
        finally:
            self._finish()

    def _run_engine(self, engine: Engine) -> Iterator[Step]:
        try:
            runner = self._engines[engine]()
            first_batch = self._requests[: runner.settings.batch_size]
            warmup = self._started(runner, list(map(_short, first_batch)))
            for _ in self._drawn(warmup):
                pass
            if (cold := warmup.record()).status != "done":
                self._write(engine, cold)
                return
            stream = self._started(runner, self._requests)
        except RequestError as error:  # before any forward
            self._enter(Entry(engine, reason=str(error)))
            return
        try:
            yield from self._drawn(stream, shown=engine)
        finally:
            self._write(engine, stream.record())

    def _started(self, runner: StaticBatchEngine, requests: Sequence[Request]) -> RunStream:
        left = None if self._limit is None else max(self._limit - self._used, 0.0)
        return runner.stream(requests, stop=self._stop, seconds=left)

    def _drawn(self, stream: RunStream, shown: Engine | None = None) -> Iterator[Step]:
        """The steps of a run, once it has the device; what broke it is in its record."""
        with self._writing:
            self._stream, self._shown = stream, shown
        with closing(stream), suppress(BatchscopeError):
            while not stream.wait_turn(STOP_CHECK_SECONDS):
                continue
            began = time.monotonic()
            try:
                yield from stream
            finally:
                self._used += time.monotonic() - began

    def _write(self, engine: Engine, run: Run) -> None:
        """What became of an engine; a run that broke before it gave a token only has its reason,
        and one that never began because the time was over has none."""
        if self._is_late and not self._shown:
            return
        if self._is_late and run.error:
            run = replace(run, error=self._lateness)
        if run.steps and self._shown:
            self._enter(Entry(engine, run))
        elif run.error:
            self._enter(Entry(engine, reason=run.error))

    def _enter(self, entry: Entry) -> None:
        with self._writing:
            self._comparison = with_entry(self._comparison, entry)
            self._stream = self._shown = None

    def _finish(self) -> None:
        with self._writing:
            self._stream = self._shown = None
            if self._comparison.status != "running":
                return
            if self._is_complete:
                self._comparison = replace(self._comparison, status="done")
            elif self._is_late and not self._stop.is_set():
                lateness = self._lateness
                self._comparison = replace(self._comparison, status="error", error=lateness)
            else:
                self._comparison = replace(self._comparison, status="stopped")

    @property
    def _is_complete(self) -> bool:
        """Whether every engine came to an end of its own."""
        cut = any(
            run.status == "stopped" or (self._is_late and run.error == self._lateness)
            for run in self._comparison.runs
        )
        return not cut and all(entry.is_over for entry in self._comparison.entries)

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._is_late

    @property
    def _is_late(self) -> bool:
        return self._limit is not None and self._used >= self._limit

    @property
    def _lateness(self) -> str:
        return f"The comparison took longer than this host allows: {self._limit:g} s."

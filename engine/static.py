"""Static batching: pad the prompts into one rectangle, prefill it, decode until the last row ends.

engine = StaticBatchEngine(lm, batch_size=4)
for step in engine.stream(make_requests(["Hello", "What is a slot?"])):
    print(step.pieces)
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import torch

from engine.active import ActiveBatch
from engine.batching import plan
from engine.errors import BatchscopeError, RequestError, RunError, first_line
from engine.free import is_out_of_memory
from engine.interrupt import asking_before_each
from engine.memory import Forecast, check_memory, forecast
from engine.models import LanguageModel
from engine.requests import check_batch_size, check_flag, check_padding_side
from engine.run import Batch, PaddingSide, Request, Run, Settings, Status, Step
from engine.turns import Turn, turns_on
from engine.visitors import Flag

log = logging.getLogger("batchscope.engine")

OnStep = Callable[[Step], None]

STOP_CHECK_SECONDS = 0.2


class StoppedError(Exception):
    """Stop was pressed in the middle of a forward."""


class StaticBatchEngine:
    """Runs requests in static batches. More requests than `batch_size` make consecutive batches,
    first come first served, each waiting for the one before.

    padding_side "right" is refused for models with sliding windows. `chat_template` is ignored
    by models that have none.
    """

    name = "static"

    def __init__(
        self,
        lm: LanguageModel,
        *,
        batch_size: int = 8,
        padding_side: PaddingSide = "left",
        chat_template: bool = False,
    ) -> None:
        if check_padding_side(padding_side) == "right" and lm.has_sliding_window:
            raise RequestError(
                f"{lm.name} has sliding-window attention: pads on the right would take places in "
                "the window. Use left padding."
            )
        lm.check_batchable()
        self.lm = lm
        self.settings = Settings(
            engine=self.name,
            batch_size=check_batch_size(batch_size),
            padding_side=padding_side,
            chat_template=check_flag(chat_template, "The chat template") and lm.has_chat_template,
        )

    def stream(
        self,
        requests: Sequence[Request],
        *,
        stop: Flag | None = None,
        seconds: float | None = None,
    ) -> RunStream:
        """Start a run: iterate the result for one Step per forward.

        Setting `stop` ends the run after the forward under way, a prefill also within it; so does,
        as an error, that it has had the device for `seconds`. Raises RequestError before any
        forward if a request can't be run.
        """
        stop = stop or threading.Event()
        return self._under_way(self.lm, requests, self.settings, stop, seconds)

    @property
    def _under_way(self) -> type[RunStream]:
        return RunStream

    def forecast(self, requests: Sequence[Request]) -> Forecast:
        """What a run of these requests will need of the device's memory, and what is free now.
        Raises RequestError as `stream` does."""
        return forecast(self.lm, plan(self.lm, requests, self.settings), requests)

    def run(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> Run:
        """Run to the end and return the record; `on_step` is called after every forward."""
        with closing(self.stream(requests)) as stream:
            for step in stream:
                if on_step is not None:
                    on_step(step)
            return stream.record()


class RunStream(Iterator[Step]):
    """One run under way. Iterate it for Steps, `stop` it from any thread, always `close` it.

    `record()` is the Run so far, at any time and from any thread. Steps may be drawn from different
    threads, one after another. Raises RunError if the run breaks; the record then holds the steps
    before it.
    """

    def __init__(
        self,
        lm: LanguageModel,
        requests: Sequence[Request],
        settings: Settings,
        stop: Flag,
        seconds: float | None,
    ) -> None:
        if not requests:
            raise RequestError("There are no prompts: enter at least one.")
        self._lm = lm
        self._requests = tuple(requests)
        self._settings = settings
        self._batches = plan(lm, self._requests, settings)
        self._active: ActiveBatch | None = None
        self._writing = threading.Lock()  # what `record` reads is written whole or not at all
        self._texts = [""] * len(requests)
        self._steps: list[Step] = []
        self._status: Status = "running"
        self._error: str | None = None
        self._forecast = forecast(lm, self._batches, self._requests)
        self._clock = 0.0
        self._joined: float | None = None  # when it had to stand in line
        self._queued = 0.0
        self._started_at = _now()
        self._stop = stop
        self._limit = seconds
        self._turn: Turn | None = None
        self._forwards = self._run()

    def __next__(self) -> Step:
        return next(self._forwards)

    def stop(self) -> None:
        """End the run after the forward under way; its rows end as "cancelled"."""
        self._stop.set()

    def wait_turn(self, timeout: float) -> bool:
        """Queue for the device, at most `timeout` seconds at a time; True when it is this run's
        turn, or the run was stopped."""
        if self._turn is None:
            self._turn = turns_on(self._lm.device).join()
            weakref.finalize(self, self._turn.leave)  # also if nobody closes the run
            self._joined = time.perf_counter() if self._turn.ahead else None
        return self._stop.is_set() or self._turn.wait(timeout)

    @property
    def ahead(self) -> int:
        """How many runs are before this one on the device."""
        return self._turn.ahead if self._turn else 0

    def check_memory(self) -> None:
        """Raise RequestError, with the numbers, if the run can't fit into the memory that is free
        now; a run checks it itself before its first forward."""
        check_memory(forecast(self._lm, self._batches, self._requests))

    def close(self) -> None:
        """End the run now and give the device back. Harmless after the end.

        Close from where the steps are drawn, between two of them; `stop` works from anywhere.
        """
        self._forwards.close()
        self._finish("stopped")
        if self._turn is not None:
            self._turn.leave()

    def record(self) -> Run:
        """The Run so far."""
        with self._writing:
            return Run(
                model=self._lm.info,
                settings=self._settings,
                requests=self._requests,
                batches=tuple(self._batches),
                steps=tuple(self._steps),
                texts=tuple(self._texts),
                started_at=self._started_at,
                status=self._status,
                error=self._error,
                queued_seconds=self._queued,
                kv_estimate=self._forecast.kv_bytes,
            )

    def _run(self) -> Iterator[Step]:
        while not self.wait_turn(STOP_CHECK_SECONDS):
            continue
        with self._writing:
            self._started_at, self._clock = _now(), time.perf_counter()
            if self._joined is not None:
                self._queued = self._clock - self._joined
        failure: BatchscopeError | None = None
        try:
            if not self._stop.is_set():
                self.check_memory()
            yield from self._serve()
            self._finish("done" if self._all_ended() else "stopped")
        except StoppedError:
            self._finish("stopped")
        except RequestError as error:
            failure = error.with_traceback(None)
            self._finish("error", str(error))
        except Exception as error:
            failure = RunError(self._explain(error))
            self._finish("error", str(failure))
        finally:
            self._finish("stopped")
            if failure:
                _free_memory(self._lm.device)  # before the next run measures what is free
            self._turn.leave()
        if failure:
            # Raised out here, so that no traceback keeps the tensors of the failed forward alive.
            raise failure

    def _serve(self) -> Iterator[Step]:
        """All requests, batch after batch."""
        for batch in self._batches:
            yield from self._run_batch(batch)

    def _run_batch(self, batch: Batch) -> Iterator[Step]:
        if self._stop.is_set():
            return
        self._batches[batch.index] = batch = replace(batch, started=self._seconds())
        requests = [self._requests[index] for index in batch.requests]
        self._active = rows = ActiveBatch(self._lm, batch, requests)
        while rows.running and not self._stop.is_set():
            self._check_deadline()
            started = self._seconds()
            self._forward(rows)
            yield self._write_down(rows, started, self._seconds() - started)

    def _forward(self, rows: ActiveBatch) -> None:
        """One step. A prefill can take very long, so it is left between two layers if it must be;
        a decode step is over soon."""
        prefill = rows.forwards == 0
        with asking_before_each(self._lm.layers, self._ask) if prefill else nullcontext():
            _forward(rows)

    def _ask(self) -> None:
        if self._stop.is_set():
            raise StoppedError
        self._check_deadline()

    def _check_deadline(self) -> None:
        if self._limit is not None and self._seconds() > self._limit:
            raise RunError(f"The run took longer than this host allows: {self._limit:g} s.")

    def _write_down(self, rows: ActiveBatch, started: float, seconds: float) -> Step:
        step = Step(
            batch=rows.batch.index,
            forward=rows.forwards,
            phase="prefill" if rows.forwards == 1 else "decode",
            tokens=tuple(rows.tokens),
            pieces=tuple(rows.pieces),
            ends=tuple(rows.ends),
            started=started,
            seconds=seconds,
            kv_bytes=rows.kv_bytes(),
            device_seconds=rows.device_seconds,
        )
        with self._writing:
            self._steps.append(step)
            self._add_to_texts(rows.batch, step.pieces)
        return step

    def _add_to_texts(self, batch: Batch, pieces: Sequence[str]) -> None:
        for index, piece in zip(batch.requests, pieces, strict=True):
            self._texts[index] += piece

    def _finish(self, status: Status, error: str | None = None) -> None:
        """The run is over: its rows release what they held back, its cache is freed."""
        if self._status == "running":
            rest = self._unread(self._active) if self._active else ()
            with self._writing:
                self._status, self._error = status, error
                if self._active and rest:
                    self._add_to_texts(self._active.batch, rest)
        self._active = None

    def _unread(self, rows: ActiveBatch) -> Sequence[str]:
        try:
            return rows.unread()
        except Exception:  # a tokenizer that fails may be why the run is over
            log.exception("the ends of the texts can't be read")
            return ()

    def _all_ended(self) -> bool:
        return sum(end is not None for step in self._steps for end in step.ends) == len(self._texts)

    def _explain(self, error: Exception) -> str:
        if isinstance(error, BatchscopeError):
            return str(error)
        started = [batch for batch in self._batches if batch.started is not None]
        if not started:
            sentence = f"The run can't begin: {type(error).__name__}: {first_line(error)}."
            log.error("%s", sentence, exc_info=error)
            return sentence
        batch = started[-1]
        forward = sum(step.batch == batch.index for step in self._steps) + 1
        where = f"batch {batch.index + 1}, " if len(self._batches) > 1 else ""
        where += f"forward {forward}"
        if is_out_of_memory(error):
            return (
                f"Out of memory in {where}: {len(batch.requests)} rows x {batch.padded_length} "
                "prompt tokens; try fewer or shorter prompts."
            )
        sentence = f"The model failed in {where}: {type(error).__name__}: {first_line(error)}."
        log.error("%s", sentence, exc_info=error)
        return sentence

    def _seconds(self) -> float:
        return time.perf_counter() - self._clock


def _forward(rows: ActiveBatch) -> None:
    """One step; a model that calls exit() ends its run, not the server."""
    try:
        rows.step()
    except Exception:
        raise
    except BaseException as error:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and in_main_thread:
            raise  # Ctrl+C, which reaches no other thread
        raise RuntimeError(f"it raised {type(error).__name__}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()

"""What a host does for its visitors: one run, comparison or sweep each, within its limits, on its
models."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from engine.comparing import compare_frames
from engine.comparison import Comparison, cut_off
from engine.errors import BatchscopeError, LostError, RequestError, RunError, first_line
from engine.live import WAIT_SECONDS, Refused, Waiting, frames
from engine.loglines import comparison_line, figures_line, prompts_line, sweep_line
from engine.orders import Order, SweepOrder, make_order, make_sweep_order
from engine.requests import Limits
from engine.run import Run
from engine.shelf import Loading, ModelShelf
from engine.sweep import Progress, Sweep
from engine.sweeping import sweep_frames
from engine.turns import turns_on
from engine.visitors import Flag, StopFlags

if TYPE_CHECKING:
    from engine.forecast import Forecast
    from engine.models import LanguageModel
    from engine.where import Named

log = logging.getLogger("batchscope.host")

PATIENCE = 1.0
"""Seconds that a forecast waits for others before there is none."""

Record = Run | Comparison | Sweep
Report = Callable[[Record | None], None]


class Host:
    """The models of a shelf, the limits of a run, and who runs what.

    The log has one line per run, with no text of a prompt unless `log_prompts` is set. `report` is
    called with the record of each that is over, None where a visitor left before its end.
    """

    def __init__(
        self,
        shelf: ModelShelf,
        limits: Limits,
        *,
        log_prompts: bool = False,
        report: Report | None = None,
    ) -> None:
        self.shelf = shelf
        self.limits = limits
        self._log_prompts = log_prompts
        self._report = report or (lambda _: None)
        self._now: dict[str, Order | Run] = {}
        self._where = shelf.where
        self._flags = StopFlags(most=limits.runs, new=self._where.new_flag)
        self._numbers = itertools.count(1)
        self._forecasts = threading.BoundedSemaphore(2)  # they tokenise, beside a run

    def stop(self, visitor: str) -> None:
        """End the visitor's own run after the forward under way."""
        self._flags.stop(visitor)

    @property
    def under_way(self) -> list[Run]:
        """The runs that visitors see grow, each as far as it was shown last."""
        return [run for run in list(self._now.values()) if isinstance(run, Run)]

    @property
    def waiting(self) -> dict[str, int]:
        """For each model, the requests of runs that wait for it or for the device."""
        waiting = dict.fromkeys(self.shelf.names, 0)
        for order in list(self._now.values()):
            if isinstance(order, Order):
                waiting[self._name(order.model)] += len(order.requests)
        return waiting

    def run(self, visitor: str, **asked: Any) -> Iterator[str | Waiting | Run | None]:
        """Run what a visitor asks for, the arguments of `make_order`: what is being waited for,
        then the record as it grows.

        The last frame is the record of a run that is over, or None where it was stopped before
        there was one; by then the visitor may run again. Raises BatchscopeError with a sentence for
        the visitor.
        """

        return self._visit_with_order(visitor, Run, asked, frames)

    def compare(self, visitor: str, **asked: Any) -> Iterator[str | Waiting | Comparison | None]:
        """Run what a visitor asks for by each engine, the arguments of `make_order`: what is being
        waited for, and the comparison as it grows.

        It ends as `run` does, and counts as the visitor's one run.
        """

        return self._visit_with_order(visitor, Comparison, asked, compare_frames)

    def _visit_with_order(
        self,
        visitor: str,
        kind: type[Record],
        asked: dict[str, Any],
        shown: Callable[..., Generator],
    ) -> Iterator[Any]:
        def begin(lm: Named, order: Order, stop: Flag) -> Generator:
            return self._where.show(
                shown,
                lm,
                order.requests,
                stop,
                batch_size=order.batch_size,
                padding_side=order.padding_side,
                chat_template=order.chat_template,
                seconds=self.limits.run_seconds,
            )

        return self._visit(visitor, kind, lambda: make_order(self.limits, **asked), begin)

    def sweep(
        self, visitor: str, **asked: Any
    ) -> Iterator[str | Waiting | Progress | Sweep | None]:
        """Measure what a visitor asks for, the arguments of `make_sweep_order`: what is being
        waited for or under way, and the sweep as it grows.

        It ends as `run` does, and counts as the visitor's one run.
        """

        def begin(lm: Named, order: SweepOrder, stop: Flag) -> Generator:
            return self._where.show(
                sweep_frames,
                lm,
                order.batch_sizes,
                stop,
                prompt=order.prompt,
                max_new_tokens=order.max_new_tokens,
                runs=order.runs,
                seconds=self.limits.run_seconds,
            )

        return self._visit(visitor, Sweep, lambda: make_sweep_order(self.limits, **asked), begin)

    def _visit(
        self,
        visitor: str,
        kind: type[Record],
        make: Callable[[], Order | SweepOrder],
        begin: Callable[..., Generator],
    ) -> Iterator[Any]:
        """From what a visitor asks for to the record of its end, which is of that kind."""
        what, order, record = f"{_noun(kind)} {next(self._numbers)}", None, None
        noted = self._logged(what, lambda: self._told(order, record))
        with noted, self._flags.flag(visitor) as stop:
            yield "Starting."
            order = make()
            loading = self.loading(order.model)
            self._keep(what, kind, order)
            yield from loading.messages(stop, WAIT_SECONDS)
            if not stop.is_set():
                shown = begin(loading.result(), order, stop)
                with closing(_to_the_end(shown, kind, what, stop)) as until_over:
                    for frame in until_over:
                        if isinstance(frame, kind):
                            record = frame
                            self._keep(what, kind, record)
                        if not isinstance(frame, kind) or frame.status == "running":
                            yield frame
        _log_end(what, record, self._told(order, record))
        if record is not None:
            self._report(record)
        yield record

    def _keep(self, what: str, kind: type[Record], now: Order | SweepOrder | Record) -> None:
        """How far a run is, until its end."""
        if kind is Run:
            self._now[what] = now

    def forecast(self, order: Order) -> Forecast | None:
        """What a run will need of memory. None as long as its model is not there, or while others
        ask. Raises RequestError if it can't be run; while another one is under way, what will be
        free after that is left open."""
        lm = self.shelf.loaded(self._name(order.model))
        if lm is None or not self._forecasts.acquire(timeout=PATIENCE):
            return None
        try:
            return self._where.ask(forecast_of, lm, order)
        finally:
            self._forecasts.release()

    def loading(self, model: str | None) -> Loading:
        """How far a model is, the first one if none is named; begins to load it."""
        return self.shelf.start(self._name(model))

    def _name(self, model: str | None) -> str:
        return self.shelf.names[0] if model is None else model

    @contextmanager
    def _logged(self, what: str, told: Callable[[], str]) -> Iterator[None]:
        """A line for what ends without a record of its end; `told` is what is known by then."""
        try:
            yield
        except GeneratorExit:
            log.info("%s left by its visitor%s", what, told())
            self._report(None)
            raise
        except BatchscopeError as error:
            log.info("%s refused: %s", what, error)
            raise
        except Exception as error:
            log.warning("%s failed: %s", what, first_line(error))
            raise
        finally:
            self._now.pop(what, None)

    def _told(self, order: Order | SweepOrder | None, record: Record | None) -> str:
        """What the log says of a record, if there is one."""
        if record is None:
            return ""
        if isinstance(record, Run):
            line, prompts = figures_line(record), [request.prompt for request in record.requests]
        elif isinstance(record, Comparison):
            line, prompts = comparison_line(record), [each.prompt for each in order.requests]
        else:
            line, prompts = sweep_line(record), [order.prompt]
        return f": {line}" + (prompts_line(prompts) if self._log_prompts else "")


def forecast_of(lm: LanguageModel, order: Order) -> Forecast:
    """What a run will need of the memory of the model's device. Raises RequestError if it can't be
    run."""
    from engine import StaticBatchEngine
    from engine.memory import check_memory

    engine = StaticBatchEngine(
        lm,
        batch_size=order.batch_size,
        padding_side=order.padding_side,
        chat_template=order.chat_template,
    )
    found = engine.forecast(order.requests)
    if len(turns_on(lm.device)):
        found = replace(found, free_bytes=None)
    check_memory(found)
    return found


def _log_end(what: str, record: Record | None, told: str) -> None:
    if record is None:
        log.info("%s stopped before it began", what)
    else:
        level = logging.WARNING if record.status == "error" else logging.INFO
        log.log(level, "%s %s%s", what, record.status, told)


def _noun(kind: type[Record]) -> str:
    return kind.__name__.lower()


Shown = TypeVar("Shown")


def _to_the_end(
    shown: Generator[Shown], kind: type[Record], what: str, stop: Flag
) -> Generator[Shown]:
    """Pass on what is shown of `what`, "run 3"; the last frame is the record of its end, which is
    of that kind. There is none where it was stopped in line for a replica."""
    record, noun = None, _noun(kind)
    with closing(shown):
        try:
            for frame in shown:
                if isinstance(frame, Refused):
                    raise RequestError(frame.sentence)
                if isinstance(frame, kind):
                    record = frame
                yield frame
        except LostError as error:
            if record is None:
                raise
            if record.status == "running":
                yield _cut_off(record, str(error))
        except BatchscopeError:
            raise
        except Exception as error:
            # A lent GPU can be taken away in the middle of a run.
            if record is None:
                raise
            log.exception("%s was cut off", what)
            if record.status == "running":
                yield _cut_off(record, f"The {noun} was cut off: {first_line(error)}.")
    if record is None and not stop.is_set():
        raise RunError(f"The {noun} ended before it began.")


def _cut_off(record: Record, cause: str) -> Record:
    """The record as it stands, as that of something that has ended."""
    if isinstance(record, Comparison):
        return cut_off(record, error=cause)
    return replace(record, status="error", error=cause)

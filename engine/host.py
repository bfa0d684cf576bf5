"""What a host does for its visitors: one run each, within its limits, on the models it offers."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from engine.errors import BatchscopeError, RequestError, RunError, first_line
from engine.live import WAIT_SECONDS, Frame, Refused, Waiting, frames
from engine.orders import make_order
from engine.requests import Limits
from engine.run import Run
from engine.shelf import Loading, ModelShelf
from engine.visitors import StopFlags

log = logging.getLogger("batchscope.host")


class Host:
    """The models of a shelf, the limits of a run, and who runs what."""

    def __init__(self, shelf: ModelShelf, limits: Limits) -> None:
        self.shelf = shelf
        self.limits = limits
        self._flags = StopFlags()

    def stop(self, visitor: str) -> None:
        """End the visitor's own run after the forward under way."""
        self._flags.stop(visitor)

    def run(self, visitor: str, **asked: Any) -> Iterator[str | Waiting | Run | None]:
        """Run what a visitor asks for, the arguments of `make_order`: what is being waited for,
        then the record as it grows.

        The last frame is the record of a run that is over, or None where it was stopped before
        there was one; by then the visitor may run again. Raises BatchscopeError with a sentence for
        the visitor.
        """
        with self._flags.flag(visitor) as stop:
            yield "Starting"
            order = make_order(self.limits, **asked)
            loading = self.loading(order.model)
            yield from loading.messages(stop, WAIT_SECONDS)
            last = None
            if not stop.is_set():
                last = yield from _run_to_end(
                    frames(
                        loading.result(),
                        order.requests,
                        stop,
                        batch_size=order.batch_size,
                        padding_side=order.padding_side,
                        chat_template=order.chat_template,
                    )
                )
        yield last

    def loading(self, model: str | None) -> Loading:
        """How far a model is, the first one if none is named; begins to load it."""
        return self.shelf.start(self.shelf.names[0] if model is None else model)


def _run_to_end(shown: Generator[Frame]) -> Generator[Waiting | Run, None, Run]:
    """Pass on what is shown of a run, and return the record of its end, which is not passed on."""
    run = None
    with closing(shown):
        try:
            for frame in shown:
                if isinstance(frame, Refused):
                    raise RequestError(frame.sentence)
                if isinstance(frame, Run):
                    run = frame
                if run is None or run.status == "running":
                    yield frame
        except BatchscopeError:
            raise
        except Exception as error:
            # A lent GPU can be taken away in the middle of a run.
            if run is None:
                raise
            log.exception("a run was cut off")
            if run.status == "running":
                cause = f"The run was cut off: {first_line(error)}."
                run = replace(run, status="error", error=cause)
    if run is None:
        raise RunError("The run ended before it began.")
    if run.error:
        log.warning("a run ended early: %s", run.error)
    return run

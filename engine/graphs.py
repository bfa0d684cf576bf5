"""A decode step as a CUDA graph: its kernels are launched as one, not one by one from Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import first_line
from engine.free import is_out_of_memory

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.engine")

Step = Callable[[], Tensor]

_broken: list[torch.cuda.CUDAGraph] = []
"""Kept, since torch before 2.12 goes on asking a graph whose capture broke about allocations."""


class Graphs:
    """Captures the decode steps of a model, until one can't be captured: `reason` says why they
    are run as they are (eagerly), None while they are captured."""

    def __init__(self, lm: LanguageModel) -> None:
        self._name = lm.name
        self.reason: str | None = None
        if not lm.captures:
            self.reason = "not asked to"
        elif lm.device.type != "cuda":
            self.reason = "not on a CUDA device"
        elif lm.split:
            self._give_up(f"it lies over {lm.split}")
        elif reason := reason_against_rounding(lm):
            self._give_up(reason)

    def capture(self, step: Step) -> Step | None:
        """The step as one launch; it returns the same tensor each time, filled anew. None if it
        can't be captured."""
        if self.reason is not None:
            return None
        try:
            return capture(step)
        except Exception as error:  # what a model does in its forward can't be foreseen
            cause = error.__context__ or error  # a capture that broke fails once more as it ends
            if is_out_of_memory(cause):
                return None  # a smaller batch may fit
            self._give_up(f"{type(cause).__name__}: {first_line(cause)}")
            return None

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        log.warning("%s decodes without CUDA graphs: %s", self._name, reason)


def capture(step: Step) -> Step:
    """A step on the current CUDA device."""
    graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    stream = capture_stream(torch.cuda.current_device())
    try:
        # Meanwhile other threads may ask the driver for what this one may not, as for free memory.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = step()
    except BaseException:
        _broken.append(graph)
        raise
    finally:
        torch.cuda.set_stream(before)  # torch stays on the other stream where a capture breaks

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


@cache
def capture_stream(device: int) -> torch.cuda.Stream:
    """One for all captures on a device: cuBLAS keeps a workspace for every stream it has met."""
    return torch.cuda.Stream(device)


def reason_against_rounding(lm: LanguageModel) -> str | None:
    """Why steps of this model can't attend to more places than are filled, None if they can."""
    from engine.selfcheck import rounding_distance, tolerance_of

    try:
        apart = rounding_distance(lm)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    if not apart <= tolerance_of(lm):
        return f"its logits depend on places that hold nothing ({apart:.0%} of their spread)"
    return None

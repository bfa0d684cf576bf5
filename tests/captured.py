"""Stands in for CUDA graphs on a CPU: a step's operations are recorded and repeated on the same
tensors, with every number that Python worked out as it was. Reading a tensor while recording fails,
as it does while a graph is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from engine.graphs import Graphs, Step
from engine.models import LanguageModel

READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


class Recorder(TorchDispatchMode):
    """Runs operations and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Callable[..., Any], Any, Any]] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation in READS:
            raise RuntimeError("operation not permitted while a step is captured")
        result = operation(*args, **(kwargs or {}))
        self.operations.append((operation, (args, kwargs or {}), result))
        return result

    def repeat(self, last: Tensor) -> Tensor:
        """Run the operations again -> what has become of the tensor that `last` was."""
        now: dict[int, Tensor] = {}
        for operation, given, before in self.operations:
            args, kwargs = tree_map(lambda value: now.get(id(value), value), given)
            result = operation(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(result), strict=True):
                if isinstance(old, Tensor):
                    now[id(old)] = new
        return now[id(last)]


def record(step: Step) -> Step:
    """As `engine.graphs.capture`: recording runs the step, so its first replay does nothing."""
    with Recorder() as recorder:
        result = step()
    fresh = True

    def replay() -> Tensor:
        nonlocal fresh
        if not fresh:
            result.copy_(recorder.repeat(result))
        fresh = False
        return result

    return replay


class RecordedGraphs(Graphs):
    """Never refuses by itself; counts what it captured."""

    def __init__(self) -> None:
        self._name = "recorded"
        self.reason = None
        self.captured = 0

    def capture(self, step: Step) -> Step | None:
        self.captured += 1
        return super().capture(step)


class CapturedModel(LanguageModel):
    """Decodes as on a CUDA device: steps are captured and launched one ahead."""

    runs_ahead = True

    @cached_property
    def graphs(self) -> RecordedGraphs:
        return RecordedGraphs()


def captured(lm: LanguageModel) -> CapturedModel:
    """The model on such a device; `engine.graphs.capture` is to be replaced by `record`."""
    return CapturedModel(**{field.name: getattr(lm, field.name) for field in fields(lm)})

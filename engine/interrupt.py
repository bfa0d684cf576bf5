"""Asking between the layers of a long forward whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def asking_before_each(layers: nn.ModuleList, ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` before each of these layers runs; what it raises ends the forward."""
    handles = [layer.register_forward_pre_hook(lambda *_: ask()) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def decoder_layers(model: nn.Module, count: int | None) -> nn.ModuleList:
    """The model's list of that many layers; an empty one if there is none."""
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList))
    return next((layers for layers in lists if len(layers) == count), nn.ModuleList())

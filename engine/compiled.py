"""A model's forward, compiled for any number of rows and of places in the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor

from engine.free import free_bytes

log = logging.getLogger("batchscope.models")

COMPILATIONS = 2
"""One for a single row, one for any other number."""


def compiled(model: nn.Module, device: torch.device) -> Callable[..., Any]:
    """On a CPU its weights are constants, laid out once for products that inductor writes itself:
    with few rows these read them about twice as fast as MKL's. It writes one kind alone, so nothing
    is tried out. Each compilation keeps a copy of the weights, if there is room for them.

    As `options` of torch.compile the same would do nothing: Dynamo, which makes constants of the
    weights, does not see those.
    """
    forward = torch.compile(model, dynamic=True)
    if device.type != "cpu":
        return forward
    copies = COMPILATIONS * sum(weight.nbytes for weight in model.parameters())
    if copies > free_bytes(device):
        log.warning("compiled steps read weights as they are: copies take %.1f GB", copies / 1e9)
        return forward

    @inductor.patch(freezing=True, max_autotune_gemm=True, max_autotune_gemm_backends="CPP")
    def frozen(**inputs: Any) -> Any:
        return forward(**inputs)

    return frozen

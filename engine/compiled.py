"""A model's forward, compiled for any number of rows and of places in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor


def compiled(model: nn.Module, *, freeze: bool) -> Callable[..., Any]:
    """With `freeze`, for a CPU, its weights are constants, laid out once for products that inductor
    writes itself: with few rows these read them about twice as fast as MKL's. It writes one kind
    alone, so nothing is tried out. Each compilation keeps a copy of the weights.

    As `options` of torch.compile the same would do nothing: Dynamo, which makes constants of the
    weights, does not see those.
    """
    forward = torch.compile(model, dynamic=True)
    if not freeze:
        return forward

    @inductor.patch(freezing=True, max_autotune_gemm=True, max_autotune_gemm_backends="CPP")
    def frozen(**inputs: Any) -> Any:
        return forward(**inputs)

    return frozen

"""Products with few rows on a CPU, of weights that are laid out for them beside the model's own.

torch has MKL lay a weight out anew in each product, which takes as long as the product where the
rows are few. oneDNN, which torch brings along too, keeps it laid out: on two cores with AVX2 the
products of a step of the default model take 24 ms instead of 50 with one row, 33 instead of 87 with
four, 53 instead of 95 with sixteen. From some hundred rows on there is no difference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.errors import first_line
from engine.free import free_bytes

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.models")

Product = Callable[[Tensor], Tensor]

MOST_ROWS = 64
"""In a product for which the laid-out weights are taken."""
LAID_OUT_FOR = 8
"""Rows that oneDNN lays a weight out for; it serves any number of them."""
SHARE_OF_FREE = 0.5
"""Of the memory that is free, at most, for the copies."""


class Products:
    """Those of one model; none until they are laid out."""

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self._products: list[tuple[nn.Linear, Product]] = []

    def __bool__(self) -> bool:
        return bool(self._products)

    def lay_out(self) -> None:
        """Copy the weights in their new order, or log why not. They may not change from now on."""
        if reason := self._reason_against():
            log.info("%s multiplies with its weights as they are: %s", self._lm.name, reason)
            return
        try:
            self._products = [(linear, product_of(linear)) for linear in self._linears()]
        except (AttributeError, RuntimeError) as error:  # the operations are torch's own affair
            log.info("%s: no laid-out weights: %s", self._lm.name, first_line(error))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While the model's forward runs; it knows nothing of them otherwise."""
        for linear, product in self._products:
            vars(linear)["forward"] = product
        try:
            yield
        finally:
            for linear, _ in self._products:
                vars(linear).pop("forward", None)

    def _linears(self) -> list[nn.Linear]:
        """That are nothing else, and that nobody has changed."""
        found = (module for module in self._lm.model.modules() if type(module) is nn.Linear)
        return [linear for linear in found if "forward" not in vars(linear)]

    def _reason_against(self) -> str | None:
        lm = self._lm
        if lm.device.type != "cpu" or lm.split:
            return "it is not on one CPU"
        if lm.model.dtype != torch.float32:
            return "they are not float32"
        if not torch.backends.mkldnn.is_available():
            return "oneDNN is not there"
        if not torch.cpu.get_capabilities().get("avx2"):  # elsewhere it was not tried
            return "the processor has no AVX2"
        needed = sum(linear.weight.nbytes for linear in self._linears())
        if needed > SHARE_OF_FREE * free_bytes(lm.device):
            return f"copies of {needed / 1e9:.1f} GB would take more than half of the free memory"
        return None


@torch.no_grad()
def product_of(linear: nn.Linear) -> Product:
    """What stands in for its forward. The operations are those that inductor writes calls of."""
    weight, bias, width = linear.weight, linear.bias, linear.in_features
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), LAID_OUT_FOR)
    multiply = torch.ops.mkldnn._linear_pointwise.default

    def product(states: Tensor) -> Tensor:
        if states.numel() > MOST_ROWS * width:
            return functional.linear(states, weight, bias)
        return multiply(states, laid_out, bias, "none", [], "")

    return product

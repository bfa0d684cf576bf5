"""The limit: what a decode step must read and compute, over what the device can, measured.

The roofline model of Williams, Waterman and Patterson (2009), for one step of decoding: it takes
no less time than reading what it must read, and no less than its arithmetic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from transformers import PretrainedConfig

from engine.free import free_bytes
from engine.shapes import attended_numbers, cached, layer_configs, layer_kinds, text_config
from engine.sweep import Floor, Rates

if TYPE_CHECKING:
    from engine.models import LanguageModel

READ_BYTES = {"cuda": 2**31}
READ_BYTES_ELSEWHERE = 2**30
"""What is read to measure bandwidth: far more than the caches of a device hold."""

LEAST_PRODUCT, LARGEST_PRODUCT = 256, 8192
LONG_ENOUGH = 0.02
"""Sides of the square matrices that are multiplied: doubled until a product takes so many
seconds, since small ones keep no device busy."""

PRODUCT_BYTES = 12
"""At once per number of a side squared: two in float32, as they are drawn, and either their product
or both in 16 bits."""

TRIES, TRY_SECONDS = 5, 0.1
"""Tries at least, and for how long at least: a device that was idle takes a moment to run fast."""

EXPERTS_CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_topk")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""What configs of mixtures call them."""


class Weights(NamedTuple):
    """Bytes and numbers of the weights that a token is multiplied with, in all layers together.

    `expert_*` are those of a mixture's experts, all of them; the others are read in every step.
    """

    bytes: int
    numbers: int
    expert_bytes: int
    expert_numbers: int


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """What the device can do at best, in about a second."""
    return Rates(
        read_bytes_per_second=read_rate(device),
        flops_per_second=product_rate(device, dtype),
        dtype=str(dtype).removeprefix("torch."),
    )


def read_rate(device: torch.device) -> float:
    """Bytes per second that the device reads from its memory: the best of several sums, and of
    several products of a matrix with a vector, which is how a step reads the weights."""
    wanted = READ_BYTES.get(device.type, READ_BYTES_ELSEWHERE)
    free = free_bytes(device)
    size = wanted if free is None else min(wanted, free // 4)
    matrix = torch.ones(max(size // 4 // 4096, 1), 4096, device=device)
    vector = torch.ones(4096, device=device)
    with torch.inference_mode():
        fastest = min(
            shortest(lambda: matrix.sum(), device), shortest(lambda: matrix @ vector, device)
        )
    return matrix.nbytes / fastest


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of the best product of two square matrices; 2 * n**3 in each."""
    free = free_bytes(device)
    fits = LARGEST_PRODUCT if free is None else isqrt(free // 4 // PRODUCT_BYTES)
    largest = min(fits, LARGEST_PRODUCT)
    best, side = 0.0, LEAST_PRODUCT
    with torch.inference_mode():
        while True:
            left, right = torch.randn(2, side, side, device=device).to(dtype)
            seconds = shortest(lambda left=left, right=right: left @ right, device)
            best = max(best, 2 * side**3 / seconds)
            if seconds >= LONG_ENOUGH or 2 * side > largest:
                return best
            side *= 2


def shortest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of some tries, after one that is not counted."""
    work()
    until = time.perf_counter() + TRY_SECONDS
    best = min(seconds_of(work, device) for _ in range(TRIES))
    while time.perf_counter() < until:
        best = min(best, seconds_of(work, device))
    return best


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that some work took, on the device and not only to launch."""
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def floor(
    lm: LanguageModel, rates: Rates, *, prompt_tokens: Sequence[int], new_tokens: int
) -> Floor:
    """The least that a decode step of these rows takes at these rates, all rows running on.

    Read: each weight once, of a mixture's experts those of one token (the rows may all call the
    same), and the live tokens in the cache. Computed: a multiply and an add per row and weight, and
    the attention over the live tokens. Both of the cache are means over the `new_tokens - 1` decode
    steps. What is written, and the activations, are left out: a floor.
    """
    rows = len(prompt_tokens)
    weights = count_weights(lm.model)
    chosen, experts = experts_per_token(text_config(lm.model))
    weight_bytes = weights.bytes + weights.expert_bytes * chosen // experts
    numbers = weights.numbers + weights.expert_numbers * chosen // experts
    kv_bytes = round(mean_cached(lm, prompt_tokens, new_tokens)) * lm.model.dtype.itemsize
    flops = 2 * rows * numbers + round(mean_attended(lm, prompt_tokens, new_tokens))
    return Floor(
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
        flops=flops,
        memory_seconds=(weight_bytes + kv_bytes) / rates.read_bytes_per_second,
        compute_seconds=flops / rates.flops_per_second,
    )


def count_weights(model: nn.Module) -> Weights:
    """The weights of a decode step. A table that is only looked up, as an input embedding that is
    not tied to the output layer, is read at a few rows and not counted."""
    dense: dict[int, nn.Parameter] = {}
    experts: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules():
        if not isinstance(module, nn.Embedding):
            kind = experts if "experts" in path.split(".") else dense
            kind |= {id(weight): weight for weight in module.parameters(recurse=False)}
    return Weights(*_bytes_and_numbers(dense), *_bytes_and_numbers(experts))


def experts_per_token(config: PretrainedConfig) -> tuple[int, int]:
    """How many experts of a mixture a token goes through, of how many; (1, 1) without a mixture."""
    found = [
        next((value for name in names if (value := getattr(config, name, None))), 1)
        for names in (EXPERTS_CHOSEN, EXPERTS)
    ]
    return found[0], found[1]


def mean_cached(lm: LanguageModel, prompt_tokens: Sequence[int], new_tokens: int) -> float:
    """Numbers that the live tokens of all rows hold in the cache, mean over the decode steps."""
    layers = layer_kinds(lm.model)
    return _mean_over_steps(lambda seen: cached(layers, seen), prompt_tokens, new_tokens)


def mean_attended(lm: LanguageModel, prompt_tokens: Sequence[int], new_tokens: int) -> float:
    """Operations of the attention of all rows in a decode step, mean over the steps: a query meets
    each key that it sees and weighs each value, a multiply and an add per number of either."""
    layers = layer_kinds(lm.model)
    numbers = max(attended_numbers(config) for config in layer_configs(text_config(lm.model)))

    def operations(seen: int) -> int:
        return sum(4 * numbers * kind.columns(seen) * many for kind, many in layers.items())

    return _mean_over_steps(operations, prompt_tokens, new_tokens)


def _mean_over_steps(
    of_row: Callable[[int], int], prompt_tokens: Sequence[int], new_tokens: int
) -> float:
    """Decode step k reads a row's prompt and its first k tokens, k = 1 to new_tokens - 1."""
    total = sum(
        many * of_row(length + step)
        for length, many in Counter(prompt_tokens).items()
        for step in range(1, new_tokens)
    )
    return total / (new_tokens - 1)


def _bytes_and_numbers(weights: dict[int, nn.Parameter]) -> Iterator[int]:
    yield sum(weight.nbytes for weight in weights.values())
    yield sum(weight.numel() for weight in weights.values())

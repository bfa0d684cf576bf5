"""What continuous batching sets aside before its first forward: pages of a KV cache, and how many
tokens a forward may take.

A page holds a number of tokens of all layers. A request takes one when it needs it and gives all of
them back with its last token, so they are used in any order and nothing is padded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, lcm
from typing import NamedTuple

from transformers.generation.continuous_batching.cache import group_layers_by_attn_type

from engine.free import free_bytes
from engine.memory import Forecast, Shape, kv_bytes_at, needs
from engine.models import LanguageModel
from engine.shapes import attended_numbers, layer_configs, layer_kinds, text_config

PAGE_TOKENS = 16
"""So that the part of a request's last page that holds nothing is small."""
TOKENS_PER_FORWARD = 2048
"""The most that a forward takes, if there are not more slots. The dense mask of a forward grows
with it times the pool; what is left of a prompt is read by the forwards after."""


class Lengths(NamedTuple):
    """Tokens of a request's prompt, and its budget."""

    prompt: int
    new: int

    @property
    def places(self) -> int:
        """In the cache at its end: the last token is not fed again, so it takes none."""
        return self.prompt + self.new - 1

    @property
    def pages(self) -> int:
        return ceil(self.places / PAGE_TOKENS)


@dataclass(frozen=True)
class Pool:
    """What is set aside: places for the longest requests that can meet in the slots, so that none
    ever waits for a page. `blocks` counts pages of all layers, as transformers does."""

    slots: int
    blocks: int
    tokens_per_forward: int


def pool_for(lm: LanguageModel, lengths: Sequence[Lengths], slots: int) -> Pool:
    """The pool of a run of these requests, so many at a time."""
    pages = sum(sorted((each.pages for each in lengths), reverse=True)[:slots])
    prompts = sum(sorted((each.prompt for each in lengths), reverse=True)[:slots])
    # The layers of one kind of attention share a sector, which divides into pages of either kind.
    kinds = [len(layers) for layers in group_layers_by_attn_type(text_config(lm.model)).values()]
    sector = lcm(*kinds)
    sectors = sum(ceil(pages * layers / sector) for layers in kinds)
    return Pool(
        slots=slots,
        blocks=ceil(sectors * sector / sum(kinds)),
        tokens_per_forward=min(prompts, max(TOKENS_PER_FORWARD, slots)),
    )


def pool_forecast(lm: LanguageModel, lengths: Sequence[Lengths], slots: int) -> Forecast:
    """What a continuous run needs of the device's memory, and whether it is free. Its
    `largest_batch` is the largest number of slots that would fit."""
    free = free_bytes(lm.device)
    sizes = range(1, slots + 1)
    fitting = None
    if free is not None:
        fitting = bisect_left(sizes, True, key=lambda size: _needed(lm, lengths, size) > free)
    kv_bytes = _kv_bytes(lm, lengths, slots)
    return Forecast(
        rows=min(slots, len(lengths)),
        columns=max(each.places for each in lengths),
        kv_bytes=kv_bytes,
        working_bytes=_needed(lm, lengths, slots) - kv_bytes,
        free_bytes=free,
        largest_batch=fitting,
    )


def _kv_bytes(lm: LanguageModel, lengths: Sequence[Lengths], slots: int) -> int:
    """What the requests that can meet in the slots hold at most, whole pages."""
    layers, number = layer_kinds(lm.model), lm.model.dtype.itemsize

    def held(places: int) -> int:
        return number * sum(
            layer.numbers(_whole_pages(min(places, layer.window or places))) * many
            for layer, many in layers.items()
        )

    return sum(sorted((held(each.places) for each in lengths), reverse=True)[:slots])


def _whole_pages(places: int) -> int:
    return ceil(places / PAGE_TOKENS) * PAGE_TOKENS


def _needed(lm: LanguageModel, lengths: Sequence[Lengths], slots: int) -> int:
    """An upper bound of all that a run has at once: the pool, with what transformers sets aside for
    each place of it (a mask in the model's dtype for each kind of attention, indexes), the keys and
    values that a layer reads out of it, and what a forward of packed tokens computes with."""
    pool = pool_for(lm, lengths, slots)
    config = text_config(lm.model)
    kinds = [len(layers) for layers in group_layers_by_attn_type(config).values()]
    sector, layers = lcm(*kinds), sum(kinds)
    trash = 2 * ceil(sector / layers)
    fed, number = pool.tokens_per_forward, lm.model.dtype.itemsize
    # All of the pool could go to the kind with the fewest layers.
    read = ceil((pool.blocks + trash) * layers / min(kinds)) * PAGE_TOKENS + fed
    masks = len(kinds) * number * fed * read * (2 if lm.device.type == "cuda" else 1)
    attended = max(attended_numbers(each) for each in layer_configs(config))
    packed = Shape(
        rows=1,
        prompt=fed,
        new=1,
        padded=False,
        logit_columns=min(slots, fed) if lm.keeps_logits else fed,
        vocabulary_bytes=4,  # logits in float32
    )
    return (
        (pool.blocks + trash) * PAGE_TOKENS * kv_bytes_at(lm, rows=1, columns=1)
        + masks
        + read * (2 * number * attended + 8 * len(kinds))
        + needs(lm)(packed).total
    )

"""Which models can be batched so that every row equals its solo run, and why the others can't."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from transformers import DynamicCache, PretrainedConfig, PreTrainedModel, cache_utils
from transformers.cache_utils import CacheLayerMixin

from engine.masks import sliding_window

# Older versions have no layers of some of these kinds in their caches.
RECURRENT_LAYER = getattr(cache_utils, "LinearAttentionCacheLayerMixin", ())
KEYS_AND_VALUES = {
    getattr(cache_utils, name, None)
    for name in ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")
}
RECURRENT_ARGUMENTS = {"cache_params", "state"}
"""How forwards that keep a state instead of a cache call it."""


def reason_against(model: PreTrainedModel) -> str | None:
    """Why pads would change the rows of this model, told by what its forward takes, what its
    cache holds and how it attends; None if nothing speaks against batching it."""
    takes = inspect.signature(model.forward).parameters.keys()
    config = model.config.get_text_config()
    try:
        layers = cache_layers(model)
    except (AttributeError, KeyError):  # its config says nothing of layers, or names unknown ones
        return "its cache is not of a standard kind"
    if (
        getattr(model, "_is_stateful", False)  # RecurrentGemma keeps its state beside the cache
        or takes & RECURRENT_ARGUMENTS
        or any(isinstance(layer, RECURRENT_LAYER) for layer in layers)
    ):
        return "pads would enter its recurrent state"
    if "position_ids" not in takes or not takes & {"cache", "past_key_values"}:
        return "it takes no positions or no cache"
    if "chunked_attention" in layer_types(config):
        return "chunked attention is not supported"
    if any(type(layer) not in KEYS_AND_VALUES for layer in layers):
        return "its cache holds more than keys and values"
    if getattr(config, "alibi", False):
        return "its attention counts distances over pads (ALiBi)"
    if getattr(config, "prefix_lm", False) or not is_causal(model):
        return "its attention also looks ahead"
    return None


def cache_layers(model: PreTrainedModel) -> Sequence[CacheLayerMixin]:
    """Empty layers of the model's cache, for what they say of its kinds of attention."""
    return DynamicCache(config=model.config).layers


def is_causal(model: PreTrainedModel) -> bool:
    """Whether no layer of the decoder sees the future; layers of other towers have no index."""
    return all(
        getattr(module, "is_causal", True) or getattr(module, "layer_idx", None) is None
        for module in model.modules()
    )


def has_window(model: PreTrainedModel) -> bool:
    """Whether a layer sees only so many columns back, pads included. GPT-Neo's local layers do
    so within the model, which their cache does not tell."""
    local = "local" in (getattr(model.config, "attention_layers", None) or ())
    return local or any(sliding_window(layer) is not None for layer in cache_layers(model))


def layer_types(config: PretrainedConfig) -> Sequence[str]:
    """The kinds of attention that a config names, or means by its chunk size."""
    named = getattr(config, "layer_types", None)
    if named is None and getattr(config, "attention_chunk_size", None):
        return ("chunked_attention",)
    return named or ()

"""How many numbers a token takes in a model's layers: kept in the cache, and while one computes.

All of it follows from the config, whose fields have other names in some families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from transformers import PretrainedConfig, PreTrainedModel

from engine.batchable import cache_layers
from engine.masks import holds_keys, sliding_window


class CacheLayer(NamedTuple):
    """What a layer keeps of one column of one row, in numbers, and of how many columns."""

    keys: int
    values: int
    window: int | None

    def columns(self, seen: int) -> int:
        """Columns held after `seen` of them: a sliding layer keeps those that the next query can
        see beside itself, as transformers' DynamicSlidingWindowLayer does."""
        return seen if self.window is None else min(seen, max(self.window - 1, 1))

    def numbers(self, columns: int) -> int:
        return (self.keys + self.values) * columns


def layer_kinds(model: PreTrainedModel) -> Counter[CacheLayer]:
    """The kinds of layers in the model's cache, and how many there are of each.

    Which layers there are is asked of transformers' own cache; a layer that reuses another's keys
    and values is none. Layers may have configs of their own (Gemma 4).
    """
    layers = cache_layers(model)
    config = text_config(model)
    configs = getattr(config, "per_layer_config", None) or repeat(config)
    return Counter(
        CacheLayer(*cached_numbers(layer_config), sliding_window(layer))
        # The last layers are the ones that reuse others: transformers before 5.24 has no
        # placeholders for them in the cache.
        for layer, layer_config in zip(layers, configs, strict=False)
        if holds_keys(layer)
    )


def cached(layers: Counter[CacheLayer], columns: int) -> int:
    """Numbers in the cache for one row."""
    return sum(kind.numbers(kind.columns(columns)) * many for kind, many in layers.items())


def cached_numbers(config: PretrainedConfig) -> tuple[int, int]:
    """Numbers of a token's keys and of its values in one layer.

    Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) keeps what all heads share: the
    latent, and the rotated part of the key.
    """
    if is_latent(config):
        return config.kv_lora_rank, config.qk_rope_head_dim
    heads, head_dim = _key_value_heads(config), _head_dim(config)
    return heads * head_dim, heads * (_first(config, "v_head_dim") or head_dim)


def state_numbers(config: PretrainedConfig) -> int:
    """Numbers of a token that live at once between the parts of a layer: 6 hidden states
    (embedded, residual, normed, ...), of which Gemma 3n has several streams; and an input of its
    own for every layer in Gemma 3n and 4, with what it was made of."""
    streams = _first(config, "altup_num_inputs") or 1
    per_layer = config.num_hidden_layers * (_first(config, "hidden_size_per_layer_input") or 0)
    return 6 * streams * config.hidden_size + 3 * per_layer


def attended_numbers(config: PretrainedConfig) -> int:
    """Numbers of a token's query over all heads, or of its value, whichever is more."""
    if is_latent(config):
        key = config.qk_nope_head_dim + config.qk_rope_head_dim
        return config.num_attention_heads * max(key, config.v_head_dim)
    return config.num_attention_heads * _head_dim(config)


def feed_forward_numbers(config: PretrainedConfig) -> int:
    """Numbers of a token that live at once inside the widest feed-forward layer.

    4 intermediate states cover the gated kinds (gate, up, product) and a GELU written out. The
    experts of a mixture each take a copy of the states and give one, beside their own.
    """
    dense = 4 * _widest(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    experts = _first(config, "num_experts_per_tok", "top_k_experts", "moe_topk")
    if not experts:
        return dense
    inner = _widest(_first(config, "moe_intermediate_size", "intermediate_size"))
    shared = inner * (getattr(config, "n_shared_experts", None) or 0)
    shared = 4 * (getattr(config, "shared_expert_intermediate_size", None) or shared)
    return max(dense, experts * (3 * config.hidden_size + 4 * inner) + shared)


def is_latent(config: PretrainedConfig) -> bool:
    return getattr(config, "kv_lora_rank", None) is not None


def text_config(model: PreTrainedModel) -> PretrainedConfig:
    return model.config.get_text_config(decoder=True)


def layer_configs(config: PretrainedConfig) -> Sequence[PretrainedConfig]:
    """One per layer, or one for all."""
    return getattr(config, "per_layer_config", None) or [config]


def _key_value_heads(config: PretrainedConfig) -> int:
    if getattr(config, "multi_query", False):
        return 1
    return _first(config, "num_key_value_heads", "num_kv_heads") or config.num_attention_heads


def _head_dim(config: PretrainedConfig) -> int:
    return _first(config, "head_dim") or config.hidden_size // config.num_attention_heads


def _first(config: PretrainedConfig, *names: str) -> Any:
    """The first of these that the config sets; families name the same thing differently."""
    return next((value for name in names if (value := getattr(config, name, None))), None)


def _widest(sizes: int | Sequence[int]) -> int:
    """Gemma 3n lists a size per layer."""
    return sizes if isinstance(sizes, int) else max(sizes)

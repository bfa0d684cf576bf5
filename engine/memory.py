"""What a run will need of the device's memory, worked out before it, and whether that is free.

The KV cache is exact, column by column, since its shapes follow from the config. What is needed
beside it is an upper bound: the largest tensors that live at the same time in a prefill or in a
decode step of a decoder layer, by the sizes that set them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transformers import PretrainedConfig

from engine.batchable import cache_layers
from engine.errors import RequestError
from engine.free import free_bytes
from engine.masks import sliding_window
from engine.run import Batch, Request

if TYPE_CHECKING:
    from engine.models import LanguageModel

LIBRARY_BYTES = {"cuda": 64 * 2**20}
"""What the libraries below torch take from its allocator at their first product: cuBLAS has a
workspace of 32 MiB on Hopper, 8 MiB before, and may have one per stream."""


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


@dataclass(frozen=True)
class Forecast:
    """What a run needs and what is free, in bytes.

    kv_bytes: the KV cache of the largest batch if every row uses its budget, `rows` rows of
    `columns` columns. working_bytes: what the run's largest moment needs beside that. free_bytes:
    None where it can't be told. largest_batch: the largest batch size, up to that of the run, with
    which the same requests would fit; 0 if not even one by one, None if free_bytes is.
    """

    rows: int
    columns: int
    kv_bytes: int
    working_bytes: int
    free_bytes: int | None
    largest_batch: int | None

    @property
    def bytes(self) -> int:
        """All that the run needs at its largest moment."""
        return self.kv_bytes + self.working_bytes

    @property
    def fits(self) -> bool:
        """Whether the run can start; True where it can't be told."""
        return self.free_bytes is None or self.bytes <= self.free_bytes


class Need(NamedTuple):
    """What one batch needs: of its cache at its end, and in all at its largest moment."""

    kv_bytes: int
    total: int
    rows: int
    columns: int


class Shape(NamedTuple):
    """A batch as its memory sees it: B rows, S prompt columns, T new ones.

    `logit_columns` of each row go through the output layer; `vocabulary_bytes` is what sampling
    holds per row and vocabulary entry.
    """

    rows: int
    prompt: int
    new: int
    logit_columns: int
    vocabulary_bytes: int


def kv_bytes_per_token(lm: LanguageModel) -> int:
    """Bytes of one token in the KV cache, inside every sliding window."""
    return kv_bytes_at(lm, rows=1, columns=1)


def kv_bytes_at(lm: LanguageModel, *, rows: int, columns: int) -> int:
    """Bytes of the KV cache's tensors once each of `rows` rows has seen `columns` columns."""
    return rows * _cached(layer_kinds(lm), columns) * lm.model.dtype.itemsize


def layer_kinds(lm: LanguageModel) -> Counter[CacheLayer]:
    """The kinds of layers in the cache, and how many there are of each.

    Which layers there are is asked of transformers' own cache; a layer that reuses another's keys
    and values is none. Layers may have configs of their own (Gemma 4).
    """
    config = _text_config(lm)
    layers = cache_layers(lm.model)
    configs = getattr(config, "per_layer_config", None) or [config] * len(layers)
    return Counter(
        CacheLayer(*_cached_numbers(layer_config), sliding_window(layer))
        for layer, layer_config in zip(layers, configs, strict=True)
        if hasattr(layer, "get_seq_length")
    )


def forecast(lm: LanguageModel, batches: Sequence[Batch], requests: Sequence[Request]) -> Forecast:
    """What the run of these batches needs of the device, and whether it is free.

    Batches of another size are the same requests in the same order, grouped anew.
    """
    asked = max(len(batch.requests) for batch in batches)
    side = batches[0].padding_side
    lengths = [length for batch in batches for length in batch.prompt_lengths]
    in_order = [requests[index] for batch in batches for index in batch.requests]
    need_of = needs(lm)

    def need(batch_size: int) -> tuple[Need, int]:
        """Of the batch with the largest cache, and in all of the one that needs most."""
        each = [
            need_of(shape_of(lm, lengths[at], in_order[at], right=side == "right"))
            for at in _slices(len(lengths), batch_size)
        ]
        return max(each), max(batch.total for batch in each)

    def fits(batch_size: int) -> bool:
        return need(batch_size)[1] <= free

    largest, total = need(asked)
    free = free_bytes(lm.device)
    return Forecast(
        rows=largest.rows,
        columns=largest.columns,
        kv_bytes=largest.kv_bytes,
        working_bytes=total - largest.kv_bytes,
        free_bytes=free,
        # One after another: regrouped, a smaller batch may hold longer rows than a larger one.
        largest_batch=None if free is None else next(filter(fits, range(asked, 0, -1)), 0),
    )


def check_memory(forecast: Forecast) -> None:
    """Raise RequestError, with the numbers, if the run can't fit into the free memory."""
    if forecast.fits:
        return
    rows = "1 row" if forecast.rows == 1 else f"{forecast.rows:,} rows"
    numbers = (
        f"This run needs about {_size(forecast.bytes)} (KV cache {_size(forecast.kv_bytes)} for "
        f"{rows} of up to {forecast.columns:,} tokens, {_size(forecast.working_bytes)} to compute "
        f"with), and {_size(forecast.free_bytes)} are free."
    )
    if forecast.largest_batch:
        raise RequestError(
            f"{numbers} At most {forecast.largest_batch:,} of its rows fit a batch: make the batch "
            "smaller, the prompts shorter or the budgets lower."
        )
    raise RequestError(
        f"{numbers} Not even one row at a time fits: make the prompts shorter or the budgets lower."
    )


def shape_of(
    lm: LanguageModel, lengths: Sequence[int], requests: Sequence[Request], *, right: bool
) -> Shape:
    """The shape of one batch, from its rows' prompt lengths and requests."""
    # Where rows end in different columns, each row's logits are computed for all of these columns
    # and then picked.
    ends = len(set(lengths)) if right else 1
    keeps = "logits_to_keep" in inspect.signature(lm.model.forward).parameters
    return Shape(
        rows=len(lengths),
        prompt=max(lengths),
        new=max(request.max_new_tokens for request in requests),
        logit_columns=(ends if keeps else max(lengths)) + (ends > 1),
        vocabulary_bytes=max(map(sampling_bytes, requests)),
    )


def sampling_bytes(request: Request) -> int:
    """Bytes that picking a token holds at once, per row and vocabulary entry, beside the logits.

    Counted on CPU: nothing for greedy; copies in float32 where the logits are changed; for a draw
    also its distribution and the sum of it; for top-p ranks (8 bytes) and what is removed.
    """
    sampling = request.sampling
    if sampling.temperature > 0:
        return 32 if sampling.top_p < 1 else 20
    return 16 if sampling.repetition_penalty != 1 or request.min_new_tokens else 0


def needs(lm: LanguageModel) -> Callable[[Shape], Need]:
    """What a batch of a shape needs on this model.

    The terms, e being the bytes of a number, Q the queries of a row and K its keys:

    - cache: all layers' columns. A growing layer's keys (or values) are copied, so those of one
      layer are there twice. What slid out of a window in the prefill is held until the next step:
      a layer's tensors are views into what was concatenated.
    - masks: B·Q·K truth values per kind of layer, and one in the model's dtype, which scaled dot
      product attention makes of it (with a padded copy on CUDA). Eager attention holds masks in
      the model's dtype and, per head, scores as they are, in float32, and as probabilities.
    - a layer: B·Q times the states between its parts, and the larger of attention (queries,
      outputs, and keys and values repeated for every head) and feed-forward.
    - the output layer: logits, three times where they are capped, and what sampling makes of them.
    - the batch: ids, positions, and which are real; 40 bytes a column.
    """
    config, layers = _text_config(lm), layer_kinds(lm)
    number = lm.model.dtype.itemsize
    eager = lm.model.config._attn_implementation == "eager"
    on_cuda = lm.device.type == "cuda"
    kinds = len({layer.window for layer in layers}) or 1
    heads = max(_heads(config) for config in _layer_configs(config))
    attended = max(_attended_numbers(config) for config in _layer_configs(config))
    compressed = _is_latent(config)
    capped = getattr(config, "final_logit_softcapping", None)

    def masks(queries: int, keys: int) -> int:
        pairs = queries * keys
        if eager:
            return pairs * (kinds * number + heads * (number + 8))
        return pairs * (kinds + number * (2 if on_cuda else 1))

    def layer(queries: int, keys: int) -> int:
        repeated = keys if queries > 1 or eager or compressed else 0
        attention = 2 * attended * (queries + repeated * (2 if compressed else 1))
        feed_forward = queries * _feed_forward_numbers(config)
        return queries * _state_numbers(config) + max(attention, feed_forward)

    def output(shape: Shape) -> int:
        logits = shape.logit_columns * number * (3 if capped else 1)
        return lm.vocab_size * (logits + shape.vocabulary_bytes)

    def need(shape: Shape) -> Need:
        seen = shape.prompt + shape.new - 1
        batch = 40 * (seen + 1)
        end = number * _cached(layers, seen)
        prefill = (
            number * sum(kind.numbers(shape.prompt) * many for kind, many in layers.items())
            + masks(shape.prompt, shape.prompt)
            + max(number * layer(shape.prompt, shape.prompt), output(shape))
        )
        decode = (
            end
            + number * max(max(kind.keys, kind.values) * kind.columns(seen) for kind in layers)
            + masks(1, seen)
            + max(number * layer(1, seen), output(shape))
        )
        total = max(prefill, decode if shape.new > 1 else 0) + batch
        constant = LIBRARY_BYTES.get(lm.device.type, 0)
        return Need(shape.rows * end, shape.rows * total + constant, shape.rows, seen)

    return need


def _cached(layers: Counter[CacheLayer], columns: int) -> int:
    """Numbers in the cache for one row."""
    return sum(kind.numbers(kind.columns(columns)) * many for kind, many in layers.items())


def _cached_numbers(config: PretrainedConfig) -> tuple[int, int]:
    """Numbers of a token's keys and of its values in one layer.

    Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) keeps what all heads share: the
    latent, and the rotated part of the key.
    """
    if _is_latent(config):
        return config.kv_lora_rank, config.qk_rope_head_dim
    heads, head_dim = _key_value_heads(config), _head_dim(config)
    return heads * head_dim, heads * (_first(config, "v_head_dim") or head_dim)


def _state_numbers(config: PretrainedConfig) -> int:
    """Numbers of a token that live at once between the parts of a layer: 6 hidden states
    (embedded, residual, normed, ...), of which Gemma 3n has several streams; and an input of its
    own for every layer in Gemma 3n and 4, with what it was made of."""
    streams = _first(config, "altup_num_inputs") or 1
    per_layer = config.num_hidden_layers * (_first(config, "hidden_size_per_layer_input") or 0)
    return 6 * streams * config.hidden_size + 3 * per_layer


def _attended_numbers(config: PretrainedConfig) -> int:
    """Numbers of a token's query over all heads, or of its value, whichever is more."""
    if _is_latent(config):
        key = config.qk_nope_head_dim + config.qk_rope_head_dim
        return _heads(config) * max(key, config.v_head_dim)
    return _heads(config) * _head_dim(config)


def _feed_forward_numbers(config: PretrainedConfig) -> int:
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


def _is_latent(config: PretrainedConfig) -> bool:
    return getattr(config, "kv_lora_rank", None) is not None


def _heads(config: PretrainedConfig) -> int:
    return config.num_attention_heads


def _key_value_heads(config: PretrainedConfig) -> int:
    if getattr(config, "multi_query", False):
        return 1
    return _first(config, "num_key_value_heads", "num_kv_heads") or _heads(config)


def _head_dim(config: PretrainedConfig) -> int:
    return _first(config, "head_dim") or config.hidden_size // _heads(config)


def _first(config: PretrainedConfig, *names: str) -> Any:
    """The first of these that the config sets; families name the same thing differently."""
    return next((value for name in names if (value := getattr(config, name, None))), None)


def _widest(sizes: int | Sequence[int]) -> int:
    """Gemma 3n lists a size per layer."""
    return sizes if isinstance(sizes, int) else max(sizes)


def _text_config(lm: LanguageModel) -> PretrainedConfig:
    return lm.model.config.get_text_config(decoder=True)


def _layer_configs(config: PretrainedConfig) -> Sequence[PretrainedConfig]:
    return getattr(config, "per_layer_config", None) or [config]


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _size(count: int) -> str:
    """ "4.1 GB", in decimal units as on the page."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"

"""Which keys each query may see, as the ready mask that a model's attention takes."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel


def visible_keys(
    real: Tensor, *, queries: int, key_start: int = 0, window: int | None = None
) -> Tensor:
    """(B, 1, Q, K) bool, True where query q may see key k.

    `real` is (B, N) bool for the N tokens seen so far, the last `queries` of which ask; keys
    before `key_start` have left the cache. A query sees real keys up to itself, within the
    sliding `window` if there is one, and always itself: a pad that sees nothing would give a
    softmax over nothing, which is NaN on some kernels.
    """
    seen = real.shape[1]
    query = torch.arange(seen - queries, seen, device=real.device)[:, None]
    key = torch.arange(key_start, seen, device=real.device)[None, :]
    causal = key <= query
    if window is not None:
        causal = causal & (key > query - window)
    return (causal & real[:, None, None, key_start:]) | (key == query)


def attention_mask(
    model: PreTrainedModel, cache: Cache, real: Tensor, *, queries: int
) -> Tensor | dict[str, Tensor]:
    """The mask of the next forward, one per kind of layer where a model mixes two kinds.

    Ready 4-D masks, because transformers reads a 2-D mask back to the host on every forward.
    Kernels that take no 4-D mask get the 2-D one.
    """
    if not takes_ready_masks(model):
        return real.long()
    seen_before = real.shape[1] - queries
    windows = {sliding_window(layer) for layer in filter(holds_keys, cache.layers)} or {None}
    masks = {}
    for window in windows:
        kept_from = 0 if window is None else max(seen_before - window + 1, 0)
        mask = visible_keys(real, queries=queries, key_start=kept_from, window=window)
        if model.config._attn_implementation == "eager":
            mask = torch.zeros_like(mask, dtype=model.dtype).masked_fill_(
                ~mask, torch.finfo(model.dtype).min
            )
        masks[window] = mask
    return by_kind(masks)


def prefill_mask(
    model: PreTrainedModel, cache: Cache, real: Tensor, *, has_pads: bool
) -> Tensor | dict[str, Tensor] | None:
    """The mask of a prefill of `real` (B, S) columns; None where no row is padded: that the model
    is causal is known to it, and its kernels need no mask for that."""
    return attention_mask(model, cache, real, queries=real.shape[1]) if has_pads else None


def takes_ready_masks(model: PreTrainedModel) -> bool:
    """Whether the model's attention kernel takes 4-D masks."""
    return model.config._attn_implementation in ("sdpa", "eager")


def by_kind(masks: dict[int | None, Tensor]) -> Tensor | dict[str, Tensor]:
    """Masks by window as models take them: by name where there are two kinds."""
    if len(masks) == 1:
        return next(iter(masks.values()))
    return {
        "full_attention" if window is None else "sliding_attention": mask
        for window, mask in masks.items()
    }


def holds_keys(layer: object) -> bool:
    """Whether a cache layer is for keys and values of its own, else it is a placeholder: its
    layer of the model reuses another's, or does not attend. Such layers ask for no mask."""
    return hasattr(layer, "is_sliding")


def sliding_window(layer: object) -> int | None:
    """The window of a cache layer, None where it keeps everything."""
    return layer.sliding_window if getattr(layer, "is_sliding", False) else None

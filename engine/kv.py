"""Bytes of a KV cache, counted on its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from transformers import Cache

from engine.masks import holds_keys
from engine.run import Batch, KVBytes


class Extent(NamedTuple):
    """Columns of a row that a layer holds, and columns that it held and lost."""

    columns: int
    gone: int


def kv_bytes(held: Counter[Extent], batch: Batch, worked_for: Sequence[bool]) -> KVBytes:
    """Split what a cache holds, `column_bytes_by_extent`: rows not worked for are dead weight, pads
    and all.

    A sliding-window layer keeps only the newest columns, so left pads slide out of it first.
    """
    pads = [batch.padded_length - length for length in batch.prompt_lengths]
    working = sum(worked_for)
    live = padding = dead = 0
    for (columns, gone), column_bytes in held.items():
        kept_pads = [max(row_pads - gone, 0) for row_pads in pads]
        working_pads = sum(kept for kept, works in zip(kept_pads, worked_for, strict=True) if works)
        padding += working_pads * column_bytes
        live += (working * columns - working_pads) * column_bytes
        dead += (len(pads) - working) * columns * column_bytes
    return KVBytes(live, padding, dead)


def column_bytes_by_extent(cache: Cache) -> Counter[Extent]:
    """Bytes of one column of one row, over all layers that hold as many columns and lost as many.
    Layers that hold nothing (yet) are left out."""
    counted: Counter[Extent] = Counter()
    for layer in filter(holds_keys, cache.layers):
        if not layer.is_initialized:
            continue
        rows, _, columns, _ = layer.keys.shape
        extent = Extent(columns, layer.get_seq_length() - columns)
        counted[extent] += (layer.keys.nbytes + layer.values.nbytes) // (rows * columns)
    return counted

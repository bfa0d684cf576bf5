"""Bytes of a KV cache, counted on its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import Cache

from engine.run import Batch, KVBytes


def kv_bytes(cache: Cache, batch: Batch, worked_for: Sequence[bool]) -> KVBytes:
    """Split what the cache holds: rows not worked for are dead weight, pads and all.

    A sliding-window layer keeps only the newest columns, so left pads slide out of it first.
    """
    live = padding = dead = 0
    pads = [batch.padded_length - length for length in batch.prompt_lengths]
    for layer in cache.layers:
        if not layer.is_initialized:
            continue
        columns = layer.keys.shape[-2]
        gone = layer.get_seq_length() - columns
        column_bytes = (layer.keys.nbytes + layer.values.nbytes) // (len(pads) * columns)
        for row_pads, working in zip(pads, worked_for, strict=True):
            kept_pads = max(row_pads - gone, 0)
            if working:
                padding += kept_pads * column_bytes
                live += (columns - kept_pads) * column_bytes
            else:
                dead += columns * column_bytes
    return KVBytes(live, padding, dead)

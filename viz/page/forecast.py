"""What a run is going to hold of a device's memory, in a sentence."""

from __future__ import annotations

from viz.words import plural, size


def forecast_sentence(*, kv_bytes: int, rows: int, columns: int, free_bytes: int | None) -> str:
    """`kv_bytes` is the most that the KV cache will hold, of `rows` with up to `columns` tokens;
    `free_bytes` is None where nobody knows."""
    batch = f"{plural(rows, 'row')} of up to {plural(columns, 'token')}"
    free = "" if free_bytes is None else f"; {size(free_bytes)} are free"
    return f"Needs at most {size(kv_bytes)} of KV cache ({batch}){free}."

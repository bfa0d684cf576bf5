"""What a run is going to hold of a device's memory, in a sentence."""

from __future__ import annotations

from viz.words import plural, size


def forecast_sentence(
    *, kv_bytes: int, rows: int, columns: int, batches: int, free_bytes: int | None
) -> str:
    """`kv_bytes` is the most that the KV cache will hold, of `rows` with up to `columns` tokens in
    the largest of the `batches`; `free_bytes` is None where nobody knows."""
    batch = f"{plural(rows, 'row')} of up to {plural(columns, 'token')}"
    if batches > 1:
        batch += f" in the largest of {batches:,} batches"
    free = "" if free_bytes is None else f"; {_roughly(free_bytes)} of memory are free"
    return f"Needs at most {size(kv_bytes)} of KV cache ({batch}){free}."


def _roughly(count: int) -> str:
    """What is free changes from one second to the next: its small digits would only flicker."""
    return f"{count / 1e9:,.0f} GB" if count >= 10e9 else size(count)

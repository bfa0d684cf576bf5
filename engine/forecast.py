"""What a run will need of the device's memory, as plain data; engine.memory works it out."""

from __future__ import annotations

from dataclasses import dataclass


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

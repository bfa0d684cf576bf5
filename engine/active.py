"""One batch on the device: a forward for all rows, the next tokens, and which rows have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.batching import pad
from engine.clock import DeviceClock, HostCopy, to_device, working_on
from engine.decode import Decoder
from engine.errors import RunError
from engine.kv import Extent, column_bytes_by_extent, kv_bytes
from engine.masks import prefill_mask
from engine.models import LanguageModel
from engine.row import ActiveRow
from engine.run import Batch, End, KVBytes, Request
from engine.sampling import Sampler


@dataclass(frozen=True)
class Launched:
    """A forward and its sampling, given to the device: what comes of it, and what the cache holds
    after it."""

    tokens: Tensor
    on_host: HostCopy
    clock: DeviceClock
    held: Counter[Extent]


class ActiveBatch:
    """The rows of one batch on the device; `step` runs one forward for all of them.

    Rows that end stay: they are fed pads and hold their place until the last row ends. `tokens`,
    `pieces` and `ends` are those of the newest forward, one per row, as in a Step.

    A device that works by itself is given the next decode step before the tokens of this one are
    read, so that it never waits for the host. What a row does after its end is the same to all
    others, so a step that turns out to be one too many changes nothing.
    """

    def __init__(self, lm: LanguageModel, batch: Batch, requests: Sequence[Request]) -> None:
        self.batch = batch
        self.forwards = 0
        self.tokens: list[int | None] = []
        self.pieces: list[str] = []
        self.ends: list[End | None] = []
        self._lm = lm
        self._rows = [ActiveRow(request, lm.tokenizer, lm.end_ids) for request in requests]
        self._running = self._worked_for = [True] * len(requests)
        self._budget = max(request.max_new_tokens for request in requests)
        self._sample = Sampler(requests, batch.prompt_ids, end_ids=lm.end_ids, device=lm.device)
        self._cache = lm.new_cache()
        self._decoder: Decoder | None = None
        self._launched = 0
        self._newest: Launched | None = None
        self._ahead: Launched | None = None

    @property
    def running(self) -> bool:
        return any(self._running)

    @torch.inference_mode()
    def step(self) -> None:
        """One forward, prefill at first, then decode: the next token of every row that runs."""
        with working_on(self._lm.device):
            newest = self._ahead or self._launch(self._newest)
            self._ahead = self._launch(newest) if self._may_run_ahead else None
            self._newest = newest
            self.forwards += 1
            self._read(newest)
            self._end_rows()

    @property
    def device_seconds(self) -> float | None:
        """What the newest forward and its sampling took on a CUDA device."""
        return self._newest.clock.seconds if self._newest else None

    def kv_bytes(self) -> KVBytes:
        """What the cache holds after the forward; a row that ended in it was still worked for."""
        return kv_bytes(self._newest.held, self.batch, self._worked_for)

    def unread(self) -> list[str]:
        """What rows that run have held back of their texts, once nothing more will come."""
        return [
            row.rest() if running else ""
            for row, running in zip(self._rows, self._running, strict=True)
        ]

    @property
    def _may_run_ahead(self) -> bool:
        """Not after the prefill: the first tokens shall not wait for a second launch."""
        return self._lm.runs_ahead and 1 < self._launched < self._budget

    def _launch(self, before: Launched | None) -> Launched:
        self._launched += 1
        clock = DeviceClock(self._lm.device)
        logits = self._decoder.step(before.tokens) if before else self._prefill()
        tokens = self._sample(logits, self._launched)
        finite = logits.amax(-1).isfinite()
        clock.stop()
        on_host = HostCopy(torch.stack([tokens, finite.to(tokens.dtype)]))
        held = self._decoder.held() if self._decoder else column_bytes_by_extent(self._cache)
        return Launched(tokens, on_host, clock, held)

    def _prefill(self) -> Tensor:
        lm, batch = self._lm, self.batch
        padded = pad(batch.prompt_ids, pad_id=lm.pad_id, side=batch.padding_side, device=lm.device)
        logits = lm.forward(
            padded.input_ids,
            mask=prefill_mask(lm.model, self._cache, padded.real, has_pads=batch.has_pads),
            position_ids=padded.position_ids,
            cache=self._cache,
            last=padded.last,
        )
        if self._budget > 1:
            self._start_decoding(padded.real)
        return logits

    def _start_decoding(self, real: Tensor) -> None:
        """Part of the first forward and its time: the cache moves to where it will grow. The last
        token is not fed again, so it takes no column."""
        self._decoder = Decoder(
            self._lm,
            self._cache,
            real,
            has_pads=self.batch.has_pads,
            columns=self.batch.padded_length + self._budget - 1,
        )

    def _read(self, launched: Launched) -> None:
        """The one host read of a step: the tokens, and whether their logits were numbers."""
        on_host, is_finite = launched.on_host.read()
        for slot, request in enumerate(self.batch.requests):
            if self._running[slot] and not is_finite[slot]:
                info = self._lm.info
                raise RunError(
                    f"Row {slot + 1} (prompt {request + 1}) produced NaN logits "
                    f"({info.dtype}, {info.attention} attention)."
                )
        self.tokens = [
            token if running else None
            for token, running in zip(on_host, self._running, strict=True)
        ]

    def _end_rows(self) -> None:
        self._worked_for = self._running
        taken = list(zip(self._rows, self.tokens, strict=True))
        self.pieces = ["" if token is None else row.take(token) for row, token in taken]
        self.ends = [None if token is None else row.end for row, token in taken]
        if any(self.ends):
            self._running = [row.end is None for row in self._rows]
            if self._decoder:
                self._decoder.end_rows(to_device(self._running, self._lm.device))

"""One batch on the device: a forward for all rows, the next tokens, and which rows have ended."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.batching import pad
from engine.clock import DeviceClock
from engine.errors import RunError
from engine.kv import kv_bytes
from engine.masks import attention_mask
from engine.models import LanguageModel
from engine.row import ActiveRow
from engine.run import Batch, End, KVBytes, Request
from engine.sampling import Sampler


class ActiveBatch:
    """The rows of one batch on the device; `step` runs one forward for all of them.

    Rows that end stay: they are fed pads and hold their place until the last row ends. `tokens`,
    `pieces` and `ends` are those of the newest forward, one per row, as in a Step.
    """

    def __init__(self, lm: LanguageModel, batch: Batch, requests: Sequence[Request]) -> None:
        padded = pad(batch.prompt_ids, pad_id=lm.pad_id, side=batch.padding_side, device=lm.device)
        budget = max(request.max_new_tokens for request in requests)
        self.batch = batch
        self.forwards = 0
        self.tokens: list[int | None] = []
        self.pieces: list[str] = []
        self.ends: list[End | None] = []
        self._lm = lm
        self._rows = [ActiveRow(request, lm.tokenizer, lm.end_ids) for request in requests]
        self._cache = lm.new_cache()
        self._clock = DeviceClock(lm.device)
        self._sample = Sampler(requests, batch.prompt_ids, end_ids=lm.end_ids, device=lm.device)
        self._real = torch.cat([padded.real, padded.real.new_ones(len(requests), budget)], dim=1)
        self._input_ids = padded.input_ids
        self._position_ids = padded.position_ids
        self._last = padded.last
        self._running = self._worked_for = [True] * len(requests)
        self._running_on_device = torch.tensor(self._running, device=lm.device)

    @property
    def running(self) -> bool:
        return any(self._running)

    @torch.inference_mode()
    def step(self) -> None:
        """One forward, prefill at first, then decode: the next token of every row that runs."""
        self.forwards += 1
        self._clock.start()
        logits = self._forward()
        tokens = self._sample(logits, self.forwards)
        self._clock.stop()
        self.tokens = self._read(tokens, logits)
        self._end_rows()
        self._feed(tokens)

    @property
    def device_seconds(self) -> float | None:
        """What the newest forward and its sampling took on a CUDA device."""
        return self._clock.seconds

    def kv_bytes(self) -> KVBytes:
        """What the cache holds after the forward; a row that ended in it was still worked for."""
        return kv_bytes(self._cache, self.batch, self._worked_for)

    def unread(self) -> list[str]:
        """What rows that run have held back of their texts, once nothing more will come."""
        return [
            row.rest() if running else ""
            for row, running in zip(self._rows, self._running, strict=True)
        ]

    def _forward(self) -> Tensor:
        seen = self.batch.padded_length + self.forwards - 1
        mask = attention_mask(
            self._lm.model,
            self._cache,
            self._real[:, :seen],
            queries=self._input_ids.shape[1],
        )
        return self._lm.forward(
            self._input_ids,
            mask=mask,
            position_ids=self._position_ids,
            cache=self._cache,
            last=self._last,
        )

    def _read(self, tokens: Tensor, logits: Tensor) -> list[int | None]:
        """The one host read of a step: the tokens, and whether their logits were numbers."""
        finite = logits.amax(-1).isfinite()
        on_host, is_finite = torch.stack([tokens, finite.to(tokens.dtype)]).tolist()
        for slot, request in enumerate(self.batch.requests):
            if self._running[slot] and not is_finite[slot]:
                info = self._lm.info
                raise RunError(
                    f"Row {slot + 1} (prompt {request + 1}) produced NaN logits "
                    f"({info.dtype}, {info.attention} attention)."
                )
        return [
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
            self._running_on_device = torch.tensor(self._running, device=self._lm.device)

    def _feed(self, tokens: Tensor) -> None:
        """Prepare the next forward. An ended row is fed pads and keeps its last position: going
        on counting could leave the model's position table."""
        if self.forwards == 1:
            lengths = torch.tensor(self.batch.prompt_lengths, device=self._lm.device)
            self._position_ids = lengths[:, None]
            self._last = [0] * len(self._rows)
        else:
            self._position_ids = self._position_ids + self._running_on_device[:, None]
        fed = torch.where(self._running_on_device, tokens, self._lm.pad_id)
        self._input_ids = fed[:, None]

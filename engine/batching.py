"""Requests -> token ids -> batches -> one padded tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engine.errors import RequestError
from engine.run import Batch, PaddingSide, Request, Settings

if TYPE_CHECKING:
    from engine.models import LanguageModel


class PaddedBatch(NamedTuple):
    """B prompts as one rectangle of S columns.

    input_ids: (B, S) long. real: (B, S) bool, False on pads, from lengths and never from ids.
    position_ids: (B, S) long, 0 at each row's first real token; pads hold any valid position.
    last: column of each row's last real token, B ints.
    """

    input_ids: Tensor
    real: Tensor
    position_ids: Tensor
    last: list[int]


def plan(lm: LanguageModel, requests: Sequence[Request], settings: Settings) -> list[Batch]:
    """First come, first served: consecutive batches of at most `settings.batch_size` requests.

    Raises RequestError before any forward if a prompt has no tokens or does not fit the model.
    """
    prompt_ids = [encode(lm, request, chat=settings.chat_template) for request in requests]
    for request, ids in zip(requests, prompt_ids, strict=True):
        check_fits(request, len(ids), lm.max_positions)
    size = settings.batch_size
    return [
        Batch(
            index=start // size,
            requests=tuple(range(start, min(start + size, len(requests)))),
            prompt_ids=tuple(prompt_ids[start : start + size]),
            padding_side=settings.padding_side,
        )
        for start in range(0, len(requests), size)
    ]


def encode(lm: LanguageModel, request: Request, *, chat: bool) -> tuple[int, ...]:
    """Token ids of a prompt. With `chat`, the model's template is put round a text prompt;
    the template brings its own BOS, so the tokenizer adds none. Without, an end token that the
    tokenizer puts behind every text is taken off again: an answer would begin after the end.
    One that is typed or in given ids stays."""
    name = f"Prompt {request.index + 1}"
    if not isinstance(request.prompt, str):
        ids = request.prompt
    elif chat:
        text = lm.tokenizer.apply_chat_template(
            [{"role": "user", "content": request.prompt}],
            add_generation_prompt=True,
            tokenize=False,
        )
        ids = tuple(lm.tokenizer(text, add_special_tokens=False)["input_ids"])
    else:
        ids = tuple(lm.tokenizer(request.prompt)["input_ids"])
        ids = ids[: len(ids) - lm.appended_ends]
    if not ids:
        raise RequestError(f"{name} has no tokens under this model's tokenizer.")
    if not all(isinstance(token, int) and 0 <= token < lm.vocab_size for token in ids):
        raise RequestError(f"{name} has a token id outside 0 to {lm.vocab_size - 1}.")
    return ids


def check_fits(request: Request, prompt_tokens: int, max_positions: int | None) -> None:
    """Positions are real lengths, so pads do not count; the rule is prompt + new <= context."""
    needed = prompt_tokens + request.max_new_tokens
    if max_positions is not None and needed > max_positions:
        raise RequestError(
            f"Prompt {request.index + 1} does not fit the model's context: {prompt_tokens} prompt "
            f"tokens + {request.max_new_tokens} new tokens > {max_positions}."
        )


def pad(
    prompt_ids: Sequence[Sequence[int]], *, pad_id: int, side: PaddingSide, device: torch.device
) -> PaddedBatch:
    """Lay the prompts into one rectangle, pads on the given side."""
    width = max(map(len, prompt_ids))
    starts = [width - len(ids) if side == "left" else 0 for ids in prompt_ids]
    input_ids = torch.full((len(prompt_ids), width), pad_id, dtype=torch.long)
    real = torch.zeros((len(prompt_ids), width), dtype=torch.bool)
    for row, (start, ids) in enumerate(zip(starts, prompt_ids, strict=True)):
        input_ids[row, start : start + len(ids)] = torch.tensor(ids)
        real[row, start : start + len(ids)] = True
    position_ids = (real.cumsum(-1) - 1).clamp_min(0)
    last = [start + len(ids) - 1 for start, ids in zip(starts, prompt_ids, strict=True)]
    return PaddedBatch(input_ids.to(device), real.to(device), position_ids.to(device), last)

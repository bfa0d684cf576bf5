"""Logits -> next tokens, each row by its own settings, history and stream of random numbers.

What changes the logits are transformers' own processors, in the order of its `generate`. The draw
is made here, since a row's random numbers must not depend on its neighbours.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.run import Request, Sampling


class RowSettings(NamedTuple):
    """All that decides how a row's logits become a token."""

    sampling: Sampling
    min_new_tokens: int
    end_ids: tuple[int, ...]


class Group(NamedTuple):
    """Rows with the same settings, and what these make of the rows' logits."""

    rows: Tensor | slice
    processors: LogitsProcessorList
    greedy: bool


class Sampler:
    """Picks the next token of every row of a batch, column after column.

    `prompt_ids` are the rows' real prompt tokens. An ended row goes on to be given tokens, which
    mean nothing.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        prompt_ids: Sequence[Sequence[int]],
        *,
        end_ids: Collection[int],
        device: torch.device,
    ) -> None:
        columns = max(request.max_new_tokens for request in requests)
        self._width = width = max(map(len, prompt_ids))
        draws = [row_uniforms(request) for request in requests]
        self._uniforms = torch.tensor(
            [row + [0.0] * (columns - len(row)) for row in draws], device=device
        )
        # Filled up with its own first token, a row has said nothing that it has not said.
        self._said = torch.tensor(
            [[*ids, *[ids[0]] * (width + columns - len(ids))] for ids in prompt_ids], device=device
        )
        by_settings: dict[RowSettings, list[int]] = {}
        for row, request in enumerate(requests):
            by_settings.setdefault(_settings(request, end_ids), []).append(row)
        self._groups = [
            Group(
                slice(None) if len(by_settings) == 1 else torch.tensor(rows, device=device),
                make_processors(settings, prompt_width=width, device=device),
                greedy=settings.sampling.temperature == 0,
            )
            for settings, rows in by_settings.items()
        ]

    def __call__(self, logits: Tensor, column: int) -> Tensor:
        """(B, V) logits -> (B,) token ids for column 1, 2, ..."""
        now = self._width + column - 1
        tokens = self._said[:, now]
        for rows, processors, greedy in self._groups:
            scores = logits[rows]
            if processors:
                said = self._said[rows, :now].clamp(max=scores.shape[-1] - 1)
                scores = processors(said, scores.float())
            if greedy:
                tokens[rows] = scores.max(-1).indices  # on a CPU faster than argmax
            else:
                tokens[rows] = draw(scores, self._uniforms[rows, column - 1, None])
        return tokens


def _settings(request: Request, end_ids: Collection[int]) -> RowSettings:
    blocked = () if request.ignore_eos else tuple(sorted(end_ids))
    return RowSettings(request.sampling, request.min_new_tokens, blocked)


def make_processors(
    settings: RowSettings, *, prompt_width: int, device: torch.device
) -> LogitsProcessorList:
    """transformers' processors for rows whose history is `prompt_width` columns of prompt, and
    then a column per token; empty for plain greedy rows."""
    sampling, least, end_ids = settings
    processors = LogitsProcessorList()
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if least and end_ids:
        processors.append(
            MinNewTokensLengthLogitsProcessor(prompt_width, least, list(end_ids), device=device)
        )
    if sampling.temperature > 0:
        held = torch.finfo(torch.float32)
        temperature = min(max(sampling.temperature, held.tiny), held.max)
        processors += [_subtract_largest, TemperatureLogitsWarper(temperature)]
        if sampling.top_k:
            processors.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            processors.append(TopPLogitsWarper(sampling.top_p))
        if sampling.min_p > 0:
            processors.append(MinPLogitsWarper(sampling.min_p))
    return processors


def _subtract_largest(_said: Tensor, scores: Tensor) -> Tensor:
    """Keeps a tiny temperature finite: 0 / t is 0. The probabilities stay what they were."""
    return scores - scores.amax(-1, keepdim=True)


def row_uniforms(request: Request) -> list[float]:
    """The uniform numbers in [0, 1) that a row draws with, one per column.

    They depend on (run seed, request index) alone, or the stream that the request names, so
    neither a neighbour nor the device changes a row. 24 bits each: float32 holds them without
    rounding up to 1.
    """
    stream = request.index if request.draws is None else request.draws
    generator = random.Random(f"{request.seed}/{stream}")
    return [generator.getrandbits(24) / 2**24 for _ in range(request.max_new_tokens)]


def draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """(B, V) scores and (B, 1) numbers in [0, 1) -> (B,) tokens, by the inverse of the cumulative
    distribution, softmax(scores)."""
    cumulative = scores.softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]
    # Rounded, uniform * total may reach total: then the last token with any probability.
    last = (cumulative < total).sum(-1)
    return (cumulative <= uniform * total).sum(-1).minimum(last)

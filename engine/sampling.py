"""Logits -> next tokens: greedy at temperature 0, else one stream of random numbers per row."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.run import Request

MANY = 2**31
"""More tokens than any vocabulary has: the top_k that keeps all."""


def row_uniforms(request: Request) -> list[float]:
    """The uniform numbers in [0, 1) that a row draws with, one per column.

    They depend on (run seed, request index) alone, so neither a neighbour nor the device
    changes a row. 24 bits each: float32 holds them without rounding up to 1.
    """
    generator = random.Random(f"{request.seed}/{request.index}")
    return [generator.getrandbits(24) / 2**24 for _ in range(request.max_new_tokens)]


def make_sampler(requests: Sequence[Request], device: torch.device) -> Callable:
    """What picks the next token of every row: (B, V) logits, column 1, 2, ... -> (B,) ids."""
    if all(request.sampling.temperature == 0 for request in requests):
        return greedy
    return Sampler(requests, device)


def greedy(logits: Tensor, _column: int) -> Tensor:
    """The likeliest token of every row."""
    return logits.argmax(-1)


class Sampler:
    """Rows with settings and random numbers of their own; rows at temperature 0 are greedy."""

    def __init__(self, requests: Sequence[Request], device: torch.device) -> None:
        sampling = [request.sampling for request in requests]
        columns = max(request.max_new_tokens for request in requests)
        draws = [row_uniforms(request) for request in requests]
        padded = [row + [0.0] * (columns - len(row)) for row in draws]

        def per_row(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

        smallest = torch.finfo(torch.float32).tiny
        self.uniforms = torch.tensor(padded, dtype=torch.float32, device=device)
        self.is_greedy = torch.tensor([row.temperature == 0 for row in sampling], device=device)
        self.temperature = per_row([max(row.temperature, smallest) for row in sampling])
        self.top_p = per_row([row.top_p for row in sampling])
        self.top_k = per_row([min(row.top_k, MANY) or MANY for row in sampling])

    def __call__(self, logits: Tensor, column: int) -> Tensor:
        """(B, V) logits -> (B,) token ids for column 1, 2, ..."""
        drawn = self.draw(logits.float(), self.uniforms[:, column - 1, None])
        return torch.where(self.is_greedy, greedy(logits, column), drawn)

    def draw(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Inverse of the cumulative distribution over tokens sorted by probability.

        top-k keeps the k likeliest; top-p then keeps the fewest whose sum reaches p, the
        likeliest always among them (Holtzman et al. 2020, arXiv:1904.09751).
        """
        ranked, order = logits.sort(descending=True, stable=True)
        # Subtracting the largest first keeps a tiny temperature finite: 0 / t is 0.
        probabilities = ((ranked - ranked[:, :1]) / self.temperature).softmax(-1)
        rank = torch.arange(ranked.shape[1], device=ranked.device)
        probabilities = probabilities * (rank < self.top_k)
        before = probabilities.cumsum(-1) - probabilities
        kept = probabilities * (before < self.top_p * probabilities.sum(-1, keepdim=True))
        cumulative = kept.cumsum(-1)
        chosen = (cumulative <= uniform * cumulative[:, -1:]).sum(-1, keepdim=True)
        last_kept = ((kept > 0).sum(-1, keepdim=True) - 1).clamp_min(0)
        return order.gather(-1, chosen.minimum(last_kept))[:, 0]

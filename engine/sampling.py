"""Logits -> next tokens: greedy at temperature 0, else one stream of random numbers per row."""

from __future__ import annotations

import random
from collections.abc import Sequence

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


class Sampler:
    """Picks the next token of every row of a batch."""

    def __init__(self, requests: Sequence[Request], device: torch.device) -> None:
        sampling = [request.sampling for request in requests]
        self.all_greedy = all(row.temperature == 0 for row in sampling)
        if self.all_greedy:
            return
        columns = max(request.max_new_tokens for request in requests)
        draws = [row_uniforms(request) for request in requests]
        padded = [row + [0.0] * (columns - len(row)) for row in draws]

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

        self.uniforms = torch.tensor(padded, dtype=torch.float32, device=device)
        self.greedy = column([row.temperature for row in sampling])[:, 0] == 0
        smallest = torch.finfo(torch.float32).tiny
        self.temperature = column([max(row.temperature, smallest) for row in sampling])
        self.top_p = column([row.top_p for row in sampling])
        self.top_k = column([min(row.top_k, MANY) or MANY for row in sampling])

    def __call__(self, logits: Tensor, column: int) -> Tensor:
        """(B, V) logits -> (B,) token ids for column 1, 2, ..."""
        if self.all_greedy:
            return logits.argmax(-1)
        drawn = self.draw(logits.float(), self.uniforms[:, column - 1, None])
        return torch.where(self.greedy, logits.argmax(-1), drawn)

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

"""Other ways to generate the same tokens, to hold the engine against: same ids in, same steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig

from engine.batching import pad
from engine.roofline import synchronise
from engine.sweep import Sample, Way

if TYPE_CHECKING:
    from engine.models import LanguageModel


class Timed(NamedTuple):
    """A run of a baseline: how long it took, and the new ids of each row."""

    sample: Sample
    ids: list[list[int]]


def run_baseline(
    way: Way, lm: LanguageModel, prompt_ids: Sequence[Sequence[int]], *, max_new_tokens: int
) -> Timed:
    """Greedy, every row its whole budget, whatever ends a text. `way` is "generate" or "naive"."""
    run = {"generate": with_generate, "naive": without_cache}[way]
    return run(lm, prompt_ids, max_new_tokens=max_new_tokens)


@torch.inference_mode()
def with_generate(
    lm: LanguageModel, prompt_ids: Sequence[Sequence[int]], *, max_new_tokens: int
) -> Timed:
    """transformers' own `model.generate` on the batch as the engine pads it, left, masked."""
    padded = pad(prompt_ids, pad_id=lm.pad_id, side="left", device=lm.device)
    mask = padded.real.long()
    with greedy_to_the_end(lm, max_new_tokens) as config:
        synchronise(lm.device)
        started = time.perf_counter()
        ids = lm.model.generate(padded.input_ids, attention_mask=mask, generation_config=config)
        synchronise(lm.device)
        elapsed = time.perf_counter() - started
    new = ids[:, padded.input_ids.shape[1] :].tolist()
    return Timed(Sample(elapsed, generated_tokens=sum(map(len, new))), new)


@torch.inference_mode()
def without_cache(
    lm: LanguageModel, prompt_ids: Sequence[Sequence[int]], *, max_new_tokens: int
) -> Timed:
    """A forward over the whole text for every token: what a KV cache saves.

    One prompt, as in nanoLLMServe's benchmark: without pads it needs no mask.
    """
    [prompt] = prompt_ids
    ids = torch.tensor([prompt], device=lm.device)
    synchronise(lm.device)
    started = time.perf_counter()
    ids = next_token(lm, ids)
    first = time.perf_counter() - started
    for _ in range(max_new_tokens - 1):
        ids = next_token(lm, ids)
    elapsed = time.perf_counter() - started
    sample = Sample(
        elapsed_seconds=elapsed,
        generated_tokens=max_new_tokens,
        prefill_seconds=first,
        decode_seconds=elapsed - first,
        ttft_seconds=first,
        tpot_seconds=(elapsed - first) / (max_new_tokens - 1),
    )
    return Timed(sample, [ids[0, len(prompt) :].tolist()])


def next_token(lm: LanguageModel, ids: Tensor) -> Tensor:
    """(1, n) ids -> (1, n + 1), by the likeliest next one. It is read, so the device is done."""
    logits = lm.model(input_ids=ids, use_cache=False).logits
    token = int(logits[0, -1].argmax())
    return torch.cat([ids, ids.new_tensor([[token]])], dim=1)


@contextmanager
def greedy_to_the_end(lm: LanguageModel, max_new_tokens: int) -> Iterator[GenerationConfig]:
    """Settings for `generate` under which nothing ends a row but its budget.

    What they leave open, `generate` takes from the model's own settings, the ids that end a text
    for one: so those are laid aside meanwhile.
    """
    own = lm.model.generation_config
    config = GenerationConfig(
        do_sample=False, max_new_tokens=max_new_tokens, pad_token_id=lm.pad_id, use_cache=True
    )
    lm.model.generation_config = GenerationConfig(pad_token_id=lm.pad_id)
    try:
        yield config
    finally:
        lm.model.generation_config = own

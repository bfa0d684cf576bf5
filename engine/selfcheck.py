"""A check on load that needs no knowledge of a model: its rows in a batch against the model alone.

What `engine.batchable` can tell from a model is refused there; this catches what else moves the
logits of a few tokens by more than the tolerance. What moves them less, as a pad in a recurrent
state may, passes in half precision: rounding would look the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from engine.batching import pad
from engine.decode import Decoder
from engine.errors import ModelError
from engine.masks import attention_mask
from engine.run import PaddingSide

if TYPE_CHECKING:
    from engine.models import LanguageModel

SHORT, LONG = 4, 9
"""Prompt tokens of the two rows: pads on either side, and both cross the window below."""
WINDOW = 4
"""Sliding windows are made this narrow for the check: the real ones are too long to cross."""
TOLERANCE = {torch.float32: 1e-2}
ROUNDED_TOLERANCE = 0.3
"""Distance from the model's own logits, as a fraction of their spread. In SmolLM2-135M it is 4e-6
by rounding in float32; 0.02 is all that bfloat16 rounds, and 0.005 float16. A single pad that is
seen gives 0.8 or more, in every dtype."""
BLOCKED = -1e4
"""Logits below are no opinion: some models set those of tokens that are no text to the least."""


def check_rows(lm: LanguageModel) -> None:
    """Raise ModelError if a short row beside a long one gets other logits than the model gives
    it alone, without cache, mask and positions, for a prefill and a decode step."""
    tolerance = tolerance_of(lm)
    prompts = [probe_ids(lm, SHORT + 1), probe_ids(lm, LONG + 1)]
    sides = ("left",) if lm.has_sliding_window else get_args(PaddingSide)
    with torch.inference_mode(), narrow_windows(lm):
        alone = torch.stack([logits_alone(lm, ids) for ids in prompts])
        if not alone.amax(-1).isfinite().all():
            raise ModelError(f"{lm.name} gives NaN logits in {lm.dtype}: try another dtype.")
        for side in sides:
            apart = distance(logits_in_batch(lm, prompts, side), alone)
            if not apart <= tolerance:  # so that NaN is refused too
                raise ModelError(
                    f"{lm.name} can't be batched: its rows differ from their solo runs "
                    f"({side} padding, {apart:.0%} of the logits' spread)."
                )


def tolerance_of(lm: LanguageModel) -> float:
    """Which distance is rounding."""
    return TOLERANCE.get(lm.model.dtype, ROUNDED_TOLERANCE)


def rounding_distance(lm: LanguageModel) -> float:
    """How far the logits of a decode step move if it attends to a round number of places, of which
    most hold nothing and are masked."""
    prompts = [probe_ids(lm, SHORT + 1), probe_ids(lm, LONG + 1)]
    with torch.inference_mode():
        exact, rounded = (
            logits_in_batch(lm, prompts, "left", rounded=rounded)[:, -1]
            for rounded in (False, True)
        )
    return distance(rounded, exact)


@torch.inference_mode()
def try_step(lm: LanguageModel, *, rows: int) -> None:
    """Run a decode step of so many rows, as a batch of the engine does: with more places than it
    attends to, so that nothing is compiled for their being as many."""
    prompts = [probe_ids(lm, SHORT + 1)] * rows
    logits_in_batch(lm, prompts, "left", rounded=lm.rounds_columns, columns=1000)


def probe_ids(lm: LanguageModel, count: int) -> list[int]:
    """So many ids of plain text."""
    text = "The quick brown fox jumps over the lazy dog and then it sleeps in the warm sun. "
    ids = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
    return [id % lm.vocab_size for id in (ids * count)[:count]]


def logits_alone(lm: LanguageModel, ids: Sequence[int]) -> Tensor:
    """(2, V): what the model's own forward says at the last two columns."""
    logits = lm.model(input_ids=torch.tensor([ids], device=lm.device)).logits
    return logits[0, -2:]


def logits_in_batch(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    side: PaddingSide,
    *,
    rounded: bool = False,
    columns: int = 2 * LONG,
) -> Tensor:
    """(B, 2, V): the same columns as the engine gets them, the last of each row by decoding, with
    a cache of so many columns."""
    given, fed = [ids[:-1] for ids in prompts], [ids[-1] for ids in prompts]
    padded = pad(given, pad_id=lm.pad_id, side=side, device=lm.device)
    real, cache = padded.real, lm.new_cache()
    prefill = lm.forward(
        padded.input_ids,
        mask=attention_mask(lm.model, cache, real, queries=real.shape[1]),
        position_ids=padded.position_ids,
        cache=cache,
        last=padded.last,
    )
    decoder = Decoder(lm, cache, real, has_pads=True, columns=columns, rounded=rounded)
    decode = decoder.step(torch.tensor(fed, device=lm.device))
    return torch.stack([prefill, decode], dim=1)


def distance(logits: Tensor, reference: Tensor) -> float:
    """The largest distance of two vectors of logits, over the length of the reference.

    Tokens that the model itself blocks say nothing. A constant added to all logits changes no
    probability, so it is taken off first.
    """
    blocked = reference < BLOCKED
    apart, length = (
        (vectors - vectors.mean(-1, keepdim=True)).norm(dim=-1)
        for vectors in (
            (logits.float() - reference.float()).masked_fill(blocked, 0.0),
            reference.float().masked_fill(blocked, 0.0),
        )
    )
    return (apart / length).max().item()


@contextmanager
def narrow_windows(lm: LanguageModel) -> Iterator[None]:
    """Sliding windows of WINDOW columns, where there are some, while this lasts."""
    config = lm.model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    if window:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window:
            config.sliding_window = window

"""What a person typed -> Requests, or one sentence that says what is wrong with it."""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from engine.errors import RequestError
from engine.run import PaddingSide, Request, Sampling

LARGEST = 10**15
DEFAULT_BUDGET = 32
"""New tokens of a prompt that names no number."""
MAX_STOPS = 8
MAX_STOP_CHARACTERS = 100
PENALTIES = (0.1, 10.0)
"""Repetition penalties that keep every logit finite."""


@dataclass(frozen=True)
class Limits:
    """What one run may ask for, for how long it may have the device (seconds), and how many runs
    may be under way or wait. The model's own context is checked by the engine."""

    prompts: int = 64
    prompt_characters: int = 8_000
    new_tokens: int = 512
    batch_size: int = 32
    run_seconds: int = 300
    runs: int = 21


def make_requests(
    prompts: Sequence[str | Sequence[int]],
    *,
    max_new_tokens: int | Sequence[int] = DEFAULT_BUDGET,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    ignore_eos: bool = False,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
    limits: Limits | None = None,
) -> list[Request]:
    """One Request per prompt (text or token ids); `max_new_tokens` is one number or one each.

    `seed` None draws one, so that the record can always be run again. `stop` is one stop string
    or several. Raises RequestError, naming the prompt (counted from 1) and the limit.
    """
    if isinstance(prompts, str):
        raise RequestError("Prompts must be a list, not one text.")
    if not prompts:
        raise RequestError("There are no prompts: enter at least one.")
    if limits and len(prompts) > limits.prompts:
        raise RequestError(f"{len(prompts)} prompts: the limit is {limits.prompts}.")
    sampling = _sampling(temperature, top_p, top_k, min_p, repetition_penalty)
    ignore_eos = check_flag(ignore_eos, "Ignore EOS")
    least = whole_number(min_new_tokens, "The least number of new tokens")
    if least < 0:
        raise RequestError(f"The least number of new tokens must be 0 or more, not {least}.")
    stop = _stop_strings(stop)
    seed = secrets.randbelow(2**32) if seed is None else whole_number(seed, "The seed")
    budgets = _budgets(max_new_tokens, len(prompts))
    requests = []
    for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
        name = f"Prompt {index + 1}"
        prompt = check_prompt(prompt, name, limits)
        budget = check_budget(budget, f"{name}: the token budget", limits)
        if least > budget:
            raise RequestError(
                f"{name}: at least {least:,} new tokens do not fit its token budget of {budget:,}."
            )
        requests.append(Request(index, prompt, budget, sampling, seed, ignore_eos, least, stop))
    return requests


def check_prompt(prompt: object, name: str, limits: Limits | None = None) -> str | tuple[int, ...]:
    """The prompt, a list of ids as a tuple, if it can be run within the limits. RequestError
    naming it if not."""
    prompt = "" if prompt is None else prompt
    if not isinstance(prompt, str):
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
            raise RequestError(f"{name} must be text or a list of token ids.")
        prompt = tuple(prompt)
    elif not _is_unicode(prompt):
        raise RequestError(f"{name} is not Unicode text: it has half of a surrogate pair.")
    if not (prompt.strip() if isinstance(prompt, str) else prompt):
        raise RequestError(f"{name} is empty.")
    if limits and isinstance(prompt, str) and len(prompt) > limits.prompt_characters:
        raise RequestError(
            f"{name} has {len(prompt):,} characters: the limit is {limits.prompt_characters:,}."
        )
    return prompt


def check_budget(budget: object, name: str, limits: Limits | None = None) -> int:
    """The token budget as an int of at least 1 and at most the limit. RequestError naming it if it
    is none."""
    budget = whole_number(budget, name)
    if budget < 1:
        raise RequestError(f"{name} must be at least 1, not {budget}.")
    if limits and budget > limits.new_tokens:
        raise RequestError(f"{name} is {budget:,}, the limit is {limits.new_tokens:,}.")
    return budget


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_batch_size(batch_size: object, limits: Limits | None = None) -> int:
    """The batch size as an int of at least 1 and at most the limit."""
    size = whole_number(batch_size, "The batch size")
    if size < 1:
        raise RequestError(f"The batch size must be at least 1, not {size}.")
    if limits and size > limits.batch_size:
        raise RequestError(f"The batch size is {size}, the limit is {limits.batch_size}.")
    return size


def check_padding_side(side: object) -> PaddingSide:
    """`side` if it is left or right; else RequestError."""
    if side not in get_args(PaddingSide):
        raise RequestError(f"The padding side must be left or right, not {side!r:.40}.")
    return side


def whole_number(value: object, name: str) -> int:
    """`value` as an int if it is one (also 3.0, "3"); else RequestError naming it."""
    try:
        number = _as_int(value)
    except (TypeError, ValueError) as error:
        shown = "empty" if value is None or value == "" else repr(value)[:40]
        raise RequestError(f"{name} must be a whole number, not {shown}.") from error
    if abs(number) > LARGEST:
        raise RequestError(f"{name} is too large.")
    return number


def check_flag(value: object, name: str) -> bool:
    """`value` if it is True or False; else RequestError naming it."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be on or off, not {value!r:.40}.")
    return value


def _as_int(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    whole = isinstance(value, str) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole else operator.index(value)


def _budgets(max_new_tokens: int | Sequence[int], prompts: int) -> Sequence[int]:
    if isinstance(max_new_tokens, Sequence) and not isinstance(max_new_tokens, str):
        if len(max_new_tokens) != prompts:
            raise RequestError(f"{len(max_new_tokens)} token budgets for {prompts} prompts.")
        return max_new_tokens
    return [max_new_tokens] * prompts


def _stop_strings(stop: object) -> tuple[str, ...]:
    listed = (stop,) if isinstance(stop, str) else stop
    if not isinstance(listed, Sequence) or not all(isinstance(text, str) for text in listed):
        raise RequestError("Stop strings must be a list of texts.")
    if len(listed) > MAX_STOPS:
        raise RequestError(f"{len(listed)} stop strings: the limit is {MAX_STOPS}.")
    for number, text in enumerate(listed, 1):
        if not text:
            raise RequestError(f"Stop string {number} is empty.")
        if len(text) > MAX_STOP_CHARACTERS:
            raise RequestError(
                f"Stop string {number} has {len(text):,} characters: the limit is "
                f"{MAX_STOP_CHARACTERS}."
            )
        if not _is_unicode(text):
            raise RequestError(
                f"Stop string {number} is not Unicode text: it has half of a surrogate pair."
            )
    return tuple(listed)


def _sampling(
    temperature: object, top_p: object, top_k: object, min_p: object, repetition_penalty: object
) -> Sampling:
    temperature = _number(temperature, "The temperature")
    top_p = _number(top_p, "Top-p")
    top_k = whole_number(top_k, "Top-k")
    min_p = _number(min_p, "Min-p")
    penalty = _number(repetition_penalty, "The repetition penalty")
    if temperature < 0:
        raise RequestError(f"The temperature must be 0 (greedy) or more, not {temperature:g}.")
    if not 0 < top_p <= 1:
        raise RequestError(f"Top-p must be above 0 and at most 1, not {top_p:g}.")
    if top_k < 0:
        raise RequestError(f"Top-k must be 0 (off) or more, not {top_k}.")
    if not 0 <= min_p <= 1:
        raise RequestError(f"Min-p must be from 0 (off) to 1, not {min_p:g}.")
    if not PENALTIES[0] <= penalty <= PENALTIES[1]:
        raise RequestError(
            f"The repetition penalty must be from {PENALTIES[0]:g} to {PENALTIES[1]:g} (1: off), "
            f"not {penalty:g}."
        )
    return Sampling(temperature, top_p, top_k, min_p, penalty)


def _number(value: object, name: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RequestError(f"{name} must be a number, not {value!r:.40}.")
    return number

"""Something that reads a visitor's inputs, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

from hypothesis.strategies import SearchStrategy

from engine.models import LanguageModel
from engine.requests import Limits
from tests.tiny import EOS, scripted_lm, token_ids

LIMITS = Limits(prompts=4, prompt_characters=200, new_tokens=6, batch_size=3)


class FuzzError(Exception):
    """What should hold for every input does not hold for this one."""


class Target(NamedTuple):
    """`attempt` returns if an input is taken, and raises a BatchscopeError if it is refused.
    `ready` holds what an attempt needs, as a context that is entered once. One in `rarity` of the
    examples is its share."""

    inputs: Callable[[], SearchStrategy[Any]]
    attempt: Callable[..., None]
    ready: Callable[[], Any] = nullcontext
    rarity: int = 1


@cache
def model() -> LanguageModel:
    return scripted_lm([token_ids("a🤗"), [*token_ids("<b>"), EOS], [EOS]])

"""A run as a visitor asks for it: typed into the page, sent by a script, or read from a link."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.errors import RequestError
from engine.presets import PRESETS, Preset
from engine.requests import (
    DEFAULT_BUDGET,
    Limits,
    check_batch_size,
    check_budget,
    check_flag,
    check_padding_side,
    check_prompt,
    make_requests,
    whole_number,
)
from engine.run import PaddingSide, Request

DAMAGED = "The link is damaged: its settings can't be read."


@dataclass(frozen=True)
class Order:
    """What to run and how, checked. `model` None is the host's first; `seed` None was drawn."""

    requests: tuple[Request, ...]
    model: str | None
    batch_size: int
    chat_template: bool
    padding_side: PaddingSide
    seed: int | None


class PageSettings(NamedTuple):
    """The settings that the page shows, in its order: arguments of `make_order`, but for `seed`,
    which is text there, and drawn where it is empty, and `stop`, which is text with a stop string
    on each line."""

    batch_size: int
    chat_template: bool = True
    ignore_eos: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: str = ""
    padding_side: PaddingSide = "left"
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    stop: str = ""

    @classmethod
    def of_preset(cls, preset: Preset) -> PageSettings:
        return cls(
            preset.batch_size,
            chat_template=preset.chat_template,
            ignore_eos=preset.ignore_eos,
            temperature=preset.temperature,
        )

    @classmethod
    def of_prompts(cls, prompts: Sequence[str], limits: Limits) -> PageSettings:
        """For a list that was pasted or kept: those of the preset with these prompts, else what
        an instruct model expects, in one batch."""
        for preset in PRESETS:
            if preset.within(limits).prompts == tuple(prompts):
                return cls.of_preset(preset.within(limits))
        return cls(max(1, min(len(prompts), limits.batch_size)))

    @classmethod
    def of_order(cls, order: Order) -> PageSettings:
        first = order.requests[0]
        return cls(
            order.batch_size,
            order.chat_template,
            first.ignore_eos,
            first.sampling.temperature,
            first.sampling.top_p,
            first.sampling.top_k,
            "" if order.seed is None else str(order.seed),
            order.padding_side,
            first.sampling.min_p,
            first.sampling.repetition_penalty,
            first.min_new_tokens,
            stop_text(first.stop),
        )

    def asked(self) -> dict[str, Any]:
        """As arguments of `make_order`."""
        return self._asdict() | {
            "seed": None if self.seed == "" else self.seed,
            "stop": stop_strings(self.stop),
        }


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPED = {escape: text for text, escape in _ESCAPES.items()}


def stop_text(stop: Sequence[str]) -> str:
    """Stop strings as the page shows them: one a line, line breaks inside one as \\n and \\r."""
    return "\n".join(re.sub(r"[\\\n\r]", lambda found: _ESCAPES[found[0]], text) for text in stop)


def stop_strings(text: object) -> object:
    """The inverse of `stop_text`; blank lines are skipped. What is no text is passed on, for
    `make_requests` to refuse."""
    if not isinstance(text, str):
        return text
    lines = [line for line in text.split("\n") if line]
    return [re.sub(r"\\[nr\\]", lambda found: _UNESCAPED[found[0]], line) for line in lines]


def make_order(
    limits: Limits,
    *,
    prompts: Sequence[str],
    max_new_tokens: int | Sequence[int] = DEFAULT_BUDGET,
    model: str | None = None,
    batch_size: int | None = None,
    chat_template: bool = True,
    ignore_eos: bool = False,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int | None = None,
    padding_side: PaddingSide = "left",
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
) -> Order:
    """Check all that a visitor gave, of whatever type it is; `batch_size` None is one batch, as
    far as the limit allows. Raises RequestError."""
    if not isinstance(prompts, list) or not all(isinstance(prompt, str) for prompt in prompts):
        raise RequestError("Prompts must be a list of texts.")
    requests = make_requests(
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        ignore_eos=ignore_eos,
        min_new_tokens=min_new_tokens,
        stop=stop,
        limits=limits,
    )
    one_batch = min(len(prompts), limits.batch_size)
    return Order(
        requests=tuple(requests),
        model=None if model is None else str(model),
        batch_size=check_batch_size(one_batch if batch_size is None else batch_size, limits),
        chat_template=check_flag(chat_template, "The chat template"),
        padding_side=check_padding_side(padding_side),
        seed=None if seed is None else requests[0].seed,
    )


def read_link(text: str, limits: Limits) -> Order:
    """The order in what stands behind a link's `#`: the arguments of `make_order` as a JSON object
    in base64url without padding. RequestError if it is damaged or asks for too much."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        return make_order(limits, **values)
    except RequestError as error:
        raise RequestError(f"The link can't be opened. {error}") from error
    except (ValueError, TypeError, RecursionError) as error:
        # No base64, no JSON, no object, a name that is unknown, or no prompts.
        raise RequestError(DAMAGED) from error


SWEEP_SIZES = (1, 2, 4, 8, 16)
SWEEP_RUNS = 3
MOST_RUNS = 20
"""Timed runs of each size of a sweep."""


def sizes_to_offer(limits: Limits) -> list[int]:
    """The batch sizes that double up to the limit, and the limit itself."""
    doubling = [2**power for power in range(limits.batch_size.bit_length())]
    return sorted({*doubling, limits.batch_size})


@dataclass(frozen=True)
class SweepOrder:
    """Which sizes to measure with which prompt, checked. `model` None is the host's first."""

    batch_sizes: tuple[int, ...]
    prompt: str
    max_new_tokens: int
    runs: int
    model: str | None


def make_sweep_order(
    limits: Limits,
    *,
    batch_sizes: Sequence[int],
    prompt: str,
    max_new_tokens: int = DEFAULT_BUDGET,
    runs: int = SWEEP_RUNS,
    model: str | None = None,
) -> SweepOrder:
    """Check all that a visitor gave, of whatever type it is; sizes come in order, each once.
    Raises RequestError."""
    if not isinstance(batch_sizes, list) or not batch_sizes:
        raise RequestError("There are no batch sizes: choose at least one.")
    sizes = {check_batch_size(size, limits) for size in batch_sizes}
    if not isinstance(prompt, str):
        raise RequestError("The prompt must be a text.")
    budget = check_budget(max_new_tokens, "The number of new tokens", limits)
    if budget < 2:
        raise RequestError("The number of new tokens must be at least 2: a pace takes two tokens.")
    timed = whole_number(runs, "The number of runs")
    if not 1 <= timed <= MOST_RUNS:
        raise RequestError(f"The number of runs must be from 1 to {MOST_RUNS}, not {timed}.")
    return SweepOrder(
        batch_sizes=tuple(sorted(sizes)),
        prompt=check_prompt(prompt, "The prompt", limits),
        max_new_tokens=budget,
        runs=timed,
        model=None if model is None else str(model),
    )

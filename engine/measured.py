"""A saved run, comparison or sweep -> requests like its own, and what their forwards cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from engine import comparison, runfile, sweepfile
from engine.costs import CostModel, fit
from engine.errors import RecordError
from engine.run import ModelInfo
from engine.schedules import Job, jobs_of
from engine.sweep import Sweep


class Measured(NamedTuple):
    """What a file tells: the model, its requests, and the prices fitted to its steps."""

    model: ModelInfo
    jobs: tuple[Job, ...]
    costs: CostModel


def read_measured(data: bytes) -> Measured:
    """Raises RecordError for what is none of the three, and RequestError where it has not been run
    to its end."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        raise RecordError("This is not a saved run, comparison or sweep.") from None
    names = parsed.keys() if isinstance(parsed, dict) else ()
    if "record" in names:
        swept = sweepfile.loads(data)
        costs = fit([], swept)  # first: there may be no size at all
        return Measured(swept.model, _jobs_of_sweep(swept), costs)
    if "entries" in names:
        compared = comparison.loads(data)
        costs = fit(compared.runs)
        return Measured(compared.runs[0].model, jobs_of(compared.runs[0]), costs)
    run = runfile.loads(data)
    costs = fit([run])
    return Measured(run.model, jobs_of(run), costs)


def jobs_like(prompt_tokens: Sequence[int], new_tokens: Sequence[int]) -> tuple[Job, ...]:
    """Requests of these lengths, one by one."""
    pairs = zip(prompt_tokens, new_tokens, strict=True)
    return tuple(Job(index, prompt, new, new) for index, (prompt, new) in enumerate(pairs))


def _jobs_of_sweep(swept: Sweep) -> tuple[Job, ...]:
    """Each row of its largest batch; all use their whole budget."""
    prompts = max((size.prompt_tokens for size in swept.sizes), key=len)
    return jobs_like(prompts, [swept.max_new_tokens] * len(prompts))

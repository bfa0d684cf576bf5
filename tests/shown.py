"""What a browser makes of what it is told."""

from __future__ import annotations

import itertools
from typing import Any

from viz.stage.state import StageState


def shown_tokens(stage: StageState) -> list[list[tuple[int, str]]]:
    """Of each request, the tokens in a stage's value, whose line breaks stay escaped."""
    shown: list[list[tuple[int, str]]] = [[] for _ in stage["prompts"]]
    for batch, log in zip(stage["batches"], stage["logs"], strict=True):
        lines = log.split("\n")[:-1]
        for request, line in zip(itertools.cycle(batch["requests"]), lines, strict=False):
            if line:
                token, _, text = line.partition(" ")
                shown[request].append((int(token), text))
    return shown


def applied(before: Any, patch: Any) -> Any:
    """The value after a change: see `patched` in wire.js."""
    if isinstance(patch, list):
        return patch[0]
    if isinstance(patch, str):
        return before + patch
    after = list(before) if isinstance(before, list) else dict(before)
    for name, part in patch.items():
        place = int(name) if isinstance(after, list) else name
        if part == 0:
            del after[place]
        else:
            old = after[place] if isinstance(after, list) else after.get(place)
            after[place] = applied(old, part)
    return after

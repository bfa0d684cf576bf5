"""What a stage's value shows, read back."""

from __future__ import annotations

import itertools

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

"""The stage's value as it travels: the parts that are many small things are one text each.

Gradio and its client go through every node of a value several times per update, on both sides; a
text is one node. What grows stays as it is, since only what was appended travels.
"""

from __future__ import annotations

import json

from viz.stage.state import StageState

PACKED = ("prompts", "budgets", "batches", "ends", "heading", "tiles", "counts", "moments")
"""Parts that change rarely, that come once, or that are the same few kilobytes in every update."""


def packed(state: StageState) -> StageState:
    """The same value with those parts, as far as there are any, as JSON."""
    return state | {
        name: json.dumps(state[name], ensure_ascii=False, separators=(",", ":"))
        for name in PACKED
        if name in state
    }


def unpacked(state: StageState) -> StageState:
    """What `packed` was given."""
    return state | {name: json.loads(state[name]) for name in PACKED if name in state}

"""The stage's value as it travels: all but what grows in a few texts.

Gradio and its client go through every node of a value several times per update, on both sides; a
text is one node. What grows stays as it is, since only what was appended travels.
"""

from __future__ import annotations

import orjson

from viz.stage.state import StageState

PACKED = {
    "given": ("key", "recorded", "prompts", "budgets", "side", "batches"),
    "said": ("strip", "ends", "tails", "heading", "summary", "tiles", "counts"),
    "replay": ("moments",),
}
"""The texts, and the parts that each of them holds: what comes once, what is said of the newest
step, and what only a run that is over has."""


def packed(state: StageState) -> StageState:
    """The same value with those parts, as far as there are any, as JSON."""
    rest = dict(state)
    texts = {}
    for name, parts in PACKED.items():
        if held := {part: rest.pop(part) for part in parts if part in rest}:
            texts[name] = orjson.dumps(held).decode()
    return rest | texts


def unpacked(value: StageState) -> StageState:
    """What `packed` was given."""
    rest = dict(value)
    for name in PACKED:
        if name in rest:
            rest |= orjson.loads(rest.pop(name))
    return rest

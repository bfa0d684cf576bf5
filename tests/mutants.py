"""Wrong and half-wrong inputs, as strategies of hypothesis: JSON of any type, broken documents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

NESTED = reduce(lambda inner, _: [inner], range(200), [])
NUMBERS = (0, 1, 2, -1, 3.0, 0.5, -0.0, 1e-300, 1e300, 5e-324, math.nan, math.inf, -math.inf)
LARGE = (2**31, 2**32, 2**53, 2**63, 10**16, -(10**16), 10**400, -(10**400))
TEXTS = ("", " ", "\n", "0", "3", "-1", "1e3", "NaN", "left", "eos", "x" * 300, "x" * 20_000)
ODD_TEXTS = (
    "\0",
    "\ud800",
    "\udc00\ud800",
    "\ufeff",
    "\ufffd",
    "\u2028",
    "\x1b[2J",
    "e\u0301" * 50,
)
MARKUP = ("<img src=x onerror=alert(1)>", "${1}{{2}}", "=1+1", "../../etc/passwd", "'; --")
HOLLOW = (None, True, False, [], {}, [[]], [None], [{}], {"": None}, {"a": {"b": []}}, NESTED)
EXTREMES = (*NUMBERS, *LARGE, *TEXTS, *ODD_TEXTS, *MARKUP, *HOLLOW)

texts = st.one_of(st.text(max_size=30), st.sampled_from([*TEXTS, *ODD_TEXTS, *MARKUP]))
scalars = st.one_of(st.sampled_from(EXTREMES), st.integers(), st.floats(), texts)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
"""A value of JSON, or one of those that Python's reader takes beyond it."""


@st.composite
def partly_wrong(draw: DrawFn, right: Mapping[str, SearchStrategy[Any]]) -> dict[str, Any]:
    """Values by name, of which up to three are anything."""
    values = {name: draw(strategy) for name, strategy in right.items()}
    for name in draw(st.lists(st.sampled_from(sorted(right)), max_size=3)):
        values[name] = draw(anything)
    return values


@st.composite
def broken_json(draw: DrawFn, documents: Sequence[str]) -> str:
    """One of the documents, up to three of its nodes dropped, doubled, moved or replaced."""
    document = {"": json.loads(draw(st.sampled_from(documents)))}
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        _break_a_node(draw, document)
    return json.dumps(document[""])


def _break_a_node(draw: DrawFn, document: dict[str, Any]) -> None:
    holder, key = document, ""
    while _members(holder[key]) and draw(st.integers(0, 5)):
        holder = holder[key]
        key = draw(st.sampled_from(_members(holder)))
    how = draw(st.sampled_from(["replace", "replace", "nudge", "drop", "double", "swap"]))
    other = draw(st.sampled_from(_members(holder)))
    if how == "drop" and holder is not document:
        del holder[key]
    elif how == "double" and isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    elif how == "double":
        holder[f"{key}_"] = deepcopy(holder[key])
    elif how == "swap":
        holder[key], holder[other] = holder[other], holder[key]
    elif how == "nudge" and type(holder[key]) in (int, float) and abs(holder[key]) < 1e15:
        holder[key] += draw(st.sampled_from([1, -1, 0.5, -0.001]))
    elif how == "nudge" and isinstance(holder[key], str):
        holder[key] += draw(texts)
    else:
        holder[key] = draw(anything)


def _members(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


@st.composite
def broken_bytes(draw: DrawFn, documents: Sequence[bytes]) -> bytes:
    """One of the documents, up to three of its stretches flipped, cut off, doubled or overwritten,
    or with a stretch of another document in it."""
    data = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.integers(0, len(data))) for _ in range(2))
        other = draw(st.sampled_from(documents))
        at = draw(st.integers(0, len(other)))
        data = draw(
            st.sampled_from(
                [
                    data[:end],
                    data[start:],
                    data[:start] + data[end:],
                    data[:end] + data[start:],
                    data[:start] + other[at : at + 40] + data[start:],
                    data[:start] + draw(st.binary(max_size=4)) + data[start + 1 :],
                    data[:start]
                    + bytes(byte ^ 1 for byte in data[start : start + 2])
                    + data[start + 2 :],
                ]
            )
        )
    return data

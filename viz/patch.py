"""The difference of two values as JSON, for a browser that has the first and wants the second: see
`patched` in wire.js.

[value]        takes its place
"text"         is appended to a text
{name: patch}  changes parts of a dictionary, or of a list that is as long as before
0              takes a part away
"""

from __future__ import annotations

from typing import Any

Patch = list[Any] | str | dict[str, Any] | int


def difference(before: Any, after: Any) -> Patch | None:
    """What makes `after` out of `before`; None if they are the same."""
    if before == after:
        return None
    if isinstance(before, str) and isinstance(after, str) and after.startswith(before):
        return after[len(before) :]
    if isinstance(before, dict) and isinstance(after, dict):
        gone = {name: 0 for name in before if name not in after}
        return gone | _parts(before, after, after)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return _parts(before, after, range(len(after)))
    return [after]


def _parts(before: Any, after: Any, places: Any) -> dict[str, Patch]:
    missing = isinstance(after, dict)
    parts = {}
    for place in places:
        if missing and place not in before:
            parts[str(place)] = [after[place]]
        elif (part := difference(before[place], after[place])) is not None:
            parts[str(place)] = part
    return parts

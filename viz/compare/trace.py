"""The lanes of a comparison as a trace in the Trace Event Format, for Perfetto: a process per lane,
a track per slot, and on it who has the slot.

Times are whole microseconds since the start of each run, rounded once where two spans meet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from viz.compare.lane import STATES

MICROSECONDS = 1_000_000

Value = dict[str, Any]


def comparison_trace(shown: Value) -> str:
    """The trace of what the tab shows (`CompareWriter`), its computed lanes included and named so:
    complete events ("X"), and metadata ("M") that names the tracks."""
    lanes = [*shown["lanes"], *(shown["computed"] or {"lanes": []})["lanes"]]
    names = [event for at, lane in enumerate(lanes) for event in _names(at + 1, lane)]
    spans = [
        _slice(at + 1, span, shown["prompts"])
        for at, lane in enumerate(lanes)
        for span in lane["spans"]
    ]
    content = {
        "traceEvents": [*names, *sorted(spans, key=lambda event: event["ts"])],
        "displayTimeUnit": "ms",
        "otherData": {"about": shown["strip"], "result": shown["heading"]},
    }
    return json.dumps(content, allow_nan=False, ensure_ascii=False)


def _slice(process: int, span: list[Any], prompts: list[str]) -> Value:
    slot, request, state, start, end = span
    begin = round(start * MICROSECONDS)
    return {
        "name": f"request {request + 1}: {STATES[state]}",
        "cat": STATES[state],
        "ph": "X",
        "ts": begin,
        "dur": round(end * MICROSECONDS) - begin,
        "pid": process,
        "tid": slot + 1,
        "args": {"request": request + 1, "state": STATES[state], "prompt": prompts[request]},
    }


def _names(process: int, lane: Value) -> Iterator[Value]:
    title = f"{lane['title']}, {'computed' if lane['computed'] else 'measured'}"
    yield _meta("process_name", process, name=f"{title}: {lane['note']}")
    yield _meta("process_sort_index", process, sort_index=process)
    for slot in range(lane["slots"]):
        yield _meta("thread_name", process, slot, name=f"slot {slot + 1}")
        yield _meta("thread_sort_index", process, slot, sort_index=slot + 1)


def _meta(what: str, process: int, slot: int | None = None, **about: Any) -> Value:
    thread = {} if slot is None else {"tid": slot + 1}
    return {"name": what, "ph": "M", "pid": process, **thread, "args": about}

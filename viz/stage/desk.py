"""What the stage asks the server for: a run to show, a file to take away.

The server keeps nothing between two questions: the record travels with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import wraps
from typing import Any

from engine import runfile
from engine.errors import BatchscopeError, RecordError
from engine.run import until
from viz.export import TEXTS, export_text, file_name
from viz.recorded import RECORDINGS, recorded
from viz.stage.state import stage_state

Answer = dict[str, Any]
Question = dict[str, Any]

EXPORTS = (
    {"label": "Picture", "note": "PNG, 1920 × 1080", "format": "svg", "scale": 1},
    {"label": "Large picture", "note": "PNG, 3840 × 2160", "format": "svg", "scale": 2},
    {"label": "Vector picture", "note": "SVG", "format": "svg"},
    {"label": "Replay that works offline", "note": "HTML", "format": "html"},
    {"label": "The run, to open here again", "note": "JSON", "format": "json"},
    {"label": "Table of steps", "note": "CSV", "format": "csv"},
    {"label": "Trace for Perfetto", "note": "JSON", "format": "trace"},
)


def _answering(answer: Callable[[Question], Answer]) -> Callable[[Any], Answer]:
    """Says what is wrong with a question as {"error": sentence}."""

    @wraps(answer)
    def checked(question: Any) -> Answer:
        try:
            return answer(question if isinstance(question, dict) else {})
        except BatchscopeError as error:
            return {"error": str(error)}

    return checked


@_answering
def open_run(question: Question) -> Answer:
    """{"record": JSON of a saved run} -> {"state": the stage's value}."""
    record = _record_of(question)
    run = runfile.loads(record)
    if run.status == "running":
        raise RecordError("The run was saved before it ended.")
    key = hashlib.sha256(record.encode("utf-8", "replace")).hexdigest()
    return {"state": stage_state(run, key=key)}


@_answering
def recorded_run(question: Question) -> Answer:
    """{"name": one of RECORDINGS} -> {"state": the stage's value}."""
    name = question.get("name")
    if name not in [recording.name for recording in RECORDINGS]:
        raise RecordError(f"There is no recorded run {name!r:.40}.")
    return {"state": stage_state(recorded(name), key=f"recorded-{name}", recorded=True)}


@_answering
def export_run(question: Question) -> Answer:
    """{"record", "format", "theme", "step", "recorded"} -> {"name", "type", "text"} of a file.

    A picture shows the run as it stood after the step; the other formats hold all of it.
    """
    run = runfile.loads(_record_of(question))
    step = question.get("step")
    if question.get("format") == "svg" and type(step) is int and 0 <= step <= len(run.steps):
        run = until(run, step)
    text = export_text(
        run,
        question.get("format"),
        theme=question.get("theme"),
        recorded=question.get("recorded") is True,
    )
    kind = TEXTS[question["format"]]
    return {"name": file_name(run, kind.suffix), "type": kind.media_type, "text": text}


def _record_of(question: Question) -> str:
    record = question.get("record")
    if not isinstance(record, str):
        raise RecordError("Not a saved run: it is not text.")
    return record

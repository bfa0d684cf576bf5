"""What the tab asks the server for, which keeps nothing: a saved sweep to show."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from engine import sweepfile
from engine.errors import RecordError
from viz.recorded import FOLDER
from viz.stage.desk import answering
from viz.sweep.state import shown_state

RECORDED = FOLDER / "sweep.json"


@answering
def open_sweep(question: dict[str, Any]) -> dict[str, Any]:
    """{"record": JSON of a saved sweep} -> {"shown": what the tab shows}."""
    record = question.get("record")
    if not isinstance(record, str):
        raise RecordError("Not a saved sweep: it is not text.")
    sweep = sweepfile.loads(record)
    if sweep.status == "running":
        raise RecordError("The sweep was saved before it ended.")
    key = hashlib.sha256(record.encode("utf-8", "replace")).hexdigest()
    return {"shown": shown_state(sweep, key=key)}


@cache
def recorded_sweep() -> dict[str, Any] | None:
    """The sweep that comes with the page, as the tab shows it; None where there is none."""
    if not RECORDED.exists():
        return None
    sweep = sweepfile.loads(RECORDED.read_text(encoding="utf-8"))
    return shown_state(sweep, key="recorded", recorded=True)

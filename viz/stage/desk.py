"""What the stage asks the server for: a run to show, a file to take away.

The server keeps nothing between two questions: the record travels with them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from engine import runfile
from engine.errors import BatchscopeError, RecordError, RequestError
from engine.run import Run, until
from viz.export import PNG_SUFFIXES, TEXTS, export_text, file_name, refuse_continuous
from viz.recorded import RECORDINGS, recorded
from viz.slide.sheet import HEIGHT, WIDTH
from viz.stage.state import stage_state

log = logging.getLogger("batchscope.desk")

_PLACES = threading.BoundedSemaphore(4)

Answer = dict[str, Any]
Question = dict[str, Any]


def _drawn(label: str, *, scale: int) -> Answer:
    """A PNG, which the browser draws from the SVG."""
    return {
        "label": label,
        "note": f"PNG, {scale * WIDTH} × {scale * HEIGHT}",
        "format": "svg",
        "suffix": PNG_SUFFIXES[scale],
        "scale": scale,
    }


def _written(label: str, note: str, format: str) -> Answer:
    return {"label": label, "note": note, "format": format, "suffix": TEXTS[format].suffix}


EXPORTS = (
    _drawn("Picture", scale=1),
    _drawn("Large picture", scale=2),
    _written("Vector picture", "SVG", "svg"),
    _written("Replay that works offline", "HTML", "html"),
    _written("The run, to open here again", "JSON", "json"),
    _written("Table of steps", "CSV", "csv"),
    _written("Trace for Perfetto", "JSON", "trace"),
)
"""What can be taken away; `suffix` ends the name of the file."""


def answering(answer: Callable[[Question], Answer]) -> Callable[[Any], Answer]:
    """Says what is wrong with a question as {"error": sentence}."""

    @wraps(answer)
    def checked(question: Any) -> Answer:
        try:
            with at_most_a_few():
                return answer(question if isinstance(question, dict) else {})
        except BatchscopeError as error:
            return {"error": str(error)}
        except Exception:
            log.exception("a question about a file failed")
            return {"error": "Something went wrong on the server; its log says what."}

    return checked


@contextmanager
def at_most_a_few() -> Iterator[None]:
    """Work on files keeps few threads busy, or it would keep runs waiting. Raises RequestError
    where too many ask at once."""
    if not _PLACES.acquire(blocking=False):
        raise RequestError("The server is busy with other files: try again in a moment.")
    try:
        yield
    finally:
        _PLACES.release()


@answering
def open_run(question: Question) -> Answer:
    """{"record": JSON of a saved run} -> {"state": the stage's value}."""
    run = finished_run(question.get("record"))
    key = hashlib.sha256(question["record"].encode("utf-8", "replace")).hexdigest()
    return {"state": stage_state(run, key=key)}


@answering
def recorded_run(question: Question) -> Answer:
    """{"name": one of RECORDINGS} -> {"state": the stage's value}."""
    name = question.get("name")
    if name not in [recording.name for recording in RECORDINGS]:
        raise RecordError(f"There is no recorded run {name!r:.40}.")
    return {"state": stage_state(recorded(name), key=f"recorded-{name}", recorded=True)}


@answering
def export_run(question: Question) -> Answer:
    """{"record", "format", "theme", "step", "recorded"} -> {"name", "type", "text"} of a file.

    A picture shows the run as it stood after the step; the other formats hold all of it.
    """
    run = finished_run(question.get("record"))
    step, format = question.get("step"), question.get("format")
    at = ""
    if format == "svg" and type(step) is int and 0 <= step < len(run.steps):
        run, at = until(run, step), f"-step{step}"
    text = export_text(
        run,
        format,
        theme=question.get("theme"),
        recorded=question.get("recorded") is True,
    )
    kind = TEXTS[format]
    return {"name": file_name(run, at + kind.suffix), "type": kind.media_type, "text": text}


def finished_run(record: object) -> Run:
    """The run that a question brings along, one of batches that is over. Raises
    RecordError or RequestError."""
    if not isinstance(record, str):
        raise RecordError("Not a saved run: it is not text.")
    run = runfile.loads(record)
    if run.status == "running":
        raise RecordError("The run was saved before it ended.")
    refuse_continuous(run)
    return run

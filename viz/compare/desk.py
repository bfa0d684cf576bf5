"""What the tab asks the server for, which keeps nothing: a saved comparison, computed lanes."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from typing import Any

from engine import comparison as comparisons
from engine import sweepfile
from engine.comparison import Comparison
from engine.errors import RecordError, RequestError
from viz.compare.arriving import arriving
from viz.compare.computed import basis_of, computed, read_basis, read_settings
from viz.compare.paper import comparison_html
from viz.compare.planning import planned
from viz.compare.slide import compare_svg
from viz.compare.state import shown_state
from viz.compare.table import comparison_csv
from viz.compare.trace import comparison_trace
from viz.export import PNG_SUFFIXES, file_name
from viz.recorded import FOLDER
from viz.slide.sheet import HEIGHT, WIDTH
from viz.stage.desk import answering
from viz.sweep.desk import RECORDED as RECORDED_SWEEP
from viz.theme import THEMES

RECORDED = FOLDER / "compare.json.gz"

MOST_BYTES = 24 * 2**20
"""Of a file that is opened: it travels as a string in JSON, in a body that has room for 32 MiB."""

Answer = dict[str, Any]
Question = dict[str, Any]

EXPORTS = (
    {
        "label": "Picture",
        "note": f"PNG, {WIDTH} × {HEIGHT}",
        "format": "svg",
        "suffix": PNG_SUFFIXES[1],
        "scale": 1,
    },
    {
        "label": "Large picture",
        "note": f"PNG, {2 * WIDTH} × {2 * HEIGHT}",
        "format": "svg",
        "suffix": PNG_SUFFIXES[2],
        "scale": 2,
    },
    {"label": "Vector picture", "note": "SVG", "format": "svg"},
    {"label": "Page of its own", "note": "HTML", "format": "html"},
    {"label": "Table", "note": "CSV", "format": "csv"},
    {"label": "Trace for Perfetto", "note": "JSON", "format": "trace"},
    {"label": "The comparison, to open here again", "note": "JSON", "format": "json"},
)
"""What can be taken away; a PNG is drawn by the browser from the SVG."""

TYPES = {
    "svg": (".svg", "image/svg+xml"),
    "html": (".html", "text/html"),
    "csv": (".csv", "text/csv"),
    "json": (".json", "application/json"),
    "trace": (".trace.json", "application/json"),
}
"""By format, the end of a file's name and its media type."""

DRAWN = {
    "svg": lambda shown, theme: compare_svg(shown, theme=theme),
    "html": lambda shown, theme: comparison_html(shown, theme=theme),
    "trace": lambda shown, _: comparison_trace(shown),
}
"""Formats that are made of what the tab shows."""


@answering
def open_comparison(question: Question) -> Answer:
    """{"record": JSON of a saved comparison} -> {"shown": what the tab shows}."""
    record = question.get("record")
    found = finished(record)
    key = hashlib.sha256(record.encode("utf-8", "replace")).hexdigest()
    return {"shown": shown_state(found, key=key)}


@answering
def compute_lanes(question: Question) -> Answer:
    """{"basis", "slots", "order"} -> the lanes of other schedules, see `computed`."""
    basis = read_basis(question.get("basis"))
    return computed(basis, **read_settings(question, basis))


@answering
def plan_batch(question: Question) -> Answer:
    """{"sweep": JSON of a saved sweep, or nothing for the one that comes with the page, ...} -> the
    best batch size, see `planned`."""
    record = question.get("sweep") or RECORDED_SWEEP.read_text(encoding="utf-8")
    if not isinstance(record, str):
        raise RecordError("Not a saved sweep: it is not text.")
    return planned(sweepfile.loads(record), question)


@answering
def let_arrive(question: Question) -> Answer:
    """{"basis", ...} -> how long requests wait that arrive over time, see `arriving`."""
    return arriving(read_basis(question.get("basis")), question)


@answering
def export_comparison(question: Question) -> Answer:
    """{"record", "recorded", "format", "theme", "slots", "order"} -> {"name", "type", "text"} of a
    file. The picture and the table have the computed lanes for these slots and that order."""
    recorded = question.get("recorded") is True
    found = recorded_record() if recorded else finished(question.get("record"))
    format, theme = question.get("format"), question.get("theme")
    if not isinstance(format, str) or format not in TYPES:
        raise RequestError(f"The format must be one of {', '.join(TYPES)}.")
    if not isinstance(theme, str) or theme not in THEMES:
        raise RequestError(f"The theme must be {' or '.join(THEMES)}.")
    if not found.runs:
        raise RequestError("Nothing ran, so there is nothing to take away.")
    basis = basis_of(found)
    settings = {"slots": 1, "order": "as given"}
    if isinstance(basis, str):
        basis = None
    else:
        settings = read_settings(question, basis)
    if format == "json":
        text = comparisons.dumps(found)
    elif format == "csv":
        text = comparison_csv(found, basis, **settings)
    else:
        shown = shown_state(found, key="", recorded=recorded)
        if basis:
            shown["computed"] = computed(basis, **settings)
        text = DRAWN[format](shown, theme)
    suffix, media_type = TYPES[format]
    return {"name": file_name(found.runs[0], f"-compare{suffix}"), "type": media_type, "text": text}


def finished(record: object) -> Comparison:
    """The comparison that a question brings along; it must be over. Raises RecordError."""
    if not isinstance(record, str):
        raise RecordError("Not a saved comparison: it is not text.")
    found = comparisons.loads(record)
    if found.status == "running":
        raise RecordError("The comparison was saved before it ended.")
    return found


@cache
def recorded_record() -> Comparison:
    """The comparison that comes with the page. Raises RecordError where there is none."""
    try:
        return comparisons.loads(gzip.decompress(RECORDED.read_bytes()))
    except FileNotFoundError:
        raise RecordError("No comparison comes with this page.") from None


@cache
def recorded_comparison() -> Answer | None:
    """That one as the tab shows it; None where there is none. It travels without its record, which
    is long and lies on the server."""
    if not RECORDED.exists():
        return None
    return shown_state(recorded_record(), key="recorded", recorded=True) | {"record": ""}

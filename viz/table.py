"""Run -> a table of its steps as CSV, for a spreadsheet or a data frame.

RFC 4180 in UTF-8: a header, then one line per step and slot. What belongs to the step (its times,
its KV bytes) stands on the line of each of its slots, so take it from one slot when adding up.
Steps, batches, forwards, slots and requests count from 1, as on the page. A cell with no value is
empty; floats are written in full and read back equal. `text` is what became readable with the
token; half a character that only the end of a stopped run let out is in the JSON record alone.

Generated text is untrusted, and a spreadsheet runs a cell that begins like a formula. Where a cell
begins depends on the country: in much of Europe it is after a semicolon, where commas and the
quotes after them divide nothing. So in front of what begins like a formula wherever a cell may
begin stands an apostrophe, and in front of an apostrophe there too: take one away in each of these
places and the text is as it was (`unguard`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from engine.run import Run

COLUMNS = (
    "step",
    "batch",
    "forward",
    "phase",
    "started_s",
    "seconds",
    "device_seconds",
    "active_rows",
    "kv_live_bytes",
    "kv_padding_bytes",
    "kv_dead_bytes",
    "slot",
    "request",
    "state",
    "token_id",
    "text",
    "end",
)
GUARD = "'"
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
"""Begin a formula, the last four in full width."""
FORMULA_STARTS = SIGNS + "\t\r\n"
"""What OWASP lists under "CSV injection"."""
_INSIDE = r'(?<=[;\t\r\n"])'
_TO_GUARD = re.compile(
    rf"\A(?=[{re.escape(FORMULA_STARTS + GUARD)}])|{_INSIDE}(?=[{re.escape(SIGNS + GUARD)}])"
)
_GUARDED = re.compile(rf"(?:\A|{_INSIDE}){GUARD}")


def csv_table(run: Run) -> str:
    """The whole table; lines end in CR LF, so write it without newline translation."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(_lines(run))
    return text.getvalue()


def guard(text: str) -> str:
    """The text as a spreadsheet may hold it: never a formula."""
    return _TO_GUARD.sub(GUARD, text)


def unguard(cell: str) -> str:
    """The text that `guard` was given."""
    return _GUARDED.sub("", cell)


def _lines(run: Run) -> Iterator[tuple]:
    for number, step in enumerate(run.steps, start=1):
        about_step = (
            number,
            step.batch + 1,
            step.forward,
            step.phase,
            step.started,
            step.seconds,
            step.device_seconds,
            step.active_rows,
            step.kv_bytes.live,
            step.kv_bytes.padding,
            step.kv_bytes.dead,
        )
        for slot, request in enumerate(run.batches[step.batch].requests):
            token = step.tokens[slot]
            yield (
                *about_step,
                slot + 1,
                request + 1,
                "idle" if token is None else "active",
                token,
                guard(step.pieces[slot]),
                step.ends[slot],
            )

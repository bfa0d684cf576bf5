"""The CSV of steps: every figure reads back equal, and no cell is a formula."""

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.run import KVBytes
from tests.unit.paper import WORKED, make_run, with_steps
from viz.table import COLUMNS, csv_table, guard, unguard

TWO_BATCHES = make_run([[(3, 4), (5, 2)], [(7, 3)]], prefill=0.1, decode=1 / 3, pause=0.7)
ON_CUDA = with_steps(WORKED, lambda step: {"device_seconds": step.seconds / 3})
NUMBERS = (
    "step",
    "batch",
    "forward",
    "active_rows",
    "kv_live_bytes",
    "kv_padding_bytes",
    "kv_dead_bytes",
    "slot",
    "request",
)


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def with_pieces(run, pieces):
    """The run with its first step's texts replaced."""
    return replace(run, steps=(replace(run.steps[0], pieces=pieces), *run.steps[1:]))


@pytest.mark.parametrize(
    "run", [WORKED, TWO_BATCHES, ON_CUDA], ids=["one batch", "two batches", "on CUDA"]
)
def test_every_figure_of_every_step_reads_back_equal(run):
    lines = iter(read(csv_table(run)))
    for number, step in enumerate(run.steps, start=1):
        for slot, request in enumerate(run.batches[step.batch].requests):
            line = next(lines)
            whole = {name: int(line[name]) for name in NUMBERS}
            assert whole == {
                "step": number,
                "batch": step.batch + 1,
                "forward": step.forward,
                "active_rows": len([token for token in step.tokens if token is not None]),
                "kv_live_bytes": step.kv_bytes.live,
                "kv_padding_bytes": step.kv_bytes.padding,
                "kv_dead_bytes": step.kv_bytes.dead,
                "slot": slot + 1,
                "request": request + 1,
            }
            assert (float(line["started_s"]), float(line["seconds"])) == (
                step.started,
                step.seconds,
            )
            device = step.device_seconds
            assert line["device_seconds"] == ("" if device is None else str(device))
            assert line["phase"] == step.phase
            token = step.tokens[slot]
            assert line["token_id"] == ("" if token is None else str(token))
            assert line["state"] == ("idle" if token is None else "active")
            assert unguard(line["text"]) == step.pieces[slot]
            assert line["end"] == (step.ends[slot] or "")
    assert next(lines, None) is None


def test_the_wastes_and_the_wall_time_can_be_added_up_from_the_lines():
    lines = read(csv_table(WORKED))
    assert len(lines) == 30
    assert sum(line["state"] == "idle" for line in lines) == 6
    once = [line for line in lines if line["slot"] == "1"]
    assert sum(float(line["seconds"]) for line in once) == pytest.approx(2.0)


def test_an_empty_slot_of_a_smaller_batch_has_no_line():
    second = [line for line in read(csv_table(TWO_BATCHES)) if line["batch"] == "2"]
    assert {line["slot"] for line in second} == {"1"}
    assert {line["request"] for line in second} == {"3"}


def test_a_run_without_steps_is_a_header():
    assert csv_table(replace(WORKED, steps=())) == ",".join(COLUMNS) + "\r\n"


def test_a_quote_a_comma_and_a_line_break_stay_in_their_cell():
    pieces = ('a "b", c', "x\r\ny\n", "\u05d0\u4e2d\U0001f30a")
    text = csv_table(with_pieces(WORKED, pieces))
    assert tuple(line["text"] for line in read(text)[:3]) == pieces
    assert '"a ""b"", c"' in text


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'=1", "'"]
)
def test_what_a_spreadsheet_would_run_is_text_and_reads_back(text):
    lines = read(csv_table(with_pieces(WORKED, (text, "safe", ""))))
    assert lines[0]["text"].startswith("'" + text[0])
    assert unguard(lines[0]["text"]) == text
    assert lines[1]["text"] == "safe"


@given(st.text())
def test_the_guard_can_always_be_taken_away(text):
    assert unguard(guard(text)) == text
    assert not guard(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_numbers_are_never_guarded():
    first = replace(WORKED.steps[0], started=1e-07, kv_bytes=KVBytes(2**40, 0, 0))
    line = read(csv_table(replace(WORKED, steps=(first, *WORKED.steps[1:]))))[0]
    assert (line["started_s"], line["kv_live_bytes"]) == ("1e-07", "1099511627776")

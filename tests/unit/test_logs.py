"""The log: one line per message, whatever is in it."""

import io
import logging
import sys

import pytest

from engine.inert import spelt_out
from engine.logs import FOREIGN, OneLine, SetOff
from viz.terminal import inert

FORGED = "\n2026-01-01 00:00:00,000 INFO batchscope.host: run 1 done"


def logged(*arguments, **options):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.error(*arguments, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🤗", "plain é 漢 🤗"),
        ("a\nb\r\nc", r"a\nb\r\nc"),
        ("\x1b[31mred\x1b[0m\x07", r"\x1b[31mred\x1b[0m\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("\u2028\u2029\x85\x0b\x0c", r"\u2028\u2029\x85\x0b\x0c"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("half \ud800", r"half \ud800"),
        ("\x00", r"\x00"),
        ("\u061c\u200e\u200f\ufeff", r"\u061c\u200e\u200f\ufeff"),
        ("👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_what_moves_a_cursor_or_ends_a_line_is_escaped(text, shown):
    assert spelt_out(text) == shown
    assert logged("refused: %s", text) == f"ERROR test: refused: {shown}\n"


def test_a_traceback_is_set_off_whatever_its_message_says():
    try:
        raise ValueError(f"odd{FORGED}\x1b[2J")
    except ValueError:
        first, *others = logged("it failed", exc_info=True).splitlines()
    assert first == "ERROR test: it failed"
    assert all(line.startswith(FOREIGN) for line in others)
    assert others[-1] == FOREIGN + FORGED.strip("\n") + r"\x1b[2J"


def test_what_others_write_to_stderr_is_set_off(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", SetOff(stream))
    print("Traceback", "of Gradio", file=sys.stderr)
    sys.stderr.write("one ")
    sys.stderr.write(f"two{FORGED}\u2028three\x1b[A\n\n")
    lines = stream.getvalue().split("\n")
    assert lines == [
        FOREIGN + "Traceback of Gradio",
        FOREIGN + "one two",
        FOREIGN + FORGED.strip("\n") + r"\u2028three\x1b[A",
        "",
        "",
    ]


def test_a_progress_bar_stays_on_its_line():
    stream = io.StringIO()
    bar = SetOff(stream)
    for percent in ("10 %", "20 %"):
        bar.write(f"\r{percent}")
        bar.flush()
    assert stream.getvalue() == f"\r{FOREIGN}10 %\r{FOREIGN}20 %"
    assert not bar.isatty()


def test_a_terminal_keeps_lines_and_tabs_and_obeys_nothing_else():
    assert inert("a\tb\nc\r\u2028\u200e\x1b[2J\ud800") == "a\tb\nc\\r\\u2028\\u200e\\x1b[2J\\ud800"

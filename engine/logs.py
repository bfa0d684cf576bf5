"""The log of a host, in which nothing that a visitor typed can look like a line of its own."""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")

FOREIGN = "    | "
"""Begins each line that is not the first of a message: of a traceback, or of another library."""


def start_log(level: str) -> None:
    """Log to stderr from this level on, one line per message.

    What others write to stderr is set off and escaped as well: Gradio prints tracebacks there
    that quote what was sent to it.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    sys.stderr = SetOff(sys.stderr)


class OneLine(logging.Formatter):
    """A message is one line; the lines of its traceback are set off from those of the log."""

    # The names are those that logging calls.
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802
        return set_off(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return set_off(stack_info)


class SetOff:
    """A text stream that sets off every line from those of the log; all else is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = False

    def write(self, text: str) -> int:
        # A progress bar goes back to the beginning of its line.
        for part in re.findall(r"[\r\n]|[^\r\n]+", text):
            if part in ("\r", "\n"):
                self._stream.write(part)
                self._begun = False
            else:
                self._stream.write(("" if self._begun else FOREIGN) + escaped(part))
                self._begun = True
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def set_off(lines: str) -> str:
    return "\n".join(FOREIGN + escaped(line) for line in lines.split("\n"))


def escaped(text: str) -> str:
    """The text on one line and without a character that moves the cursor, colours a terminal or
    turns the direction of reading: those as \\xNN or \\uNNNN, half surrogate pairs too."""
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    # Cc: control, Cf: format and direction, Cs: surrogates, Zl and Zp: line and paragraph ends.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character

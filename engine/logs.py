"""The log of a host, in which nothing that a visitor typed can look like a line of its own."""

from __future__ import annotations

import logging
import re
import sys
from typing import TextIO

from engine.inert import spelt_out

LEVELS = ("debug", "info", "warning", "error")

FOREIGN = "    | "
"""Begins each line that is not the first of a message: of a traceback, or of another library."""


def start_log(level: str) -> None:
    """Log to stderr from this level on, one line per message.

    What others write to stderr, as tracebacks, is set off and spelt out as well.
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
        return spelt_out(super().formatMessage(record))

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
                self._stream.write(("" if self._begun else FOREIGN) + spelt_out(part))
                self._begun = True
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def set_off(lines: str) -> str:
    return "\n".join(FOREIGN + spelt_out(line) for line in lines.split("\n"))

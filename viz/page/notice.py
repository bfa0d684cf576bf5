"""A line of text for progress, the queue, or what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from viz.assets import DataComponent

NoticeKind = Literal["info", "hint", "error"]
"""A hint is what is still wrong with a form that is being filled in: it looks like an info."""

MENDED = """(forecast, notice) =>
  forecast.kind === "info" && forecast.text && notice.kind === "error"
    ? { text: "", kind: "info" }
    : notice
"""
"""JavaScript for a change of the form: the forecast for it and the notice -> the notice, without
the error that held for the form as it was."""


def notice(text: str = "", kind: NoticeKind = "info") -> dict[str, str]:
    """The value of a Notice."""
    return {"text": text, "kind": kind}


class Notice(DataComponent):
    """A line of text. Screen readers hear what it says, an error at once; if it is `quiet`, only
    errors."""

    def __init__(self, *, quiet: bool = False, **options: Any) -> None:
        super().__init__(
            notice(), folder=Path(__file__).parent, name="notice", quiet=quiet, **options
        )

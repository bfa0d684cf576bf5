"""Runs of the default model that come with the page, so that it never starts empty."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from engine import runfile
from engine.run import Run

FOLDER = Path(__file__).with_name("recordings")

SIZES = (1, 2, 4, 8, 16, 32)
"""The batches that one prompt was recorded in, `size-N.json`."""


class Recording(NamedTuple):
    """A recorded run that visitors can open: `name`.json, and what its point is."""

    name: str
    label: str


RECORDINGS = (
    Recording("tutorial", "The four prompts of the tutorial"),
    Recording("straggler", "One straggler, five idle slots"),
    Recording("waves", "Eight requests, four slots"),
)


@cache
def recorded(name: str) -> Run:
    """A run that was recorded once, by its file's name. Raises RecordError without such a file."""
    return runfile.load(FOLDER / f"{name}.json")

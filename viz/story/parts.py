"""What a chapter of the story is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from viz.story.pictures import Sheet


@dataclass(frozen=True)
class Figure:
    """A picture for each width of page, what it shows, and what ran."""

    draw: Callable[[Sheet], str]
    caption: str
    source: str


class Table(NamedTuple):
    """Numbers beside a picture; the first cell of a row names it."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


class Try(NamedTuple):
    """A button that chooses a preset by its key."""

    preset: str
    label: str


@dataclass(frozen=True)
class Chapter:
    """`text` holds paragraphs, new words in **asterisks**; `formulas` are lines of their own."""

    title: str
    text: tuple[str, ...]
    figures: tuple[Figure, ...]
    formulas: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    tries: tuple[Try, ...] = ()

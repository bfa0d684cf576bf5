"""Text that a terminal, a log or a sentence only shows, and never obeys."""

from __future__ import annotations

import unicodedata

OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories: control, format and direction, surrogates, line and paragraph ends."""
JOINERS = "\u200c\u200d"
"""Of category Cf too, but letters of Persian and families of emoji fall apart without them."""


def spelt_out(text: str, *, keep: str = "") -> str:
    r"""The text without what moves a cursor, colours a terminal, hides, or turns the direction of
    reading: those as \xNN or \uNNNN, half surrogate pairs too. It is on one line unless `keep`,
    characters that stay as they are, has that of a line's end."""
    shown = JOINERS + keep
    return "".join(
        char if char in shown or unicodedata.category(char) not in OBEYED else _spelt(char)
        for char in text
    )


def _spelt(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

"""The "How it works" tab as a Gradio component: chapters as HTML that is built once."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from viz import paint
from viz.assets import DataComponent
from viz.stage.state import LEGEND
from viz.story.chapters import Runs, chapters, recorded_runs
from viz.story.parts import Chapter, Figure, Table, Try
from viz.story.pictures import NARROW, WIDE
from viz.svg import PAGE, Box, element

FOLDER = Path(__file__).parent
CSS = FOLDER / "story.css"

TITLE = "How it works"
LEAD = (
    "Why serve many requests in one batch, and what does it cost? Told in order, with runs that "
    "were recorded once: every figure is worked out from the record of its run."
)


class Story(DataComponent):
    """The story. `chosen` fires when a visitor presses a chapter's button; the value is then the
    key of the preset that makes the chapter's point."""

    def __init__(self, runs: Runs | None = None, **options: Any) -> None:
        """`runs` default to the recorded ones. Raises RecordError where one is missing."""
        super().__init__("", folder=FOLDER, name="story", **options)
        story = story_html(runs) if runs else recorded_story()
        self.html_template = self.html_template.replace("<!-- story -->", as_template(story))

    def api_info(self) -> dict[str, Any]:
        return {"type": "string", "description": "the key of the preset that was chosen"}


def as_template(html: str) -> str:
    """HTML in which Gradio, which runs templates as JavaScript and Handlebars, finds nothing to
    run: the characters that mean something there become character references."""
    return re.sub(r"[`$\\{}]", lambda found: f"&#{ord(found[0])};", html)


@cache
def recorded_story() -> str:
    """The story of the runs that come with the page."""
    return story_html(recorded_runs())


def story_html(runs: Runs) -> str:
    """All chapters; what comes out of a run is escaped."""
    return (
        f'<header class="bs-story-head"><h2>{TITLE}</h2><p>{LEAD}</p>'
        f"{_legend()}</header>"
        + "".join(_chapter(number, chapter) for number, chapter in enumerate(chapters(runs), 1))
    )


def _legend() -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">'
        f"{paint.swatch(Box(0, 0, 16, 16), state, PAGE)}</svg>{escape(name)}</li>"
        for state, name in LEGEND.items()
    )
    return f'<ul class="bs-story-legend" aria-label="Colours of the slots">{items}</ul>'


def _chapter(number: int, chapter: Chapter) -> str:
    return (
        '<section class="bs-chapter"><div class="bs-chapter-text">'
        f'<h3><span class="bs-chapter-number">{number}</span> {escape(chapter.title)}</h3>'
        + "".join(f"<p>{_prose(paragraph)}</p>" for paragraph in chapter.text)
        + "".join(map(_formula, chapter.formulas))
        + _tries(chapter.tries)
        + '</div><div class="bs-chapter-pictures">'
        + "".join(map(_figure, chapter.figures))
        + "".join(map(_table, chapter.tables))
        + "</div></section>"
    )


def _prose(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))


def _formula(line: str) -> str:
    """A line that breaks only before its equals signs."""
    first, *others = line.split(" = ")
    parts = [first, *(f"= {part}" for part in others)]
    return (
        '<p class="bs-formula">'
        + " ".join(f"<span>{escape(part)}</span>" for part in parts)
        + "</p>"
    )


def _tries(tries: tuple[Try, ...]) -> str:
    buttons = "".join(
        f'<button type="button" data-preset="{escape(key)}">{escape(label)}</button>'
        for key, label in tries
    )
    return f'<div class="bs-tries">{buttons}</div>' if buttons else ""


def _figure(figure: Figure) -> str:
    return (
        f'<figure><div class="bs-wide">{figure.draw(WIDE)}</div>'
        f'<div class="bs-narrow">{figure.draw(NARROW)}</div>'
        f"<figcaption>{escape(figure.caption)}"
        f'<span class="bs-source">{escape(figure.source)}</span></figcaption></figure>'
    )


def _table(table: Table) -> str:
    head = "".join(
        element("th", escape(name), scope="col") if name else "<td></td>" for name in table.head
    )
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f'<td dir="auto">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for first, *cells in table.lines
    )
    return (
        f"<details><summary>{escape(table.title)}</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></details>"
    )

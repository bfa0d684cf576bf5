"""The files that people take away: every format, its name, and how it is made from a Run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from engine import runfile
from engine.errors import RequestError
from engine.run import Run
from engine.sweep import Sweep
from viz.png import png
from viz.slide.slide import slide_svg
from viz.table import csv_table
from viz.theme import THEMES, Theme
from viz.trace import trace

PNG_SUFFIXES = {1: ".png", 2: "-2x.png"}
"""By how many times the width and height of the slide a PNG has."""


class Look(NamedTuple):
    """How a picture is to look; `recorded` labels a run that was not made just now."""

    theme: Theme = "light"
    recorded: bool = False


class Format(NamedTuple):
    """One kind of file. `suffix` follows the name that `file_name` makes."""

    name: str
    suffix: str
    media_type: str
    make: Callable[[Run, Look], str | bytes]


def _svg(run: Run, look: Look) -> str:
    return slide_svg(run, theme=look.theme, recorded=look.recorded)


def _png(run: Run, look: Look, *, scale: int) -> bytes:
    return png(_svg(run, look), scale=scale)


def _html(run: Run, look: Look) -> str:
    # Imported here because it brings Gradio, whose component the stage is: the others start sooner.
    from viz.offline.offline import offline_html

    return offline_html(run, theme=look.theme, recorded=look.recorded)


FORMATS = (
    *(
        Format("png", suffix, "image/png", partial(_png, scale=scale))
        for scale, suffix in PNG_SUFFIXES.items()
    ),
    Format("svg", ".svg", "image/svg+xml", _svg),
    Format("html", ".html", "text/html", _html),
    Format("json", ".json", "application/json", lambda run, _: runfile.dumps(run)),
    Format("csv", ".csv", "text/csv", lambda run, _: csv_table(run)),
    Format("trace", ".trace.json", "application/json", lambda run, _: trace(run)),
)
NAMES = tuple(dict.fromkeys(each.name for each in FORMATS))
TEXTS = {each.name: each for each in FORMATS if each.name != "png"}


def export_text(run: Run, format: str, *, theme: str = "light", recorded: bool = False) -> str:
    """One file's content as text: svg, html, json, csv or trace. Write it as UTF-8, line ends as
    they are. Raises RequestError for another format (PNG is no text) or theme."""
    _check_format(format, tuple(TEXTS))
    refuse_continuous(run)
    return TEXTS[format].make(run, Look(_check_theme(theme), recorded))


def export_files(
    run: Run, format: str, *, theme: str = "light", recorded: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Each file of a format as (name, content); "png" is two. Raises RequestError for an unknown
    format or theme, PngError where no PNG can be made."""
    _check_format(format, NAMES)
    refuse_continuous(run)
    look = Look(_check_theme(theme), recorded)
    for each in FORMATS:
        if each.name == format:
            content = each.make(run, look)
            data = content.encode() if isinstance(content, str) else content
            yield file_name(run, each.suffix), data


def file_name(run: Run | Sweep, suffix: str) -> str:
    """ "batchscope-Qwen-Qwen3-0.6B-2026-11-29T18-39-10.svg": letters, digits, dots and dashes."""
    return f"batchscope-{_safe(run.model.name)}-{_safe(run.started_at[:19])}{suffix}"


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text)[-60:].strip("-.") or "run"


def refuse_continuous(run: Run) -> None:
    """A picture of steps has no place for requests that come and go. Raises RequestError."""
    if run.settings.engine == "continuous":
        raise RequestError("A continuous run is shown in the Compare tab.")


def _check_format(format: str, known: tuple[str, ...]) -> None:
    if format not in known:
        raise RequestError(f"The format must be one of {', '.join(known)}, not {format!r:.40}.")


def _check_theme(theme: str) -> Theme:
    if theme not in tuple(THEMES):  # it may be of any type, also of one without a hash
        raise RequestError(f"The theme must be {' or '.join(THEMES)}, not {theme!r:.40}.")
    return theme

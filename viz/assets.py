"""Custom Gradio components: their JavaScript from its own file, values as data, never markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

COMMON_JS = Path(__file__).with_name("common.js")
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
PLOTLY_VERSION = f"v={plotly.__version__}"
"""Behind the file's address, so that a browser that keeps it asks for a later one."""


class DataComponent(gr.HTML):
    """A gr.HTML whose template never changes and whose value only its own script reads.

    Gradio would run a value inside a template as one more template; here every value is plain
    data that the script puts into the page through `textContent`.
    """

    def __init__(
        self,
        value: Any,
        *,
        folder: Path,
        name: str,
        scripts: Sequence[str] = (),
        head: str | None = None,
        **options: Any,
    ) -> None:
        """The component is made of `sources(folder, name, scripts)`."""
        template, script = sources(folder, name, tuple(scripts))
        super().__init__(
            value,
            html_template=template,
            js_on_load=script,
            apply_default_css=False,
            head=head,
            **options,
        )

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


@cache  # Gradio makes a component anew for every update that skips it
def sources(folder: Path, name: str, scripts: tuple[str, ...] = ()) -> tuple[str, str]:
    """The template `name`.html of a folder, and its script: what all components share, then
    `scripts`, then `name`.js. `<!-- include FILE -->` in a template stands for that file."""
    files = [COMMON_JS, *(folder / f"{script}.js" for script in (*scripts, name))]
    script = "\n".join(map(_read, files))
    template = _read(folder / f"{name}.html")
    included = re.sub(r"<!-- include (\S+) -->", lambda found: _read(folder / found[1]), template)
    return included, script


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def allow_assets() -> None:
    """Let Gradio serve plotly.min.js straight from the installed package."""
    gr.set_static_paths([PLOTLY_JS])


def plotly_head() -> str:
    """The script tag that loads Plotly from this server, wherever it is mounted."""
    return f'<script src="gradio_api/file={PLOTLY_JS}?{PLOTLY_VERSION}"></script>'

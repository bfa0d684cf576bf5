"""Run -> one HTML file that replays it: the stage as the page has it, and no network at all.

Everything is inside the file: the stage's template, style and scripts, Plotly, and the run as
JSON. A Content-Security-Policy allows exactly these scripts, by their hash, and no request; a
prompt that found a way to become markup could neither run nor fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from engine.run import Run
from viz import theme as colours
from viz.assets import PLOTLY_JS, sources
from viz.page.title import CSS as TITLE_CSS
from viz.stage import stage
from viz.stage.state import stage_state, strip

FOLDER = Path(__file__).parent
STAGE_FUNCTION = "const runStage = function (element, props, watch, trigger, server) {\n%s\n};\n"


def offline_html(run: Run, *, theme: colours.Theme = "light", recorded: bool = False) -> str:
    """The whole file. It starts in `theme`; `recorded` labels a run that was not made just now."""
    template, script = sources(stage.FOLDER, "stage", stage.SCRIPTS)
    state = stage_state(run, key="offline", recorded=recorded)
    state.pop("record", None)  # for exports, which a server makes
    styles = [TITLE_CSS, *stage.CSS, FOLDER / "offline.css"]
    plotly = _read(PLOTLY_JS)
    start = STAGE_FUNCTION % script + _read(FOLDER / "offline.js")
    return Template(_read(FOLDER / "offline.html")).substitute(
        policy=_policy(plotly, start),
        title=escape(f"{run.model.name}, {run.started_at[:10]} · Batchscope"),
        caption=escape(strip(run)),
        theme="dark" if theme == "dark" else "",
        style="\n".join([colours.css_variables(), *map(_read, styles)]),
        stage=template,
        props=script_json({**stage.stage_props(), "value": state}),
        plotly=plotly,
        start=start,
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(*scripts: str) -> str:
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    return "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(f"'sha256-{each}'" for each in hashes),
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")

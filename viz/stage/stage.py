"""The stage as a Gradio component; its value is made by `viz.stage.state`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import runfile
from viz.assets import DataComponent, plotly_head
from viz.explain import STATES, TILES
from viz.recorded import RECORDINGS
from viz.stage.desk import EXPORTS, export_run, open_run, recorded_run
from viz.stage.packed import PACKED
from viz.stage.state import LEGEND, ROW_WORDS

FOLDER = Path(__file__).parent
CSS = [FOLDER / "stage.css", FOLDER / "talk.css"]
SCRIPTS = (
    *("layout", "picture", "grow", "pace", "about", "replay"),
    *("../wire", "../filing", "files", "talk"),
)


class Stage(DataComponent):
    """Tiles, the live heatmap, memory, texts and a replay of one run; it opens and exports runs.

    It starts with a recorded run, so that a page is never empty.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            recorded_run({"name": RECORDINGS[0].name})["state"],
            folder=FOLDER,
            name="stage",
            scripts=SCRIPTS,
            head=plotly_head(),
            server_functions=[open_run, recorded_run, export_run],
            fixed=json.dumps(stage_props(), ensure_ascii=False),  # one node: see packed.py
            **options,
        )


def stage_props() -> dict[str, Any]:
    """What the stage's script knows besides its value, and never changes."""
    return {
        "legend": LEGEND,
        "row_words": ROW_WORDS,
        "tiles": [tile._asdict() for tile in TILES.values()],
        "explain_states": {name: list(state) for name, state in STATES.items()},
        "recorded_runs": [recording._asdict() for recording in RECORDINGS],
        "exports": EXPORTS,
        "max_bytes": runfile.MAX_BYTES,
        "packed": list(PACKED),
    }

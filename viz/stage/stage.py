"""The stage as a Gradio component; its value is made by `viz.stage.state`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viz.assets import DataComponent, plotly_head
from viz.stage.state import LEGEND, ROW_WORDS, empty_state

FOLDER = Path(__file__).parent
CSS = FOLDER / "stage.css"


class Stage(DataComponent):
    """Tiles, the live heatmap, the texts and the closing sentence of one run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            empty_state(),
            folder=FOLDER,
            name="stage",
            scripts=["layout", "picture"],
            head=plotly_head(),
            legend=LEGEND,
            row_words=ROW_WORDS,
            **options,
        )

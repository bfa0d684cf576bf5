"""The "Watch" tab as a Gradio component; what it shows comes from `viz.watch.feed`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.served import MINUTES, SLICE_SECONDS
from viz.assets import DataComponent, plotly_head
from viz.stage import stage
from viz.stage.desk import export_run
from viz.watch.feed import Watch

FOLDER = Path(__file__).parent
CSS = FOLDER / "watch.css"
SCRIPTS = (*(f"../stage/{script}" for script in stage.SCRIPTS), "../stage/stage", "fill", "feed")


class WatchTab(DataComponent):
    """The queue of a model, its batches, and the stage, which shows one of them.

    It has no value: its script asks for what there is to see as long as it can be seen.
    """

    def __init__(self, watch: Watch, **options: Any) -> None:
        super().__init__(
            None,
            folder=FOLDER,
            name="watch",
            scripts=SCRIPTS,
            head=plotly_head(),
            server_functions=[export_run],
            fixed=json.dumps(stage.stage_props() | {"watching": True}, ensure_ascii=False),
            models=list(watch.models),
            texts=watch.texts,
            asks_for_key=watch.asks_for_key,
            minutes=MINUTES,
            slice_seconds=SLICE_SECONDS,
            **options,
        )

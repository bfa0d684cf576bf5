"""The "Batch size" tab as a Gradio component; its value is made by `viz.sweep.state`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.sweepfile import MAX_BYTES
from viz.assets import DataComponent, plotly_head
from viz.sweep.desk import open_sweep, recorded_sweep
from viz.sweep.state import sweep_value

FOLDER = Path(__file__).parent
CSS = FOLDER / "sweep.css"
SCRIPTS = ("../filing", "charts", "form", "files")


class SweepTab(DataComponent):
    """The settings of a sweep, its charts and its table. `measure` fires with what was chosen
    (`order_in`), `halt` when the sweep is to end.

    It starts with a recorded sweep where one comes with the page.
    """

    def __init__(
        self,
        *,
        sizes: Sequence[int],
        chosen: Sequence[int],
        prompt: str,
        max_new_tokens: int,
        runs: int,
        models: Sequence[str],
        **options: Any,
    ) -> None:
        """`sizes` are offered, and those `chosen` are ticked at first."""
        super().__init__(
            sweep_value(recorded_sweep()),
            folder=FOLDER,
            name="sweep",
            scripts=SCRIPTS,
            head=plotly_head(),
            server_functions=[open_sweep],
            offered=list(sizes),
            chosen=list(chosen),
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            runs=runs,
            models=list(models),
            max_bytes=MAX_BYTES,
            **options,
        )


def order_in(data: object) -> dict[str, Any]:
    """What was chosen when `measure` fired, each of whatever type a visitor sent: arguments of
    `make_sweep_order`."""
    asked = data if isinstance(data, dict) else {}
    names = ("batch_sizes", "prompt", "max_new_tokens", "runs", "model")
    return {name: asked.get(name) for name in names}

"""The "Compare" tab as a Gradio component; its value is made by `viz.compare.state`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from viz.assets import DataComponent, plotly_head
from viz.compare.arriving import MOST_TIMES_BYTES
from viz.compare.computed import ORDERS
from viz.compare.desk import (
    EXPORTS,
    MOST_BYTES,
    compute_lanes,
    export_comparison,
    let_arrive,
    open_comparison,
    plan_batch,
    recorded_comparison,
)
from viz.compare.planning import KINDS
from viz.compare.state import compare_value

FOLDER = Path(__file__).parent
CSS = FOLDER / "compare.css"
SCRIPTS = (
    "../filing",
    "asking",
    "lanes",
    "detail",
    "form",
    "settings",
    "planner",
    "arrivals",
    "files",
)


class CompareTab(DataComponent):
    """Lanes of the same requests, measured and computed, and their table. `measure` fires with
    whose requests they are to be (`source_in`), `halt` when the comparison is to end.

    It starts with a recorded comparison where one comes with the page.
    """

    def __init__(self, *, example: str, **options: Any) -> None:
        """`example` says what the requests are that come with the page."""
        super().__init__(
            compare_value(recorded_comparison()),
            folder=FOLDER,
            name="compare",
            scripts=SCRIPTS,
            head=plotly_head(),
            server_functions=[
                open_comparison,
                compute_lanes,
                plan_batch,
                let_arrive,
                export_comparison,
            ],
            example=example,
            orders=dict(ORDERS),
            limit_kinds=dict(KINDS),
            most_times_bytes=MOST_TIMES_BYTES,
            exports=list(EXPORTS),
            max_bytes=MOST_BYTES,
            **options,
        )


def source_in(data: object) -> Literal["example", "form"]:
    """Whose requests were chosen when `measure` fired, for data of whatever type."""
    asked = data if isinstance(data, dict) else {}
    return "form" if asked.get("source") == "form" else "example"

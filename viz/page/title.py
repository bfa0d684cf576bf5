"""The title line: the name, and the switch between the themes; and rest for a page at rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viz.assets import DataComponent

FOLDER = Path(__file__).parent
CSS = FOLDER / "title.css"


class TitleLine(DataComponent):
    """It has no value."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, folder=FOLDER, name="title", scripts=["frames"], **options)

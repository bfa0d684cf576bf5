"""The title line and the notice as components, and the style sheet of the whole page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from viz.assets import DataComponent
from viz.editor.editor import CSS as EDITOR_CSS
from viz.stage.stage import CSS as STAGE_CSS
from viz.story.story import CSS as STORY_CSS

FOLDER = Path(__file__).parent
CSS_PATHS = [FOLDER / "page.css", EDITOR_CSS, *STAGE_CSS, STORY_CSS]

NoticeKind = Literal["info", "error"]


def notice(text: str = "", kind: NoticeKind = "info") -> dict[str, str]:
    """The value of a Notice."""
    return {"text": text, "kind": kind}


class Notice(DataComponent):
    """One line under the buttons: progress, the queue, or what is wrong with the input."""

    def __init__(self, **options: Any) -> None:
        super().__init__(notice(), folder=FOLDER, name="notice", **options)


class TitleLine(DataComponent):
    """The name, and the switch between the themes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, folder=FOLDER, name="title", **options)

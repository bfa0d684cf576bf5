"""The style sheets of the whole page."""

from __future__ import annotations

from pathlib import Path

from viz.compare.compare import CSS as COMPARE_CSS
from viz.editor.editor import CSS as EDITOR_CSS
from viz.page.title import CSS as TITLE_CSS
from viz.stage.stage import CSS as STAGE_CSS
from viz.story.story import CSS as STORY_CSS
from viz.sweep.sweep import CSS as SWEEP_CSS

PAGE_CSS = Path(__file__).with_name("page.css")
CSS_PATHS = [PAGE_CSS, TITLE_CSS, EDITOR_CSS, *STAGE_CSS, SWEEP_CSS, COMPARE_CSS, STORY_CSS]

"""The measures that all of a slide keeps, and its panels."""

from __future__ import annotations

from viz.grid import Colours
from viz.svg import Box, rect

WIDTH, HEIGHT = 1920, 1080
TYPE = 48  # 24 points on a slide of 13.33 x 7.5 inches
GAP = 12
RADIUS = 20


def panel(box: Box, colours: Colours) -> str:
    return rect(box, fill=colours["panel"], radius=RADIUS, stroke=colours["line"], stroke_width="2")

"""Reading a drawn picture back: its elements, its bars, and where its lines of type end."""

from typing import NamedTuple
from xml.etree import ElementTree

from engine.run import Run
from viz.columns import columns
from viz.type import text_width

SVG = "{http://www.w3.org/2000/svg}"


class Line(NamedTuple):
    """A line of type: what it says, from where to where, on which baseline."""

    said: str
    left: float
    right: float
    baseline: float
    size: float


def places(run: Run) -> list[dict[str, int]]:
    """Where each batch stands on the axis of columns, in the words of the stage's script, whose
    `layOut` places the same columns for the page: to compare the two."""
    return [
        {
            "batch": place.batch.index,
            "promptStart": place.prompt_start,
            "start": place.start,
            "width": place.width,
        }
        for place in columns(run).places
    ]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def names(root: ElementTree.Element) -> set[str]:
    return {element.tag.removeprefix(SVG) for element in root.iter()}


def bars(root: ElementTree.Element, state: str) -> list[dict[str, float]]:
    """x, y, width, height of each bar of a state."""
    groups = [each for each in root.iter(f"{SVG}g") if each.get("data-state") == state]
    found = [rect for group in groups for rect in group.iter(f"{SVG}rect")]
    return [{key: float(rect.get(key)) for key in ("x", "y", "width", "height")} for rect in found]


def lines(root: ElementTree.Element) -> list[Line]:
    return [_line(element) for element in root.iter(f"{SVG}text") if element.text]


def _line(element: ElementTree.Element) -> Line:
    x, size = float(element.get("x")), float(element.get("font-size"))
    width = text_width(element.text, size, bold=int(element.get("font-weight")) >= 600)
    rtl = element.get("direction") == "rtl"
    before = {"start": 0, "middle": width / 2, "end": width}[element.get("text-anchor")]
    left = x - (width - before if rtl else before)
    return Line(element.text, left, left + width, float(element.get("y")), size)

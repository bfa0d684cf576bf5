"""SVG as text: elements, escaped; rectangles, lines and lines of type."""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from viz import theme

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

PAGE = {name: f"var(--bs-{name})" for name in theme.LIGHT}
"""Colours for a picture inside the page: it follows the page's theme."""

FONT = ", ".join(f"'{name}'" if " " in name else name for name in theme.FONT)


class Box(NamedTuple):
    """A rectangle; x and y are its top left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def inset(self, across: float, down: float | None = None) -> Box:
        """The box without a margin on all sides."""
        down = across if down is None else down
        return Box(self.x + across, self.y + down, self.width - 2 * across, self.height - 2 * down)


def number(value: float) -> str:
    """Two decimals at most: "12", "12.5", "0.33"."""
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def clean(text: str) -> str:
    """Text that XML may hold: what it forbids becomes U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)


def element(name: str, *children: str, **attributes: str | float | None) -> str:
    """One element; children are ready SVG, attributes are escaped here, and None is left out.

    `stroke_width=2` is written stroke-width="2", `class_="x"` class="x".
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(children)
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else number(value)


def rect(box: Box, *, fill: str | None = None, radius: float | None = None, **more: str) -> str:
    return element(
        "rect",
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
        rx=radius or None,
        fill=fill,
        **more,
    )


def stroke(
    path: str,
    colour: str,
    width: float,
    *,
    opacity: float | None = None,
    dashes: str | None = None,
    join: str | None = None,
) -> str:
    """A path as a line; dashes of length 0 are dots. "" where there is no path."""
    if not path:
        return ""
    return element(
        "path",
        d=path,
        fill="none",
        stroke=colour,
        stroke_width=width,
        stroke_opacity=opacity,
        stroke_dasharray=dashes,
        stroke_linecap="round" if dashes and dashes.startswith("0 ") else None,
        stroke_linejoin=join,
    )


def baseline(middle: float, size: float) -> float:
    """Where a line of type stands whose capitals have their middle here."""
    return middle + 0.36 * size


def text(
    x: float,
    y: float,
    content: str,
    *,
    size: float,
    colour: str,
    weight: int = 400,
    anchor: str = "left",
    rtl: bool = False,
) -> str:
    """One line of type on the baseline y. `anchor` says where x is: left, middle or right."""
    # In a line that runs from right to left, "start" is its right end.
    places = {"left": "end", "middle": "middle", "right": "start"} if rtl else _LEFT_TO_RIGHT
    return element(
        "text",
        escape(clean(" ".join(content.split()))),
        x=x,
        y=y,
        font_size=size,
        font_weight=weight,
        fill=colour,
        text_anchor=places[anchor],
        direction="rtl" if rtl else None,
    )


_LEFT_TO_RIGHT = {"left": "start", "middle": "middle", "right": "end"}


def picture(width: float, height: float, *content: str, title: str, description: str = "") -> str:
    """A whole SVG with a name for screen readers, ready as a file or inside a page."""
    names = element("title", escape(clean(title)))
    if description:
        names += element("desc", escape(clean(description)))
    return element(
        "svg",
        names,
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
    )

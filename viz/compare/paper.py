"""A comparison as one HTML file: picture, table and sentences, without a script or a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from viz import theme as colours
from viz.compare.slide import compare_svg

FOLDER = Path(__file__).parent

Value = dict[str, Any]


def comparison_html(shown: Value, *, theme: colours.Theme = "light") -> str:
    """The file of what the tab shows (`CompareWriter`), its computed lanes included."""
    computed = shown["computed"] or {"rows": [], "about": []}
    svg = compare_svg(shown, theme=theme)
    rows = [[f"{name}, computed", *cells] for name, *cells in computed["rows"]]
    return Template(_read("paper.html")).substitute(
        title=escape(f"{shown['heading']} · Batchscope"),
        style=f"{colours.css_variables()}\n{_read('paper.css')}",
        theme="dark" if theme == "dark" else "",
        picture=svg[svg.index("<svg") :],  # without the XML declaration, which HTML has not
        remark=escape(shown["remark"]),
        columns="".join(f'<th scope="col">{escape(name)}</th>' for name in shown["columns"]),
        measured=_lines(shown["rows"]),
        computed=_lines(rows),
        about=escape(" ".join([shown["strip"] + ".", *computed["about"], shown["check"]])),
    )


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")

"""SVG -> PNG in a shell, drawn by Chrome through kaleido where both are installed."""

from __future__ import annotations

import base64
from typing import Any
from xml.etree import ElementTree

from engine.errors import BatchscopeError, first_line

INSTALL = "PNG needs {what}; the other formats do not. Install it with: {command}"


class PngError(BatchscopeError):
    """No PNG can be made here; the message says what is missing."""


def png(svg: str, *, scale: float = 1) -> bytes:
    """The picture at `scale` times its own width and height in pixels.

    Raises PngError where kaleido or Chrome is missing, or where Chrome gives up.
    """
    # kaleido is optional: it brings nothing that the page needs.
    try:
        import kaleido
        from kaleido.errors import ChromeNotFoundError
    except ImportError as error:
        raise PngError(
            INSTALL.format(what="kaleido", command='pip install "kaleido>=1"')
        ) from error
    figure, width, height = _figure(svg)
    try:
        return kaleido.calc_fig_sync(
            figure,
            opts={"format": "png", "width": width, "height": height, "scale": scale},
            # Else kaleido's page would ask another host for MathJax.
            kopts={"mathjax": False},
        )
    except ChromeNotFoundError as error:
        told = INSTALL.format(what="Chrome or Chromium", command="kaleido_get_chrome")
        raise PngError(told) from error
    except Exception as error:  # whatever the browser answers; kaleido has no common base for it
        raise PngError(f"Chrome could not draw the PNG: {first_line(error)}.") from error


def _figure(svg: str) -> tuple[dict[str, Any], float, float]:
    """kaleido draws Plotly figures: an empty one whose whole paper is the picture."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    source = base64.b64encode(svg.encode()).decode()
    picture = {
        "source": f"data:image/svg+xml;base64,{source}",
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1,
        "sizex": 1,
        "sizey": 1,
    }
    layout = {
        "width": width,
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
        "images": [picture],
    }
    return {"data": [], "layout": layout}, width, height

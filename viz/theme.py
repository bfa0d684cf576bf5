"""Colours and type, once, as CSS variables for both themes.

Active, padded and idle keep apart for colour-blind eyes (Okabe and Ito's blue and orange, grey);
in the dark theme blue and grey are lighter for contrast with the ground.
"""

from __future__ import annotations

from typing import Literal

Theme = Literal["light", "dark"]

LIGHT = {
    "ground": "#f5f6f8",
    "panel": "#ffffff",
    "field": "#f5f6f8",
    "line": "#dfe2e7",
    "text": "#15181e",
    "muted": "#59606c",
    "accent": "#0072b2",
    "on-accent": "#ffffff",
    "error": "#b3261e",
    "active": "#0072b2",
    "prefill": "#0b3d5e",
    "padded": "#e69f00",
    "idle": "#999999",
    "planned": "#eceef1",
}
DARK = {
    "ground": "#0e1116",
    "panel": "#171a20",
    "field": "#0f1217",
    "line": "#2b3038",
    "text": "#f2f4f7",
    "muted": "#a3aab5",
    "accent": "#4ba6e6",
    "on-accent": "#0b1620",
    "error": "#ff8a80",
    "active": "#3d9be0",
    "prefill": "#b5dcf6",
    "padded": "#e69f00",
    "idle": "#858b94",
    "planned": "#21262e",
}
THEMES: dict[Theme, dict[str, str]] = {"light": LIGHT, "dark": DARK}
FONT = ["Inter", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]


def css_variables() -> str:
    """`--bs-NAME` for every colour, switched by Gradio's `dark` class on the body."""
    font = ", ".join(f"'{name}'" if " " in name else name for name in FONT)
    return f"body {{ --bs-font: {font}; {_declare(LIGHT)} }}\nbody.dark {{ {_declare(DARK)} }}\n"


def _declare(colours: dict[str, str]) -> str:
    return " ".join(f"--bs-{name}: {value};" for name, value in colours.items())

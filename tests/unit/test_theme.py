"""E17: text is readable in both themes, and states keep apart without colour vision."""

import pytest

from viz.theme import DARK, LIGHT


def luminance(colour):
    """Relative luminance, WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["panel", "ground", "field"])
@pytest.mark.parametrize("ink", ["text", "muted", "error", "accent"])
def test_e17_text_has_contrast(theme, ground, ink):
    assert contrast(theme[ink], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_e17_the_run_button_has_contrast(theme):
    assert contrast(theme["on-accent"], theme["accent"]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("state", ["active", "padded", "idle", "prefill"])
def test_e17_states_stand_out_from_the_panel_and_from_planned_slots(theme, state):
    assert contrast(theme[state], theme["panel"]) >= 2
    assert contrast(theme[state], theme["planned"]) >= 1.8

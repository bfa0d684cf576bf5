"""A run as a finished slide: 1920 x 1080, vector, every line of type at least 24 points."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from engine.metrics import measure
from engine.run import Run
from viz import words
from viz.areas import memory
from viz.grid import Colours, gutter
from viz.paint import slots, swatch
from viz.slide.cards import arrangement, card_grid
from viz.slide.sheet import GAP, HEIGHT, TYPE, WIDTH, panel
from viz.slide.tiles import tile_row
from viz.slots import State
from viz.stage.state import LEGEND, heading, tiles
from viz.svg import Box, picture, rect, text
from viz.theme import THEMES, Theme
from viz.type import fit, text_width

HEADING = 56
MARGIN = 40
STRIP = 54  # the memory under the slots
INSIDE = Box(MARGIN, 24, WIDTH - 2 * MARGIN, HEIGHT - 40)
MEMORY_LABEL = "KV"
NAME = "Batchscope"


def slide_svg(run: Run, *, theme: Theme = "light", recorded: bool = False) -> str:
    """The slide of a run under way or ended, as a standalone SVG.

    The same run gives the same bytes. `recorded` is said in the caption.
    """
    colours = THEMES[theme]
    figures = measure(run)
    rows = list(_places(INSIDE, [66, 216, None, arrangement(len(run.requests)).height, 52]))
    head, tiles_at, picture_at, cards_at, caption_at = rows
    phrases = heading(run, figures)
    return picture(
        WIDTH,
        HEIGHT,
        rect(Box(0, 0, WIDTH, HEIGHT), fill=colours["ground"]),
        _head(phrases, head, colours),
        tile_row(tiles(run, figures), tiles_at, colours),
        _picture(run, picture_at, colours),
        card_grid(run, figures, cards_at, colours),
        _caption(run, recorded, caption_at, colours),
        title=" · ".join(filter(None, [NAME, *phrases])),
        description=words.sentence(run, figures),
    )


def _places(box: Box, heights: list[float | None]) -> Iterator[Box]:
    """The box as rows of these heights with gaps between; None takes what is left."""
    left = box.height - GAP * (len(heights) - 1) - sum(height or 0 for height in heights)
    y = box.y
    for height in heights:
        taken = left if height is None else height
        yield Box(box.x, y, box.width, taken)
        y += taken + GAP


def _head(phrases: list[str], box: Box, colours: Colours) -> str:
    """Where the run is, and the legend, in the longest form that fits."""
    first, second = phrases
    short = {state: name.partition(":")[0] for state, name in LEGEND.items()}
    for said, legend in product((second, ""), (LEGEND, short)):
        second_width = text_width(said, TYPE) + 32 if said else 0
        free = box.width - 48 - second_width - _legend_width(legend)
        if free >= text_width(first, HEADING, bold=True):
            break
    first = fit(first, HEADING, free, bold=True)
    baseline = box.y + 52
    drawn = [text(box.x, baseline, first, size=HEADING, colour=colours["text"], weight=700)]
    if said:
        x = box.x + text_width(first, HEADING, bold=True) + 32
        drawn.append(text(x, baseline, said, size=TYPE, colour=colours["muted"]))
    x = box.right - _legend_width(legend)
    for state, name in legend.items():
        drawn.append(swatch(Box(x, baseline - 37, 40, 40), state, colours))
        drawn.append(text(x + 54, baseline, name, size=TYPE, colour=colours["muted"]))
        x += _legend_item_width(name) + 36
    return "".join(drawn)


def _legend_width(legend: dict[State, str]) -> float:
    return sum(_legend_item_width(name) + 36 for name in legend.values()) - 36


def _legend_item_width(name: str) -> float:
    return 54 + text_width(name, TYPE)


def _picture(run: Run, box: Box, colours: Colours) -> str:
    inside = box.inset(24, 16)
    left = gutter(run, TYPE, labels=[MEMORY_LABEL])
    shared = {"size": TYPE, "left": left}
    above = inside._replace(height=inside.height - STRIP - 6)
    strip = inside._replace(y=inside.bottom - STRIP, height=STRIP)
    return "".join(
        [
            panel(box, colours),
            slots(run, above, colours, **shared),
            memory(run, strip, colours, rows=False, label=MEMORY_LABEL, **shared),
        ]
    )


def _caption(run: Run, recorded: bool, box: Box, colours: Colours) -> str:
    """What ran; the names of model and device give way where the line is too long."""
    facts = [*words.how_and_when(run), *["recorded"] * recorded]
    free = box.width - text_width(" · ".join(["", run.model.dtype, "", *facts]), TYPE)
    device = fit(run.model.device, TYPE, 0.45 * free)
    model = run.model.name.rpartition("/")[2]
    model = fit(model, TYPE, free - text_width(device, TYPE))
    line = " · ".join([model, run.model.dtype, device, *facts])
    y = box.y + 42
    drawn = text(box.x, y, line, size=TYPE, colour=colours["muted"])
    left = box.width - text_width(line, TYPE)
    if left > text_width(NAME, TYPE, bold=True) + 2 * TYPE:
        drawn += text(
            box.right,
            y,
            NAME,
            size=TYPE,
            colour=colours["muted"],
            weight=700,
            anchor="right",
        )
    return drawn

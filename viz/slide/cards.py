"""The requests of a run on a slide: a card each, with the prompt where there is room."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics import Figures
from engine.run import Run
from viz import words
from viz.grid import Colours
from viz.slide.sheet import GAP, TYPE, panel
from viz.stage.state import ROW_WORDS
from viz.svg import Box, text
from viz.type import fit, is_rtl, text_width, wrap

LINE = 54
SIDE = 24
MARGIN = 14
LONGEST = 2_000  # characters that are looked at: more than any card has room for


class Arrangement(NamedTuple):
    """How the texts stand: so many columns and rows of cards, so many lines in a card."""

    columns: int
    rows: int
    lines: int

    @property
    def between(self) -> float:
        # Cards of one line share one panel.
        return GAP if self.lines > 1 else 0

    @property
    def card_height(self) -> float:
        return self.lines * LINE + (MARGIN if self.lines > 1 else 0)

    @property
    def height(self) -> float:
        inside = self.rows * self.card_height + (self.rows - 1) * self.between
        return inside if self.lines > 1 else inside + MARGIN


def arrangement(requests: int) -> Arrangement:
    if requests <= 2:
        return Arrangement(max(1, requests), 1, 3)
    if requests <= 4:
        return Arrangement(2, 2, 2)
    if requests <= 8:
        return Arrangement(2, (requests + 1) // 2, 1)
    return Arrangement(2, 2, 1)


def card_grid(run: Run, figures: Figures, box: Box, colours: Colours) -> str:
    """A card per request; where there are too many, the last one says how many are left."""
    how, requests = arrangement(len(run.requests)), len(run.requests)
    places = how.columns * how.rows
    shown = requests if requests <= places else places - 1
    width = (box.width + GAP) / how.columns - GAP
    drawn = "" if how.lines > 1 else panel(box, colours)
    for place in range(min(places, requests)):
        row, column = divmod(place, how.columns)
        card = Box(
            box.x + column * (width + GAP),
            box.y + row * (how.card_height + how.between),
            width,
            how.card_height,
        )
        if how.lines > 1:
            drawn += panel(card, colours)
        if place < shown:
            drawn += _card(run, figures, place, card, how.lines, colours)
        else:
            x = card.x + SIDE
            more = f"+ {requests - shown:,} more"
            drawn += text(x, card.y + 50, more, size=TYPE, colour=colours["muted"])
    return drawn


def _card(run: Run, figures: Figures, request: int, card: Box, lines: int, colours: Colours) -> str:
    """The number of a request and its answer; above it, where a card has the lines, the prompt."""
    indent = SIDE + text_width("88", TYPE, bold=True) + 12
    line = Box(card.x + indent, card.y + 50, card.width - indent - SIDE, LINE)
    name = str(request + 1)
    number = text(card.x + SIDE, line.y, name, size=TYPE, colour=colours["text"], weight=700)
    said = []
    if lines > 1:
        prompt = words.prompt_text(run.requests[request].prompt)[:LONGEST]
        said.append((fit(prompt, TYPE, line.width), "muted"))
    answer, colour = run.texts[request][:LONGEST], "text"
    if not answer.strip():
        answer, colour = ROW_WORDS[figures.rows[request].end or "waiting"], "muted"
    room = lines - len(said)
    told = wrap(answer, TYPE, line.width, room) if room > 1 else [fit(answer, TYPE, line.width)]
    said += [(content, colour) for content in told]
    return number + "".join(
        _line(content, line._replace(y=line.y + place * LINE), colours[colour])
        for place, (content, colour) in enumerate(said)
    )


def _line(content: str, box: Box, colour: str) -> str:
    rtl = is_rtl(content)
    x = box.right if rtl else box.x
    anchor = "right" if rtl else "left"
    return text(x, box.y, content, size=TYPE, colour=colour, anchor=anchor, rtl=rtl)

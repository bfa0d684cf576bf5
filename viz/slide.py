"""A run as a finished slide: 1920 x 1080, vector, every line of type at least 24 points."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import product
from typing import Literal, NamedTuple

from engine.metrics import Figures, Waste, measure
from engine.run import Request, Run
from viz import theme, words
from viz.explain import TILES
from viz.paint import Colours, gutter, memory, slots, swatch
from viz.slots import State
from viz.stage.state import LEGEND, ROW_WORDS, heading, tiles
from viz.svg import Box, picture, rect, text
from viz.type import fit, is_rtl, text_width, wrap

WIDTH, HEIGHT = 1920, 1080
TYPE = 48  # 24 points on a slide of 13.33 x 7.5 inches
HEADING = 56
VALUE = 72
LINE = 54

MARGIN = 40
GAP = 12
RADIUS = 20
UNIT_GAP = 10
TILE_MARGIN = 13
CARD_SIDE = 24
CARD_MARGIN = 14
STRIP = 54  # the memory under the slots
INSIDE = Box(MARGIN, 24, WIDTH - 2 * MARGIN, HEIGHT - 40)

TILE_LABELS = tuple(tile.short for tile in TILES.values())
MEMORY_LABEL = "KV"
NAME = "Batchscope"
THEMES = {"light": theme.LIGHT, "dark": theme.DARK}


def slide_svg(
    run: Run, *, theme: Literal["light", "dark"] = "light", recorded: bool = False
) -> str:
    """The slide of a run under way or ended, as a standalone SVG.

    The same run gives the same bytes. `recorded` is said in the caption.
    """
    colours = THEMES[theme]
    figures = measure(run)
    rows = list(_places(INSIDE, [66, 216, None, _arrangement(len(run.requests)).height, 52]))
    head, tiles_at, picture_at, cards_at, caption_at = rows
    phrases = heading(run, figures)
    return picture(
        WIDTH,
        HEIGHT,
        rect(Box(0, 0, WIDTH, HEIGHT), fill=colours["ground"]),
        _head(phrases, head, colours),
        _tiles(run, figures, tiles_at, colours),
        _picture(run, picture_at, colours),
        _cards(run, figures, cards_at, colours),
        _caption(run, recorded, caption_at, colours),
        title=" · ".join(filter(None, [NAME, *phrases])),
        description=words.so_far(run, figures)
        if run.status == "running"
        else words.summary(run, figures),
    )


def _places(box: Box, heights: list[float | None]) -> Iterator[Box]:
    """The box as rows of these heights with gaps between; None takes what is left."""
    left = box.height - GAP * (len(heights) - 1) - sum(height or 0 for height in heights)
    y = box.y
    for height in heights:
        taken = left if height is None else height
        yield Box(box.x, y, box.width, taken)
        y += taken + GAP


def _panel(box: Box, colours: Colours) -> str:
    return rect(box, fill=colours["panel"], radius=RADIUS, stroke=colours["line"], stroke_width="2")


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


class _Tile(NamedTuple):
    label: str
    value: str
    unit: str
    note: str
    bar: list[tuple[State, float]]

    def width(self, size: float) -> float:
        """The least it needs with its value in this size."""
        value = text_width(self.value, size, bold=True)
        if self.unit:
            value += UNIT_GAP + text_width(self.unit, TYPE)
        return max(value, text_width(self.label, TYPE), text_width(self.note, TYPE))


def _tiles(run: Run, figures: Figures, box: Box, colours: Colours) -> str:
    """The figures side by side, as wide as what they say, all with the same margins."""
    free = box.width - GAP * (len(TILE_LABELS) - 1)
    for size, longest in ((VALUE, 99_999), (VALUE, 999), (64, 999), (56, 999), (TYPE, 999)):
        made = _figures(run, figures, longest)
        margin = (free - sum(tile.width(size) for tile in made)) / len(made) / 2
        if margin >= TILE_MARGIN:
            break
    drawn, x = "", box.x
    for tile in made:
        width = tile.width(size) + 2 * margin
        drawn += _tile(tile, Box(x, box.y, width, box.height), size, margin, colours)
        x += width + GAP
    return drawn


def _figures(run: Run, figures: Figures, longest: int) -> list[_Tile]:
    """The tiles in short; a count above `longest` is rounded to thousands."""
    none = "not yet" if run.status == "running" else "no slots"

    def of(waste: Waste) -> str:
        counts = (_count(waste.wasted, longest), _count(waste.slots, longest))
        return " of ".join(counts) if waste.slots else none

    notes = (
        f"decode {words.rate(figures.decode_tokens_per_second)}",
        "mean",
        "mean",
        of(figures.padding),
        of(figures.idle),
        "last step",
    )
    return [
        _Tile(label, tile["value"], tile["unit"], note, tile["bar"])
        for label, tile, note in zip(TILE_LABELS, tiles(run, figures), notes, strict=True)
    ]


def _count(count: int, longest: int) -> str:
    """ "9,999"; above `longest` "10.0k", "1.5M"."""
    if count <= longest:
        return f"{count:,}"
    return f"{count / 1e6:.1f}M" if count >= 999_950 else f"{count / 1e3:.1f}k"


def _tile(tile: _Tile, box: Box, size: float, margin: float, colours: Colours) -> str:
    x, value_line = box.x + margin, box.y + 122
    unit_at = x + text_width(tile.value, size, bold=True) + UNIT_GAP
    return "".join(
        [
            _panel(box, colours),
            text(x, box.y + 54, tile.label, size=TYPE, colour=colours["muted"]),
            text(x, value_line, tile.value, size=size, colour=colours["text"], weight=700),
            text(unit_at, value_line, tile.unit, size=TYPE, colour=colours["muted"]),
            text(x, box.y + 178, tile.note, size=TYPE, colour=colours["muted"]),
            _bar(tile.bar, Box(x, box.bottom - 22, box.width - 2 * margin, 10), colours),
        ]
    )


def _bar(parts: list[tuple[State, float]], box: Box, colours: Colours) -> str:
    if not parts:
        return ""
    drawn, x = rect(box, fill=colours["planned"], radius=5), box.x
    for state, share in parts:
        width = share * box.width
        if width > 4:
            part = Box(x, box.y, width - 3 * (len(parts) > 1), box.height)
            drawn += rect(part, fill=colours[state], radius=5)
        x += width
    return drawn


def _picture(run: Run, box: Box, colours: Colours) -> str:
    inside = box.inset(24, 16)
    left = gutter(run, TYPE, labels=[MEMORY_LABEL])
    shared = {"size": TYPE, "left": left}
    above = inside._replace(height=inside.height - STRIP - 6)
    strip = inside._replace(y=inside.bottom - STRIP, height=STRIP)
    return "".join(
        [
            _panel(box, colours),
            slots(run, above, colours, **shared),
            memory(run, strip, colours, rows=False, label=MEMORY_LABEL, **shared),
        ]
    )


class _Arrangement(NamedTuple):
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
        return self.lines * LINE + (CARD_MARGIN if self.lines > 1 else 0)

    @property
    def height(self) -> float:
        inside = self.rows * self.card_height + (self.rows - 1) * self.between
        return inside if self.lines > 1 else inside + CARD_MARGIN


def _arrangement(requests: int) -> _Arrangement:
    if requests <= 2:
        return _Arrangement(max(1, requests), 1, 3)
    if requests <= 4:
        return _Arrangement(2, 2, 2)
    if requests <= 8:
        return _Arrangement(2, (requests + 1) // 2, 1)
    return _Arrangement(2, 2, 1)


def _cards(run: Run, figures: Figures, box: Box, colours: Colours) -> str:
    """A card per request; where there are too many, the last one says how many are left."""
    how, requests = _arrangement(len(run.requests)), len(run.requests)
    places = how.columns * how.rows
    shown = requests if requests <= places else places - 1
    width = (box.width + GAP) / how.columns - GAP
    drawn = "" if how.lines > 1 else _panel(box, colours)
    for place in range(min(places, requests)):
        row, column = divmod(place, how.columns)
        card = Box(
            box.x + column * (width + GAP),
            box.y + row * (how.card_height + how.between),
            width,
            how.card_height,
        )
        if how.lines > 1:
            drawn += _panel(card, colours)
        if place < shown:
            drawn += _card(run, figures, place, card, how.lines, colours)
        else:
            x = card.x + CARD_SIDE
            more = f"+ {requests - shown:,} more"
            drawn += text(x, card.y + 50, more, size=TYPE, colour=colours["muted"])
    return drawn


def _card(run: Run, figures: Figures, request: int, card: Box, lines: int, colours: Colours) -> str:
    """The number of a request and its answer; above it, where a card has the lines, the prompt."""
    indent = CARD_SIDE + text_width("88", TYPE, bold=True) + 12
    line = Box(card.x + indent, card.y + 50, card.width - indent - CARD_SIDE, LINE)
    name = str(request + 1)
    number = text(card.x + CARD_SIDE, line.y, name, size=TYPE, colour=colours["text"], weight=700)
    said = []
    if lines > 1:
        said.append((fit(_prompt(run.requests[request]), TYPE, line.width), "muted"))
    answer, colour = run.texts[request], "text"
    if not answer.strip():
        answer, colour = ROW_WORDS[figures.rows[request].end or "waiting"], "muted"
    room = lines - len(said)
    told = wrap(answer, TYPE, line.width, room) if room > 1 else [fit(answer, TYPE, line.width)]
    said += [(content, colour) for content in told]
    return number + "".join(
        _line(content, line._replace(y=line.y + place * LINE), colours[colour])
        for place, (content, colour) in enumerate(said)
    )


def _prompt(request: Request) -> str:
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def _line(content: str, box: Box, colour: str) -> str:
    rtl = is_rtl(content)
    x = box.right if rtl else box.x
    anchor = "right" if rtl else "left"
    return text(x, box.y, content, size=TYPE, colour=colour, anchor=anchor, rtl=rtl)


def _caption(run: Run, recorded: bool, box: Box, colours: Colours) -> str:
    """What ran; the names of model and device give way where the line is too long."""
    date = datetime.fromisoformat(run.started_at)
    facts = [f"batch of {run.settings.batch_size}", f"{date.day} {date:%b %Y}"]
    facts += ["recorded"] * recorded
    free = box.width - text_width(" · ".join(["", run.model.dtype, "", *facts]), TYPE)
    device = fit(run.model.device, TYPE, 0.45 * free)
    model = run.model.name.rpartition("/")[2]
    model = fit(model, TYPE, free - text_width(device, TYPE))
    line = " · ".join([model, run.model.dtype, device, *facts])
    baseline = box.y + 42
    drawn = text(box.x, baseline, line, size=TYPE, colour=colours["muted"])
    left = box.width - text_width(line, TYPE)
    if left > text_width(NAME, TYPE, bold=True) + 2 * TYPE:
        drawn += text(
            box.right,
            baseline,
            NAME,
            size=TYPE,
            colour=colours["muted"],
            weight=700,
            anchor="right",
        )
    return drawn

"""Figures as people read them: numbers with units, percents with fractions, the closing line."""

from __future__ import annotations

from engine.metrics import Figures, Row, Waste, padding_waste
from engine.run import Run


def percent(waste: Waste, digits: int = 0) -> str:
    """ "46 %"; "n/a" where there are no slots."""
    # Multiplied before it is divided: 23 of 80 is 28.75 and not a hair below.
    return f"{100 * waste.wasted / waste.slots:.{digits}f} %" if waste.slots else "n/a"


def fraction(waste: Waste, what: str) -> str:
    """ "55 of 120 prompt slots"."""
    return f"{waste.wasted:,} of {waste.slots:,} {what}"


def seconds(value: float | None) -> str:
    """ "118 ms" below a second, "2.1 s" from there; "n/a" for None."""
    if value is None:
        return "n/a"
    return f"{1000 * value:.0f} ms" if value < 0.9995 else f"{value:.1f} s"


def rate(value: float | None) -> str:
    """Tokens per second, without the unit."""
    if value is None:
        return "n/a"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def byte_scale(count: int) -> tuple[float, str]:
    """The decimal unit to show so many bytes in, as (bytes per unit, name)."""
    scales = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((scale for scale in scales if count >= scale[0]), (1, "B"))


def size(count: int) -> str:
    """ "4.1 MB"."""
    scale, unit = byte_scale(count)
    return f"{count / scale:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def so_far(run: Run, figures: Figures) -> str:
    """One sentence on what the batch under way shows at this moment."""
    if not run.steps:
        return ""
    step = run.steps[-1]
    seated = [row for row in figures.rows if row.batch.index == step.batch]
    ended = [row for row in seated if row.end is not None]
    if ended and len(ended) < len(seated):
        slots = "its slot is" if len(ended) == 1 else "their slots are"
        return f"{_who_ended(ended, len(seated))}, but {slots} computed until the last row ends."
    return _prefill_sentence(run, step.batch) if step.forward == 1 else ""


def summary(run: Run, figures: Figures) -> str:
    """One sentence on what happened, from the record alone."""
    tokens = plural(figures.generated_tokens, "token")
    took = seconds(figures.wall_seconds)
    told = f"{plural(len(figures.rows), 'request')}, {tokens} in {took}."
    if run.status == "stopped":
        told = f"Stopped: {told}"
    if run.status == "error":
        told = f"{run.error} Until then: {told}"
    return " ".join([told, _wastes(figures)]).strip()


def _who_ended(ended: list[Row], seated: int) -> str:
    if len(ended) > 3:
        return f"{len(ended)} of {seated} requests have ended"
    first, *others = sorted(ended, key=lambda row: row.generated)
    told = f"Request {first.request + 1} ended at token {first.generated}"
    for row in others:
        told += f"{' and' if row is others[-1] else ','} {row.request + 1} at {row.generated}"
    return told


def _prefill_sentence(run: Run, batch: int) -> str:
    lengths = run.batches[batch].prompt_lengths
    waste = padding_waste([lengths])
    return (
        f"One forward has read all {plural(len(lengths), 'prompt')}: "
        f"{fraction(waste, 'prompt slots')} were padding ({percent(waste)})."
    )


def _wastes(figures: Figures) -> str:
    if not figures.padding.slots:
        return ""
    padding = (
        f"{fraction(figures.padding, 'prompt slots')} were padding ({percent(figures.padding)})"
    )
    if not figures.idle.slots:
        return f"{padding}; nothing was decoded after the prefill."
    return f"{padding}, {fraction(figures.idle, 'decode slots')} idle ({percent(figures.idle)})."

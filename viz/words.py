"""Figures as people read them: numbers with units, percents with fractions, the closing line."""

from __future__ import annotations

from engine.metrics import Figures, Waste, measure, padding_waste, rows
from engine.run import Run


def percent(waste: Waste) -> str:
    """ "46 %"; "n/a" where there are no slots."""
    return f"{100 * waste.wasted / waste.slots:.0f} %" if waste.slots else "n/a"


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


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def so_far(run: Run) -> str:
    """One sentence on what the batch under way shows at this moment."""
    if not run.steps:
        return ""
    step = run.steps[-1]
    seated = [row for row in rows(run) if row.batch.index == step.batch]
    ended = [row for row in seated if row.end is not None]
    running = len(seated) - len(ended)
    if not ended or not running:
        return "" if step.forward > 1 else _prefill_sentence(run, step.batch)
    names = [f"request {row.request + 1} at token {row.generated}" for row in ended]
    if len(names) > 3:
        told = f"{len(names)} of {len(seated)} requests have ended"
    else:
        told = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        told = told.replace(" at", " ended at", 1).capitalize()
    slots = "its slot is" if len(names) == 1 else "their slots are"
    return f"{told}, but {slots} computed until the last row ends."


def _prefill_sentence(run: Run, batch: int) -> str:
    lengths = run.batches[batch].prompt_lengths
    waste = padding_waste([lengths])
    return (
        f"One forward has read all {plural(len(lengths), 'prompt')}: "
        f"{fraction(waste, 'prompt slots')} were padding ({percent(waste)})."
    )


def summary(run: Run) -> str:
    """One sentence on what happened, from the record alone."""
    figures = measure(run)
    tokens = plural(figures.generated_tokens, "token")
    took = seconds(figures.wall_seconds)
    told = f"{plural(figures.requests, 'request')}, {tokens} in {took}."
    if run.status == "stopped":
        told = f"Stopped: {told}"
    if run.status == "error":
        told = f"{run.error} Until then: {told}"
    return " ".join([told, _wastes(figures)]).strip()


def _wastes(figures: Figures) -> str:
    if not figures.padding.slots:
        return ""
    padding = (
        f"{fraction(figures.padding, 'prompt slots')} were padding ({percent(figures.padding)})"
    )
    if not figures.idle.slots:
        return f"{padding}; nothing was decoded after the prefill."
    return f"{padding}, {fraction(figures.idle, 'decode slots')} idle ({percent(figures.idle)})."

"""How many replicas hold how many requests, as a table on a terminal, in 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from engine.capacity import Plan
from engine.costs import CostModel
from engine.run import ModelInfo
from engine.schedules import Job
from viz.words import caption, plural, seconds

WIDTH = 100
COLUMNS = (
    "requests/h",
    "replicas",
    "batch size",
    "window",
    "rows",
    "busy",
    "first token",
    "p95",
    "latency p95",
)


def capacity_report(
    model: ModelInfo, jobs: Sequence[Job], costs: CostModel, plans: Sequence[Plan]
) -> str:
    """What was measured, the table, and what it rests on."""
    cells = [COLUMNS, *map(_cells, plans)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.rjust, line, widths)).rstrip() for line in cells]
    return "\n".join(
        [
            caption(model),
            f"computed: {plural(len(jobs), 'request')} of a saved file, arriving at random; the "
            f"first token of 95 of 100 within {seconds(plans[0].ttft_seconds)}",
            "",
            lines[0],
            "─" * len(lines[0]),
            *lines[1:],
            "",
            *_notes(costs, plans),
        ]
    )


def _cells(plan: Plan) -> tuple[str, ...]:
    if plan.best is None:
        return (f"{plan.per_hour:,.0f}", "none", *[""] * (len(COLUMNS) - 2))
    best, times = plan.best, plan.best.times
    return (
        f"{plan.per_hour:,.0f}",
        f"{best.replicas:,}",
        str(best.batch_size),
        f"{1000 * best.window:.0f} ms",
        f"{best.rows:.1f}",
        f"{best.busy:.0%}",
        seconds(times.first_token_median),
        seconds(times.first_token_p95),
        seconds(times.latency_p95),
    )


def _notes(costs: CostModel, plans: Sequence[Plan]) -> list[str]:
    notes = [
        "rows: of a batch, on average. busy: the share of the time in which a replica runs one. "
        "Times are from a request's arrival on; first token is the median. Each replica is assumed "
        "to have for itself the hardware that was measured; network and tokenizer take no time."
    ]
    if any(plan.best is None for plan in plans):
        notes.append(
            f"none: a batch of its own has its first token after {seconds(plans[0].alone)}, and "
            "with none of these sizes and windows 95 of 100 are in time."
        )
    notes += [costs.formula, costs.words, *costs.assumed]
    return [line for note in notes for line in wrap(note, WIDTH)]

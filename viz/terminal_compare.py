"""A comparison on a terminal: a column per engine, in 100 columns."""

from __future__ import annotations

from collections.abc import Callable

from engine.comparison import Comparison, Row, same_ids, table
from engine.lanes import LaneFigures
from engine.metrics import Spread
from viz.words import caption, percent, plural, rate, seconds, size


def comparison_report(comparison: Comparison) -> str:
    """What ran, the table, and what its rows mean."""
    rows = table(comparison)
    lines = [*_what_ran(comparison), "", *_table(rows), "", *_notes(comparison, rows)]
    return "\n".join(lines)


def _what_ran(comparison: Comparison) -> list[str]:
    if not comparison.runs:
        return ["nothing was run"]
    run = comparison.runs[0]
    sizes = {entry.settings.batch_size for entry in comparison.runs}
    return [
        caption(run.model),
        f"{plural(len(run.requests), 'prompt')}, batch size {max(sizes)}; a warm-up discarded "
        "before each run",
    ]


def _table(rows: tuple[Row, ...]) -> list[str]:
    """Figures downwards, engines across."""
    cells = [["", *(row.engine for row in rows)]]
    cells += [
        [name, *("n/a" if row.figures is None else told(row.figures) for row in rows)]
        for name, told in _FIGURES.items()
    ]
    cells.append(["speed-up", *(_times(row.speed_up) for row in rows)])
    cells.append(["ids", *(_same(row) for row in rows)])
    first, *others = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join([line[0].ljust(first), *map(str.rjust, line[1:], others)]) for line in cells]
    return [lines[0], "─" * len(lines[0]), *lines[1:]]


_FIGURES: dict[str, Callable[[LaneFigures], str]] = {
    "wall time": lambda figures: seconds(figures.wall_seconds),
    "output tok/s": lambda figures: rate(figures.output_tokens_per_second),
    "new tokens": lambda figures: f"{figures.generated_tokens:,}",
    "forwards": lambda figures: f"{figures.forwards:,}",
    "first token": lambda figures: _spread(figures.first_token),
    "latency": lambda figures: _spread(figures.latency),
    "padding": lambda figures: percent(figures.padding),
    "idle": lambda figures: percent(figures.idle),
    "peak KV cache": lambda figures: (
        "n/a" if figures.peak_kv_bytes is None else size(figures.peak_kv_bytes)
    ),
}


def _notes(comparison: Comparison, rows: tuple[Row, ...]) -> list[str]:
    notes = [
        "first token, latency: of each request, from the start of the run, waiting included;",
        "median / p90 / longest",
    ]
    if (same := same_ids(comparison)) is not None:
        notes.append("the ids are the same in all" if same else "the ids are not the same in all")
    notes += [f"{row.engine}: {row.note}" for row in rows if row.note is not None]
    if comparison.status != "done":
        notes.append(comparison.error or comparison.status)
    return notes


def _spread(spread: Spread) -> str:
    known = (spread.median, spread.p90, spread.largest)
    return " / ".join(map(seconds, known)) if spread.count else "n/a"


def _times(ratio: float | None) -> str:
    return "n/a" if ratio is None else f"{ratio:.2f} ×"


def _same(row: Row) -> str:
    if row.same_ids is None:
        return "n/a"
    return "the same" if row.same_ids else "other"

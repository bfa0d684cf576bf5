"""How the story tells the numbers of its runs: formulas, tables, sentences, and where they are
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from engine.metrics import Figures, Waste, columns, measure, rows
from engine.run import Run
from viz import words
from viz.explain import TILES
from viz.story.parts import Table


class Published(NamedTuple):
    """Figures that others published; the page says so."""

    rows: int
    tokens_per_second: float


NANO_LLM_SERVE = (
    Published(1, 33.1),
    Published(2, 64.3),
    Published(4, 131.5),
    Published(8, 257.3),
)
"""nanoLLMServe's benchmark: Qwen3-8B, bf16, one A100."""


def padding_formula(run: Run) -> str:
    """The formula of prompt padding with the numbers of a run."""
    batches = [batch.prompt_lengths for batch in run.batches]
    return _waste_formula(TILES["padding"].formula, batches, measure(run).padding)


def idle_formula(run: Run) -> str:
    """The formula of idle slots with the numbers of a run."""
    table = rows(run)
    batches = [[table[index].generated for index in batch.requests] for batch in run.batches]
    return _waste_formula(TILES["idle"].formula, batches, measure(run).idle)


def _waste_formula(formula: str, batches: Sequence[Sequence[int]], waste: Waste) -> str:
    missing = [max(lengths) - length for lengths in batches for length in lengths]
    areas = [f"{len(lengths)} · {max(lengths)}" for lengths in batches]
    return (
        f"{formula} = ({' + '.join(map(str, missing))}) / ({' + '.join(areas)}) = "
        f"{waste.wasted:,} / {waste.slots:,} = {words.percent(waste)}"
    )


def source(*runs: Run) -> str:
    """What ran, how and when, on one line."""
    if runs[0].settings.engine == "serial":
        how = "one request after another"
    elif len(runs) == 1:
        how = f"static batch, {words.plural(runs[0].settings.batch_size, 'slot')}"
    else:
        how = f"static batches of {words.listing(len(run.requests) for run in runs)}"
    days = dict.fromkeys(words.date(run.started_at) for run in runs)
    return " · ".join([words.caption(runs[0].model), how, f"recorded {words.listing(days)}"])


def prompts_table(run: Run) -> Table:
    return Table(
        "The prompts",
        ("", "prompt", "prompt tokens", "new tokens"),
        tuple(
            (
                str(row.request + 1),
                words.prompt_text(run.requests[row.request].prompt),
                str(row.prompt_tokens),
                str(row.generated),
            )
            for row in rows(run)
        ),
    )


def comparison(serial: Run, static: Run) -> Table:
    """One run beside another of the same requests."""
    before, after = measure(serial), measure(static)
    return Table(
        "Serial and batch in numbers",
        ("", "serial", "static batch"),
        tuple(
            (name, told(serial, before), told(static, after)) for name, told in _COMPARED.items()
        ),
    )


_COMPARED: dict[str, Callable[[Run, Figures], str]] = {
    "Forwards": lambda run, _: f"{len(run.steps)}",
    "New tokens": lambda _, figures: f"{figures.generated_tokens:,}",
    "Wall time": lambda _, figures: took(figures),
    "Output": lambda _, figures: f"{words.rate(figures.output_tokens_per_second)} tok/s",
    "Time per token (TPOT), mean": lambda _, figures: words.seconds(figures.mean_tpot),
}


def limits_table(sizes: Sequence[Run]) -> Table:
    measured = [(len(run.requests), measure(run)) for run in sizes]
    one = measured[0][1].output_tokens_per_second
    return Table(
        "Measured, in numbers",
        (
            "rows",
            "output, tok/s",
            f"against {words.plural(measured[0][0], 'row')}",
            "TPOT",
            "KV cache",
        ),
        tuple(
            (
                str(count),
                words.rate(figures.output_tokens_per_second),
                _times(figures.output_tokens_per_second, one),
                words.seconds(figures.mean_tpot),
                words.size(figures.peak_kv_bytes),
            )
            for count, figures in measured
        ),
    )


def published_table() -> Table:
    one = NANO_LLM_SERVE[0]
    return Table(
        "Published by nanoLLMServe, not measured here: Qwen3-8B, bf16, one A100",
        ("rows", "output, tok/s", f"against {words.plural(one.rows, 'row')}"),
        tuple(
            (
                str(point.rows),
                words.rate(point.tokens_per_second),
                _times(point.tokens_per_second, one.tokens_per_second),
            )
            for point in NANO_LLM_SERVE
        ),
    )


def _times(value: float, one: float) -> str:
    return f"{value / one:.1f} ×"


def scaling(sizes: Sequence[Run]) -> str:
    rows_more = len(sizes[-1].requests) / len(sizes[0].requests)
    first, last = (measure(sizes[at]).output_tokens_per_second for at in (0, -1))
    return (
        f"Output went from {words.rate(first)} to {words.rate(last)} tok/s: "
        f"{last / first:.1f} times as much for {rows_more:.3g} times the rows."
    )


def machine(run: Run) -> str:
    """What kind of machine the curve is from."""
    if run.model.device != "CPU":
        return f"This is {run.model.device}."
    return (
        f"This is a CPU with {words.plural(run.model.threads, 'thread')}, and its line bends early."
    )


def step_times(run: Run) -> str:
    """How long a decode step took while most rows worked, and when the fewest did."""
    by_rows: dict[int, list[float]] = {}
    for step in run.steps:
        if step.phase == "decode":
            by_rows.setdefault(step.active_rows, []).append(step.seconds)
    if len(by_rows) < 2:
        return ""
    most, least = max(by_rows), min(by_rows)
    return (
        f"In that run, a step took {words.seconds(median(by_rows[most]))} while "
        f"{words.plural(most, 'row')} worked, and {words.seconds(median(by_rows[least]))} with "
        f"{least} left (medians)."
    )


def growth(run: Run) -> int:
    """Bytes that the last forward of the first batch added to the cache."""
    steps = columns(run, 0)
    return steps[-1].kv_bytes.total - steps[-2].kv_bytes.total if len(steps) > 1 else 0


def generated(run: Run) -> list[int]:
    return [row.generated for row in rows(run)]


def took(figures: Figures) -> str:
    return words.seconds(figures.wall_seconds)


def weights(run: Run) -> str:
    """ "135 million weights"."""
    count = run.model.parameters
    for scale, name in ((1e9, "billion"), (1e6, "million")):
        if count >= scale:
            return f"{count / scale:.3g} {name} weights"
    return words.plural(count, "weight")

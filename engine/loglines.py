"""What the log says of a record that is over, in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence

from engine.comparison import Comparison, table
from engine.metrics import measure
from engine.run import Run
from engine.sweep import Sweep


def figures_line(run: Run) -> str:
    """A run for the log: what ran, how much of it, and how long it took."""
    figures = measure(run)
    speed = figures.output_tokens_per_second
    parts = [
        run.model.name,
        f"prompts {len(run.requests)}",
        f"batch size {run.settings.batch_size}",
        f"prompt tokens {figures.prompt_tokens}",
        f"new tokens {figures.generated_tokens}",
        f"waited {run.queued_seconds:.1f} s",
        f"ran {figures.wall_seconds:.1f} s",
        "n/a tok/s" if speed is None else f"{speed:.1f} tok/s",
    ]
    return ", ".join(parts) + (f"; {run.error}" if run.error else "")


def prompts_line(prompts: Sequence[str]) -> str:
    """What prompts say, behind a run for the log, if it may have them."""
    return f"; {json.dumps(prompts)}"


def comparison_line(comparison: Comparison) -> str:
    """A comparison for the log: how long each engine took, or why it did not run."""
    parts = [comparison.runs[0].model.name] if comparison.runs else []
    for row in table(comparison):
        if row.figures is not None:
            parts.append(f"{row.engine} {row.figures.wall_seconds:.1f} s")
        if row.note is not None:
            parts.append(f"{row.engine}: {row.note}")
    return ", ".join(parts) + (f"; {comparison.error}" if comparison.error else "")


def sweep_line(sweep: Sweep) -> str:
    """A sweep for the log: what was measured, and what came out."""
    rates = [(size.batch_size, size.engine.tokens_per_second) for size in sweep.sizes]
    figures = [f"batch size {size}: {rate.median:.1f} tok/s" for size, rate in rates if rate]
    return ", ".join([sweep.model.name, *figures]) + (f"; {sweep.error}" if sweep.error else "")

"""What each figure and each state means: a sentence and a formula, for people who ask."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from engine.metrics import Figures, Spread, Waste
from engine.run import Run
from viz import words


class Explanation(NamedTuple):
    """`formula` is "" where a sentence says it all."""

    text: str
    formula: str


class Tile(NamedTuple):
    """A figure above the picture: its name, its name on a slide, and what it means. `rows` and
    `columns` are the heads of a table of facts, whose cells `facts` gives."""

    label: str
    short: str
    text: str
    formula: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


_P90 = "p90: nine of ten are at most this (nearest rank)."
TILES = {
    "output": Tile(
        "Output",
        "Output",
        "All new tokens over the wall time of the run. Prompt tokens, pads and idle slots count "
        "for nothing. Decode tok/s leaves the prefill out, on both sides. Between forwards, each "
        "step is recorded and drawn; in line, a run waits for those ahead of it.",
        "Σ nᵢ / wall time",
        rows=(
            "prefill",
            "decode",
            "between forwards",
            "= wall time so far",
            "= wall time",
            "device time",
            "in line, before it",
        ),
        columns=("seconds", "share"),
    ),
    "ttft": Tile(
        "First token (TTFT)",
        "First token",
        "Time to first token: from the start of the row's batch until its first token was there. "
        "One prefill forward serves all rows, so the rows of a batch share it. "
        f"{_P90}",
        "mean of (t_first − t_batch)",
        rows=("in line", "waiting for the batch", "TTFT", "= until the first token"),
        columns=("mean", "median", "p90", "longest"),
    ),
    "tpot": Tile(
        "Per token (TPOT)",
        "Per token",
        "Time per output token after the first: each row up to its own last token. Rows with one "
        f"token have none. {_P90}",
        "mean of (t_last − t_first) / (nᵢ − 1)",
        rows=("decode step", "TPOT"),
        columns=("mean", "median", "p90", "p99", "longest", "counted"),
    ),
    "padding": Tile(
        "Prompt padding",
        "Padding",
        "The prefill is a rectangle: B rows as wide as the longest prompt, S. What the short "
        "prompts do not fill is padding: computed, and thrown away.",
        "Σ (S − Lᵢ) / (B · S)",
    ),
    "idle": Tile(
        "Idle while decoding",
        "Idle",
        "A row that has ended keeps its slot until the longest row of the batch, T, has ended. "
        "Idle slots are not lost time by themselves: they are room that another request could "
        "have used.",
        "Σ (T − nᵢ) / (B · T)",
    ),
    "kv": Tile(
        "KV cache",
        "KV cache",
        "Bytes of keys and values, counted on the cache's tensors after the step: tokens of rows "
        "that still run (live), their pads (padding), and all that ended rows still hold (ended).",
        "live + padding + ended",
        rows=(
            "estimated before the run",
            "measured peak",
            "per token of a row",
            "number format of the cache",
            "number format of the weights",
        ),
    ),
}
STATES = {
    "active": Explanation(
        "A prompt token that was read, or a new token that a request asked for.", ""
    ),
    "padded": Explanation(
        "A pad in front of a short prompt (or behind it), so that all rows are equally long.",
        "S − Lᵢ per row",
    ),
    "idle": Explanation(
        "The row has ended, and its slot is still computed: a static batch gives it to no one "
        "else before the last row ends.",
        "T − nᵢ per row",
    ),
}


def worked_tiles(figures: Figures) -> dict[str, str]:
    """The formulas of TILES with this run's numbers, a line each."""
    output = _rate(figures.generated_tokens, figures.wall_seconds)
    if figures.decoded_tokens:
        output += f"\ndecode: {_rate(figures.decoded_tokens, figures.decode_seconds)}"
    cache = words.cache(figures.kv_bytes)
    return {
        "output": output,
        "ttft": _mean(figures.mean_ttft, figures.timed_rows),
        "tpot": _mean(figures.mean_tpot, figures.paced_rows),
        "padding": _waste(figures.padding),
        "idle": _waste(figures.idle),
        "kv": " + ".join(f"{part} {cache.unit}" for part in cache.parts.values())
        + f" = {cache.total} {cache.unit}",
    }


def facts(run: Run, figures: Figures) -> dict[str, str]:
    """The cells of the tables of TILES: a line per row, with tabs between its cells; the line of
    what is not known is empty, and so is a cell. "" is no table."""
    return {
        "output": _table(_time_cells(figures)),
        "ttft": _first_token_facts(
            figures.queued_seconds if words.in_line(figures) else 0.0,
            figures.mean_waited,
            figures.mean_ttft,
            figures.waited,
            figures.ttft,
        ),
        "tpot": _table(_pace_cells(figures)),
        "kv": _table(_memory_cells(run, figures)),
    }


def _table(cells: Iterable[Iterable[str]]) -> str:
    lines = ["\t".join(row) for row in cells]
    return "\n".join(lines) if any(lines) else ""


def _time_cells(figures: Figures) -> list[list[str]]:
    parts = [[part.seconds, part.percent] for part in words.wall_time(figures)]
    if not parts:
        return []
    wall, device = figures.wall_seconds, figures.device_seconds
    queued = words.in_line(figures)
    whole = [words.exact_seconds(wall), "100 %"]
    return [
        *parts,
        *([whole, []] if figures.status == "running" else [[], whole]),
        [] if device is None else [words.exact_seconds(device), f"{100 * device / wall:.1f} %"],
        [queued] if queued else [],
    ]


@lru_cache(maxsize=1)  # the moments of a batch have it in common
def _first_token_facts(
    queued: float,
    mean_waited: float | None,
    mean_ttft: float | None,
    waited: Spread,
    ttft: Spread,
) -> str:
    if not ttft.count:
        return ""
    *means, total = words.sum_of_seconds([queued, mean_waited, mean_ttft])
    return _table(
        [
            [means[0]] if queued else [],
            [means[1], *_median_p90_longest(waited)],
            [means[2], *_median_p90_longest(ttft)],
            [total],
        ]
    )


def _median_p90_longest(spread: Spread) -> list[str]:
    return [words.exact_seconds(value) for value in (spread.median, spread.p90, spread.largest)]


def _pace_cells(figures: Figures) -> list[list[str]]:
    steps, rows = figures.decode_steps, figures.tpot
    if not steps.count:
        return []
    # One column for both: p99, or what it is where values are few.
    told = words.has_p99(steps) and words.has_p99(rows)
    mean_step = figures.decode_seconds / steps.count
    return [
        _spread(mean_step, steps, words.plural(steps.count, "step"), p99=told),
        _spread(figures.mean_tpot, rows, words.plural(rows.count, "row"), p99=told),
    ]


def _spread(mean: float | None, spread: Spread, counted: str, *, p99: bool) -> list[str]:
    median, p90, last, longest = map(words.seconds, spread[1:])
    tail = [last, ""] if p99 else ["", longest]
    return [words.seconds(mean), median, p90, *tail, counted]


def _memory_cells(run: Run, figures: Figures) -> list[list[str]]:
    model, estimate = run.model, run.kv_estimate
    per_token = model.kv_bytes_per_token
    if estimate is None and not per_token and not model.kv_dtype:
        return []
    return [
        [f"at most {words.size(estimate)}"] if estimate is not None else [],
        [words.size(figures.peak_kv_bytes)] if figures.newest else [],
        [words.plural(per_token, "byte")] if per_token else [],
        [model.kv_dtype] if model.kv_dtype else [],
        [model.dtype],
    ]


def worked_states(figures: Figures) -> dict[str, str]:
    """How many slots of each state this run has."""
    prompt = words.plural(figures.prompt_tokens, "prompt token")
    return {
        "active": f"{prompt} + {words.plural(figures.generated_tokens, 'new token')}",
        "padded": words.fraction(figures.padding, "prompt slots"),
        "idle": words.fraction(figures.idle, "decode slots"),
    }


def _rate(tokens: int, seconds: float) -> str:
    if not seconds:
        return "n/a"
    return (
        f"{words.plural(tokens, 'token')} / {seconds:.2f} s = {words.rate(tokens / seconds)} tok/s"
    )


def _mean(seconds: float | None, rows: int) -> str:
    return f"{words.seconds(seconds)}, {words.plural(rows, 'row')}" if rows else "n/a"


def _waste(waste: Waste) -> str:
    return (
        f"{waste.wasted:,} / {waste.slots:,} = {words.percent(waste, 1)}" if waste.slots else "n/a"
    )

"""What each figure and each state means: a sentence and a formula, for people who ask."""

from __future__ import annotations

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


TILES = {
    "output": Tile(
        "Output",
        "Output",
        "All new tokens over the wall time of the run. Prompt tokens, pads and idle slots count "
        "for nothing. Decode tok/s leaves the prefill out, on both sides.",
        "Σ nᵢ / wall time",
        rows=(
            "prefill",
            "decode",
            "between forwards",
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
        "Percentiles: nearest rank.",
        "mean of (t_first − t_batch)",
        rows=("in line", "waiting for the batch", "TTFT", "= until the first token"),
        columns=("mean", "median", "p90", "longest"),
    ),
    "tpot": Tile(
        "Per token (TPOT)",
        "Per token",
        "Time per output token after the first: each row up to its own last token. Rows with one "
        "token have none. Percentiles: nearest rank.",
        "mean of (t_last − t_first) / (nᵢ − 1)",
        rows=("decode step", "TPOT"),
        columns=("median", "p90", "p99", "of"),
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
            "said before the run",
            "a token in the cache",
            "cache",
            "weights",
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
    """The formulas of TILES with this run's numbers."""
    kv = figures.kv_bytes
    output = _rate(figures.generated_tokens, figures.wall_seconds)
    if figures.decoded_tokens:
        output += f"; decode {_rate(figures.decoded_tokens, figures.decode_seconds)}"
    return {
        "output": output,
        "ttft": _mean(figures.mean_ttft, figures.timed_rows),
        "tpot": _mean(figures.mean_tpot, figures.paced_rows),
        "padding": _waste(figures.padding),
        "idle": _waste(figures.idle),
        "kv": f"{words.size(kv.live)} + {words.size(kv.padding)} + {words.size(kv.dead)} = "
        f"{words.size(kv.total)}; measured peak {words.size(figures.peak_kv_bytes)}",
    }


def facts(run: Run, figures: Figures) -> dict[str, str]:
    """The cells of the tables of TILES: a line per row, with tabs between its cells; the line of
    what is not known is empty. "" is no table."""
    cells = {
        "output": _time_cells(figures),
        "ttft": _first_token_cells(figures),
        "tpot": _pace_cells(run, figures),
        "kv": _memory_cells(run),
    }
    lines = {tile: ["\t".join(row) for row in rows] for tile, rows in cells.items()}
    return {tile: "\n".join(rows) if any(rows) else "" for tile, rows in lines.items()}


def _time_cells(figures: Figures) -> list[list[str]]:
    parts = [[part.seconds, part.percent] for part in words.wall_time(figures)]
    if not parts:
        return []
    wall, device = figures.wall_seconds, figures.device_seconds
    queued = words.in_line(figures)
    return [
        *parts,
        [words.exact_seconds(wall), "100 %"],
        [] if device is None else [words.exact_seconds(device), f"{100 * device / wall:.1f} %"],
        [queued] if queued else [],
    ]


def _first_token_cells(figures: Figures) -> list[list[str]]:
    if not figures.timed_rows:
        return []
    queued, waited, ttft = figures.queued_seconds, figures.mean_waited, figures.mean_ttft
    return [
        [words.seconds(queued)] if words.in_line(figures) else [],
        [words.seconds(waited), *_median_p90_longest(figures.waited)],
        [words.seconds(ttft), *_median_p90_longest(figures.ttft)],
        [words.seconds(queued + waited + ttft)],
    ]


def _median_p90_longest(spread: Spread) -> list[str]:
    return [words.seconds(value) for value in (spread.median, spread.p90, spread.largest)]


def _pace_cells(run: Run, figures: Figures) -> list[list[str]]:
    # The rows of one batch share its steps, and so their pace.
    rows = figures.tpot if len(run.batches) > 1 else Spread()
    return [_spread(figures.decode_steps, "step"), _spread(rows, "row")]


def _spread(spread: Spread, noun: str) -> list[str]:
    if not spread.count:
        return []
    values = (spread.median, spread.p90, spread.p99)
    return [*map(words.seconds, values), words.plural(spread.count, noun)]


def _memory_cells(run: Run) -> list[list[str]]:
    model, estimate = run.model, run.kv_estimate
    per_token = model.kv_bytes_per_token
    return [
        [f"at most {words.size(estimate)}"] if estimate is not None else [],
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

"""What each figure and each state means: a sentence and a formula, for people who ask."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics import Figures, Waste
from viz import words


class Explanation(NamedTuple):
    """`formula` is "" where a sentence says it all; `short` is what a slide calls it."""

    text: str
    formula: str
    short: str = ""


TILES = {
    "Output": Explanation(
        "All new tokens over the wall time of the run. Prompt tokens, pads and idle slots count "
        "for nothing. Decode tok/s leaves the prefill out, on both sides.",
        "Σ nᵢ / wall time",
        "Output",
    ),
    "First token (TTFT)": Explanation(
        "Time to first token: from the start of the row's batch until its first token was there. "
        "One prefill forward serves all rows, so the rows of a batch share it.",
        "mean of (t_first − t_batch)",
        "First token",
    ),
    "Per token (TPOT)": Explanation(
        "Time per output token after the first: each row up to its own last token. Rows with one "
        "token have none.",
        "mean of (t_last − t_first) / (nᵢ − 1)",
        "Per token",
    ),
    "Prompt padding": Explanation(
        "The prefill is a rectangle: B rows as wide as the longest prompt, S. What the short "
        "prompts do not fill is padding: computed, and thrown away.",
        "Σ (S − Lᵢ) / (B · S)",
        "Padding",
    ),
    "Idle while decoding": Explanation(
        "A row that has ended keeps its slot until the longest row of the batch, T, has ended. "
        "Idle slots are not lost time by themselves: they are room that another request could "
        "have used.",
        "Σ (T − nᵢ) / (B · T)",
        "Idle",
    ),
    "KV cache": Explanation(
        "Bytes of keys and values, counted on the cache's tensors after the step: tokens of rows "
        "that still run (live), their pads (padding), and all that ended rows still hold (ended).",
        "live + padding + ended",
        "KV cache",
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


def worked_tiles(figures: Figures) -> list[str]:
    """The formulas of TILES with this run's numbers, in the same order."""
    kv = figures.kv_bytes
    timed = [row for row in figures.rows if row.ttft is not None]
    paced = [row for row in figures.rows if row.tpot is not None]
    decoded = sum(row.generated - 1 for row in figures.rows if row.generated)
    return [
        _rate(figures.generated_tokens, figures.wall_seconds)
        + (f"; decode {_rate(decoded, figures.decode_seconds)}" if decoded else ""),
        _mean(figures.mean_ttft, len(timed)),
        _mean(figures.mean_tpot, len(paced)),
        _waste(figures.padding),
        _waste(figures.idle),
        f"{words.size(kv.live)} + {words.size(kv.padding)} + {words.size(kv.dead)} = "
        f"{words.size(kv.total)}; peak {words.size(figures.peak_kv_bytes)}",
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

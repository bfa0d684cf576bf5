"""What each figure and each state means: a sentence and a formula, for people who ask."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics import Figures, Waste
from viz import words


class Explanation(NamedTuple):
    """`formula` is "" where a sentence says it all."""

    text: str
    formula: str


class Tile(NamedTuple):
    """A figure above the picture: its name, its name on a slide, and what it means."""

    label: str
    short: str
    text: str
    formula: str


TILES = {
    "output": Tile(
        "Output",
        "Output",
        "All new tokens over the wall time of the run. Prompt tokens, pads and idle slots count "
        "for nothing. Decode tok/s leaves the prefill out, on both sides.",
        "Σ nᵢ / wall time",
    ),
    "ttft": Tile(
        "First token (TTFT)",
        "First token",
        "Time to first token: from the start of the row's batch until its first token was there. "
        "One prefill forward serves all rows, so the rows of a batch share it.",
        "mean of (t_first − t_batch)",
    ),
    "tpot": Tile(
        "Per token (TPOT)",
        "Per token",
        "Time per output token after the first: each row up to its own last token. Rows with one "
        "token have none.",
        "mean of (t_last − t_first) / (nᵢ − 1)",
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
        f"{words.size(kv.total)}; peak {words.size(figures.peak_kv_bytes)}",
    }


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

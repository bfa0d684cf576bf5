"""How long it takes to make the figures of a run, and to read it back: is it linear in its cells?

python -m tests.figures             rows end one after another over the second half of the run
python -m tests.figures --together  every row uses its whole budget: no cell is without a token

No model is needed: the runs are made up, with times and texts as uneven as real ones. A cell is
one row of one step. Each time is the median of `--repeats`, with the garbage collector as the app
leaves it: on, and what was imported frozen.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from engine import runfile
from engine.metrics import measure
from engine.run import Batch, KVBytes, ModelInfo, Request, Run, Settings, Step
from viz.export import export_text
from viz.slide.slide import slide_svg
from viz.slots import slot_states
from viz.stage.state import moments, stage_state, stride
from viz.table import csv_table
from viz.terminal import blocks
from viz.trace import trace

COLUMNS = (256, 512, 1024, 2048)
ROWS = (8, 16, 32, 64)
VOCABULARY = 49_152
SYLLABLES = (
    " the", " ro", "w", "ing", "ol", " naï", "ve", ".",
    "ti", "\n", "es", "ba", "ch", " e", "nd", " a",
)  # fmt: skip
KV_BYTES_PER_TOKEN = 46_080

Made = dict[str, Callable[[Run], Any]]

FIGURES: Made = {
    "measure": measure,
    "stage": lambda run: stage_state(run, key="figures"),
    "slide": slide_svg,
    "terminal": lambda run: blocks(slot_states(run)),
}
"""Everything that is drawn or told of a run that is over."""

PARTS: Made = {
    "moments": lambda run: list(moments(run, every=stride(run))),
    "dumps": runfile.dumps,
}
"""What the stage's value is for the most part."""

FILES: Made = {
    "HTML": lambda run: export_text(run, "html"),
    "CSV": csv_table,
    "trace": trace,
}


class Size(NamedTuple):
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns:,}"


def piece_of(token: int) -> str:
    """The text of a token: as in a real vocabulary, common ones are short, and few are emoji."""
    if token % 500 == 499:
        return " 🤗"
    return "".join(SYLLABLES[int(digit, 16)] for digit in reversed(f"{token:x}"))


def made_up_run(size: Size, *, together: bool = False) -> Run:
    """A finished run of one batch, the same each time. Its first row uses the whole budget; the
    others end evenly over the second half, or `together` with it. A token is as common as a word
    of its rank in real text (Zipf's law)."""
    chance = random.Random(f"{size} {together}")
    rows, columns = size
    lengths = [
        columns if together else columns - slot * columns // (2 * rows) for slot in range(rows)
    ]
    prompts = [tuple(chance.choices(range(50_000), k=chance.randint(5, 60))) for _ in range(rows)]
    batch = Batch(0, tuple(range(rows)), tuple(prompts), "left", started=0.001)
    commonness = list(itertools.accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    texts: list[list[str]] = [[] for _ in range(rows)]
    steps, clock = [], 0.002
    for forward in range(1, columns + 1):
        working = [forward <= length for length in lengths]
        drawn = chance.choices(range(VOCABULARY), cum_weights=commonness, k=rows)
        tokens = tuple(t if works else None for t, works in zip(drawn, working, strict=True))
        pieces = tuple("" if token is None else piece_of(token) for token in tokens)
        for text, piece in zip(texts, pieces, strict=True):
            text.append(piece)
        held = [len(prompt) + min(forward, n) for prompt, n in zip(prompts, lengths, strict=True)]
        live = sum(tokens for tokens, works in zip(held, working, strict=True) if works)
        pads = sum(batch.padded_length - len(prompt) for prompt in prompts)
        seconds = chance.uniform(0.018, 0.045) + (forward == 1) * 0.4
        steps.append(
            Step(
                batch=0,
                forward=forward,
                phase="prefill" if forward == 1 else "decode",
                tokens=tokens,
                pieces=pieces,
                ends=tuple("length" if forward == length else None for length in lengths),
                started=clock,
                seconds=seconds,
                kv_bytes=KVBytes(
                    live * KV_BYTES_PER_TOKEN,
                    pads * KV_BYTES_PER_TOKEN,
                    (sum(held) - live) * KV_BYTES_PER_TOKEN,
                ),
            )
        )
        clock += seconds + chance.uniform(0.0001, 0.002)
    return Run(
        model=ModelInfo(
            "made/up", None, 134_515_008, "float32", "sdpa", "CPU", 2, "2.13.0", "5.24.0",
            "float32", KV_BYTES_PER_TOKEN,
        ),
        settings=Settings("static", rows, "left", chat_template=True),
        requests=tuple(
            Request(slot, f"Prompt {slot + 1}: what is in a row?", length)
            for slot, length in enumerate(lengths)
        ),
        batches=(batch,),
        steps=tuple(steps),
        texts=tuple(map("".join, texts)),
        started_at=datetime(2026, 11, 29, 12, tzinfo=UTC).isoformat(),
        status="done",
        queued_seconds=0.25,
        kv_estimate=rows * (columns + batch.padded_length) * KV_BYTES_PER_TOKEN,
    )  # fmt: skip


def milliseconds(make: Callable[[], Any], repeats: int) -> float:
    """The median time of so many calls, after one that is not counted."""
    make()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        make()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def measured(size: Size, *, repeats: int, together: bool, files: bool) -> dict[str, float]:
    """Milliseconds of each figure, of all without and with the record that travels in the stage's
    value (to save and to export the run), and of reading its JSON."""
    run = made_up_run(size, together=together)
    times = {
        name: milliseconds(lambda make=make: make(run), repeats)
        for name, make in (FIGURES | PARTS | (FILES if files else {})).items()
    }
    text = runfile.dumps(run)
    whole = sum(times[name] for name in FIGURES)
    return times | {
        "all figures": whole - times["dumps"],
        "with record": whole,
        "loads": milliseconds(lambda: runfile.loads(text), repeats),
        "JSON MB": len(text.encode()) / 1e6,
        "value MB": len(json.dumps(FIGURES["stage"](run), ensure_ascii=False).encode()) / 1e6,
    }


def table(sizes: list[Size], **how: Any) -> Iterator[str]:
    """A line per size: milliseconds, and behind each sum microseconds per cell."""
    head = None
    for size in sizes:
        times = measured(size, **how)
        for name in ("all figures", "loads"):
            times[f"{name} µs/cell"] = 1000 * times[name] / size.cells
        if head is None:
            head = list(times)
            yield "| rows x columns | " + " | ".join(head) + " |"
            yield "|---" * (len(head) + 1) + "|"
        yield f"| {size} | " + " | ".join(f"{times[name]:.2f}" for name in head) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--together", action="store_true", help="every row uses its whole budget")
    parser.add_argument("--files", action="store_true", help="the HTML, CSV and trace too")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    how = {"repeats": options.repeats, "together": options.together, "files": options.files}
    gc.collect()
    gc.freeze()
    sizes = [Size(ROWS[-1], columns) for columns in COLUMNS]
    print("\n".join(table(sizes, **how)), flush=True)
    print()
    print("\n".join(table([Size(rows, COLUMNS[-1]) for rows in ROWS], **how)))


if __name__ == "__main__":
    main()

"""A sweep made by hand, with round figures: every run of a size takes the same time."""

from dataclasses import replace

from engine.run import ModelInfo
from engine.sweep import Floor, Rates, Sample, Series, Size, Sweep

MODEL = ModelInfo("paper", None, 1000, "float32", "sdpa", "CPU", 2, "2.13.0", "5.24.0")
SECONDS = {1: 1.0, 2: 1.25, 4: 2.0, 8: 4.0}
"""How long a run of each size takes; a tenth of it is the prefill."""
TOKENS = 10


def sized(rows: int, *, runs: int = 3) -> Size:
    """Its runs take 90, 100 and 110 % of the time, in this order."""
    samples = [
        Sample(
            elapsed_seconds=seconds,
            generated_tokens=rows * TOKENS,
            prefill_seconds=0.1 * seconds,
            decode_seconds=0.9 * seconds,
            ttft_seconds=0.1 * seconds,
            tpot_seconds=0.1 * seconds,
        )
        for seconds in (share * SECONDS[rows] for share in (0.9, 1.0, 1.1)[:runs])
    ]
    floor = Floor(1000, 10 * rows, 2000 * rows, memory_seconds=0.05, compute_seconds=0.02 * rows)
    return Size(rows, (5,) * rows, Series("engine", tuple(samples)), floor=floor)


WHOLE = Sweep(
    model=MODEL,
    device="cpu",
    batch_sizes=(1, 2, 4, 8),
    max_new_tokens=TOKENS,
    runs=3,
    warmup=1,
    started_at="2026-11-30T02:00:00+00:00",
    status="done",
    rates=Rates(20000.0, 100000.0, "float32"),
    sizes=tuple(sized(rows) for rows in (1, 2, 4, 8)),
    versions={"torch": "2.13.0"},
)
UNDER_WAY = replace(WHOLE, status="running", sizes=(sized(1), sized(2), replace(sized(4, runs=1))))

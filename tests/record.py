"""Remake what comes with the page, recorded on the default model, warmed up: runs, the sweep, and
the comparison.

python -m tests.record            all of them
python -m tests.record sweep      only the sweep
python -m tests.record compare    only the comparison, in float32
"""

import gzip
import sys

from engine import SerialEngine, StaticBatchEngine, load_model, make_requests, runfile, sweepfile
from engine import comparison as comparisons
from engine.bench import measure_sweep
from engine.compare import compare
from engine.models import LanguageModel
from engine.orders import SWEEP_RUNS, SWEEP_SIZES
from engine.presets import MIXED, PRESETS
from engine.requests import DEFAULT_BUDGET
from engine.sweep import DEFAULT_PROMPT
from engine.sweeping import WARMUP
from viz.compare.desk import RECORDED
from viz.recorded import FOLDER, SIZES


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or ["runs", "sweep", "compare"]
    if "runs" in chosen:
        record_runs(load_model())
    if "sweep" in chosen:
        record_sweep(load_model())
    if "compare" in chosen:
        record_comparison(load_model(dtype="float32"))


def record_runs(lm: LanguageModel) -> None:
    presets = {preset.key: preset for preset in PRESETS}
    for key in ("tutorial", "straggler", "waves"):
        preset = presets[key]
        requests = make_requests(
            preset.prompts, max_new_tokens=preset.budgets, ignore_eos=preset.ignore_eos
        )
        engine = StaticBatchEngine(
            lm, batch_size=preset.batch_size, chat_template=preset.chat_template
        )
        _record(key, engine, requests)
        if key == "tutorial":
            _record("serial", SerialEngine(lm), requests)
    for size in SIZES:
        requests = make_requests(["Once upon a time,"] * size, max_new_tokens=16, ignore_eos=True)
        _record(f"size-{size}", StaticBatchEngine(lm, batch_size=size), requests)


def record_sweep(lm: LanguageModel) -> None:
    *_, sweep = measure_sweep(
        lm,
        batch_sizes=SWEEP_SIZES,
        prompts=[DEFAULT_PROMPT],
        max_new_tokens=DEFAULT_BUDGET,
        runs=SWEEP_RUNS,
        warmup=WARMUP,
        memory=False,
    )
    (FOLDER / "sweep.json").write_text(sweepfile.dumps(sweep), encoding="utf-8")
    for size in sweep.sizes:
        rate = size.engine.tokens_per_second
        print(f"batch size {size.batch_size}: {rate.median:.1f} tok/s, spread {rate.spread:.1%}")


def record_comparison(lm: LanguageModel) -> None:
    requests = make_requests(MIXED.prompts, max_new_tokens=MIXED.budgets)
    comparing = compare(
        lm, requests, batch_size=MIXED.batch_size, chat_template=MIXED.chat_template
    )
    for _ in comparing:
        pass
    comparison = comparing.record()
    record = comparisons.dumps(comparison).encode()
    RECORDED.write_bytes(gzip.compress(record, mtime=0))  # a sixth of 200 kB
    print(f"same ids: {comparisons.same_ids(comparison)}")
    for row in comparisons.table(comparison):
        seconds = row.figures and row.figures.wall_seconds
        print(f"{row.engine}: {seconds} s, speed-up {row.speed_up}, {row.note or 'no note'}")


def _record(name: str, engine: StaticBatchEngine, requests: list) -> None:
    engine.run(requests)  # warms up the same shapes
    run = engine.run(requests)
    runfile.save(run, FOLDER / f"{name}.json")
    print(f"{name}: {len(run.steps)} steps, {run.steps[-1].finished:.2f} s, {run.texts[0][:60]!r}")


if __name__ == "__main__":
    main()

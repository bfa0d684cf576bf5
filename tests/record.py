"""Remake the recorded runs that come with the page: the default model, warmed up.

python -m tests.record
"""

from engine import SerialEngine, StaticBatchEngine, load_model, make_requests, runfile
from engine.presets import PRESETS
from viz.recorded import FOLDER, SIZES


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    lm = load_model()
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


def _record(name: str, engine: StaticBatchEngine, requests: list) -> None:
    engine.run(requests)  # warms up the same shapes
    run = engine.run(requests)
    runfile.save(run, FOLDER / f"{name}.json")
    print(f"{name}: {len(run.steps)} steps, {run.steps[-1].finished:.2f} s, {run.texts[0][:60]!r}")


if __name__ == "__main__":
    main()

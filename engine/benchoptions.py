"""The options of `python -m engine bench`, and the sweep that they ask for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import RequestError
from engine.options import add_device_options, at_least_one
from engine.presets import DEFAULT_MODEL
from engine.sweep import DEFAULT_PROMPT, Progress, Sweep

if TYPE_CHECKING:
    from engine.weights import OnProgress

OFFLINE = {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
"""Who is asked for a model answers as without a network. Read when load_model first asks."""


def add_bench(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    bench = commands.add_parser(
        "bench",
        help="time batch sizes on a model, beside what the device could do",
        description="Time static batches of growing size: greedy, every row its whole budget. A "
        "table goes to stderr; the last line of stdout is one JSON object, with the names of "
        "nanoLLMServe's benchmark.",
        epilog="example: python -m engine bench --batch-size 1 4 8 --max-new-tokens 64 --runs 5 "
        "--baseline generate",
    )
    what = bench.add_argument_group("what to run")
    what.add_argument(
        "--batch-size",
        nargs="+",
        type=at_least_one,
        default=[1, 2, 4, 8],
        metavar="B",
        help="rows in a batch, one size after another (1 2 4 8)",
    )
    what.add_argument("--max-new-tokens", type=int, default=32, metavar="N", help="(%(default)s)")
    what.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="TEXT",
        help="a prompt; repeatable. Rows beyond the prompts repeat them in turn (default: "
        f'"{DEFAULT_PROMPT}")',
    )
    what.add_argument(
        "--prompts-file", type=Path, metavar="F", help=".txt, .csv or .jsonl, as for run"
    )
    what.add_argument("--chat", action="store_true", help="put the chat template round the prompts")
    how = bench.add_argument_group("how to time it")
    how.add_argument("--runs", type=int, default=3, metavar="R", help="timed runs (%(default)s)")
    how.add_argument(
        "--warmup", type=int, default=1, metavar="W", help="runs that don't count (%(default)s)"
    )
    how.add_argument(
        "--baseline",
        nargs="+",
        default=[],
        choices=["generate", "eager"],
        help="in turn with the engine, on the same batch: transformers' model.generate, and the "
        "engine without graphs, replays, laid-out weights and compiled steps",
    )
    how.add_argument(
        "--skip-naive-baseline",
        action="store_true",
        help="leave out generation without a KV cache, which runs at batch size 1",
    )
    how.add_argument(
        "--skip-memory",
        action="store_true",
        help="leave out the peak of memory, which takes one more run on a CPU",
    )
    model = bench.add_argument_group("model")
    source = model.add_mutually_exclusive_group()
    source.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="M",
        help=f"{DEFAULT_MODEL} (default), a hub id, a folder, or a .gguf file",
    )
    source.add_argument(
        "--random-weights",
        metavar="CONFIG",
        help="a model of this shape that knows nothing: qwen3-0.6b, qwen3-8b, or a config.json",
    )
    add_device_options(model)
    model.add_argument("--seed", type=int, default=0, metavar="S", help="of random weights (0)")
    model.add_argument(
        "--local-files-only", action="store_true", help="load from this machine or not at all"
    )
    bench.add_argument("--json", type=Path, metavar="OUT", help="write the JSON to a file too")
    return bench


def start_bench(
    options: argparse.Namespace, file_prompts: Sequence[str], on_progress: OnProgress
) -> Iterator[Progress | Sweep]:
    """Load the model and begin. Raises BatchscopeError with a sentence."""
    if options.local_files_only:
        os.environ.update(OFFLINE)
    from engine import load_model
    from engine.bench import measure_sweep
    from engine.randomweights import random_lm

    how = {"device": options.device, "dtype": options.dtype, "compile": options.compile}
    if options.random_weights:
        on_progress(f"Making {options.random_weights}", None)
        if options.device_map:
            raise RequestError("--device-map spreads weights as they are read: none are here.")
        lm = random_lm(options.random_weights, seed=options.seed, **how)
    else:
        how["device_map"] = options.device_map
        lm = load_model(options.model, on_progress=on_progress, **how)
    naive = [] if options.skip_naive_baseline else ["naive"]
    return measure_sweep(
        lm,
        batch_sizes=options.batch_size,
        prompts=[*options.prompt, *file_prompts] or [DEFAULT_PROMPT],
        max_new_tokens=options.max_new_tokens,
        runs=options.runs,
        warmup=options.warmup,
        baselines=[*dict.fromkeys(options.baseline), *naive],
        chat_template=options.chat,
        memory=not options.skip_memory,
        random_weights=options.random_weights is not None,
    )

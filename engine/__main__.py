"""The engine in a shell: `python -m engine run` and `python -m engine waste`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine import runfile
from engine.errors import BatchscopeError, RequestError
from engine.metrics import measure
from engine.presets import DEFAULT_MODEL, PRESETS
from engine.requests import check_batch_size, make_requests, whole_number
from engine.run import Run, Step
from viz.terminal import blocks, run_blocks
from viz.words import rate, seconds, summary


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 2 if what was asked for can't be done."""
    options = build_parser().parse_args(arguments)
    try:
        options.command(options)
    except BatchscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine", description="Run prompts as static batches and see what it costs."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="run | waste")
    _add_run(commands)
    _add_waste(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction) -> None:
    run = commands.add_parser(
        "run",
        help="run prompts on a model; print the texts and the two wastes",
        description="Run prompts as static batches (or one by one) and print each text, the "
        "figures, and how many slots were padding or idle.",
        epilog='example: python -m engine run --prompt "Why is the sky blue?" --prompt "Hi" '
        "--max-new-tokens 40,8",
    )
    what = run.add_argument_group("what to run")
    what.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="a prompt; repeatable"
    )
    what.add_argument(
        "--prompts-file",
        type=Path,
        metavar="F",
        help="one prompt per line; blank lines are skipped",
    )
    what.add_argument(
        "--preset",
        choices=[preset.key for preset in PRESETS],
        help="a prompt set of the page, with its budgets and settings",
    )
    what.add_argument(
        "--max-new-tokens",
        metavar="N|N1,N2,..",
        help="token budget: one number, or one per prompt (default 32)",
    )
    how = run.add_argument_group("how to batch")
    how.add_argument("--engine", choices=["static", "serial"], default="static")
    how.add_argument(
        "--batch-size", metavar="B", help="rows in a batch (default: all prompts, at most 32)"
    )
    how.add_argument("--padding-side", choices=["left", "right"], default="left")
    how.add_argument(
        "--raw", action="store_true", help="feed the prompts as they are, without chat template"
    )
    how.add_argument("--ignore-eos", action="store_true", help="let every row use its whole budget")
    sampling = run.add_argument_group("sampling")
    sampling.add_argument("--temperature", default=None, metavar="T", help="0 is greedy (default)")
    sampling.add_argument("--top-p", default=1.0, metavar="P", help="1 is off (default)")
    sampling.add_argument("--top-k", default=0, metavar="K", help="0 is off (default)")
    sampling.add_argument("--seed", metavar="S", help="default: drawn, and kept in the record")
    model = run.add_argument_group("model")
    model.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="M",
        help=f"{DEFAULT_MODEL} (embedded, default), a hub id, a folder, or a .gguf file",
    )
    model.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, mps")
    model.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"]
    )
    run.add_argument("--json", type=Path, metavar="OUT", help="save the run's record")
    run.set_defaults(command=run_command)


def _add_waste(commands: argparse._SubParsersAction) -> None:
    waste = commands.add_parser(
        "waste",
        help="the two wastes from lengths alone, without a model",
        description="Prefill padding and decode idle of a static batch, computed from the lengths "
        "of its prompts and answers.",
        epilog="example: python -m engine waste --prompt-tokens 10,30,5,20 "
        "--new-tokens 15,10,20,12",
    )
    waste.add_argument("--prompt-tokens", required=True, metavar="L1,L2,..")
    waste.add_argument("--new-tokens", required=True, metavar="N1,N2,..")
    waste.add_argument("--batch-size", metavar="B", help="rows in a batch (default: all)")
    waste.set_defaults(command=waste_command)


def run_command(options: argparse.Namespace) -> None:
    from engine.models import load_model
    from engine.serial import SerialEngine
    from engine.static import StaticBatchEngine

    preset = next((preset for preset in PRESETS if preset.key == options.preset), None)
    prompts = [*(preset.prompts if preset else ()), *options.prompt, *_read_prompts(options)]
    budgets = _numbers(options.max_new_tokens or "32", "--max-new-tokens")
    if preset and options.max_new_tokens is None:
        budgets = [*preset.budgets, *[32] * (len(prompts) - len(preset.budgets))]
    temperature = options.temperature
    if temperature is None:
        temperature = preset.temperature if preset else 0.0
    requests = make_requests(
        prompts,
        max_new_tokens=budgets[0] if len(budgets) == 1 else budgets,
        temperature=temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        ignore_eos=options.ignore_eos or bool(preset and preset.ignore_eos),
    )
    batch_size = check_batch_size(options.batch_size or min(len(requests), 32))
    lm = load_model(
        options.model, device=options.device, dtype=options.dtype, on_progress=_show_progress
    )
    chat = not options.raw and (preset.chat_template if preset else True)
    if options.engine == "serial":
        engine = SerialEngine(lm, chat_template=chat)
    else:
        engine = StaticBatchEngine(
            lm, batch_size=batch_size, padding_side=options.padding_side, chat_template=chat
        )
    for note in lm.notes:
        _show_line(f"note: {note}")
    run = engine.run(requests, on_step=_StepLine())
    _clear_line()
    print(report(run))
    if options.json:
        runfile.save(run, options.json)
        _show_line(f"saved {options.json}")


def waste_command(options: argparse.Namespace) -> None:
    prompt_tokens = _numbers(options.prompt_tokens, "--prompt-tokens")
    new_tokens = _numbers(options.new_tokens, "--new-tokens")
    if len(prompt_tokens) != len(new_tokens):
        raise RequestError(
            f"{len(prompt_tokens)} prompt lengths for {len(new_tokens)} answer lengths."
        )
    if min(prompt_tokens + new_tokens) < 1:
        raise RequestError("Every length must be at least 1.")
    size = check_batch_size(options.batch_size or len(prompt_tokens))
    starts = range(0, len(prompt_tokens), size)
    print(
        blocks(
            [prompt_tokens[start : start + size] for start in starts],
            [new_tokens[start : start + size] for start in starts],
        )
    )


def report(run: Run) -> str:
    """Each text, the figures, the bars, and the sentence."""
    figures = measure(run)
    texts = [
        f"[{request.index + 1}] {request.prompt}\n{text}\n"
        for request, text in zip(run.requests, run.texts, strict=True)
    ]
    numbers = (
        f"output {rate(figures.output_tokens_per_second)} tok/s, "
        f"decode {rate(figures.decode_tokens_per_second)} tok/s, "
        f"first token {seconds(figures.mean_ttft)}, per token {seconds(figures.mean_tpot)}"
    )
    return "\n".join([*texts, run_blocks(run), "", numbers, summary(run)])


def _read_prompts(options: argparse.Namespace) -> list[str]:
    if options.prompts_file is None:
        return []
    try:
        lines = options.prompts_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{options.prompts_file} can't be read as UTF-8 text.") from error
    return [line for line in lines if line.strip()]


def _numbers(text: str, option: str) -> list[int]:
    return [whole_number(part.strip(), option) for part in text.split(",")]


class _StepLine:
    """One line on a terminal that says how far the run is."""

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, step: Step) -> None:
        self.tokens += sum(token is not None for token in step.tokens)
        if sys.stderr.isatty():
            running = sum(
                t is not None and e is None for t, e in zip(step.tokens, step.ends, strict=True)
            )
            _show_progress(
                f"batch {step.batch + 1}, {step.phase}, column {step.forward}, "
                f"{running} rows running, {self.tokens} tokens",
                None,
            )


def _show_progress(message: str, fraction: float | None) -> None:
    if sys.stderr.isatty():
        done = f" ({fraction:.0%})" if fraction is not None else ""
        print(f"\r\033[K{message}{done}", end="", file=sys.stderr, flush=True)


def _clear_line() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def _show_line(message: str) -> None:
    _clear_line()
    print(message, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

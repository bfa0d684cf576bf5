"""The engine in a shell: `python -m engine run`, `compare`, `bench`, `capacity` and `waste`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine import comparison, runfile, sweepfile
from engine.benchoptions import add_bench, start_bench
from engine.capacityoptions import add_capacity, plans, read_file
from engine.comparison import Comparison
from engine.errors import BatchscopeError, RecordError, RequestError, RunError
from engine.metrics import Row, measure
from engine.options import add_device_options
from engine.presets import DEFAULT_MODEL, MIXED, NO_PRESET, PRESETS, find_preset
from engine.promptfile import MAX_BYTES, FilePrompt, read_prompts
from engine.ranks import processes
from engine.requests import (
    DEFAULT_BUDGET,
    Limits,
    check_batch_size,
    make_requests,
    whole_number,
)
from engine.run import PaddingSide, Request, Run, Step
from engine.sweep import Progress, Sweep
from viz.slots import batch_slots, slot_states
from viz.terminal import blocks, inert
from viz.terminal_capacity import capacity_report
from viz.terminal_compare import comparison_report
from viz.terminal_sweep import size_line, sweep_report
from viz.words import (
    plural,
    rate,
    seconds,
    size,
    step_times,
    summary,
    time_split,
    under_way,
)

if TYPE_CHECKING:
    from engine.models import LanguageModel


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 2 if what was asked for can't be done."""
    options = build_parser().parse_args(arguments)
    if processes().rank:  # under torchrun one speaks for all, which do the same
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        options.json = None
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115  it may be closed
    sys.stdout.reconfigure(errors="replace")  # bars and texts on a terminal that is not UTF-8
    try:
        options.command(options)
        sys.stdout.flush()
    except BatchscopeError as error:
        print(inert(f"error: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has left; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine", description="Run prompts as static batches and see what it costs."
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="run | compare | bench | capacity | waste"
    )
    _add_run(commands)
    _add_compare(commands)
    add_bench(commands).set_defaults(command=bench_command)
    add_capacity(commands).set_defaults(command=capacity_command)
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
    how = _add_order(run)
    how.add_argument("--engine", choices=["static", "serial"], default="static")
    run.add_argument("--json", type=Path, metavar="OUT", help="save the run's record")
    run.set_defaults(command=run_command)


def _add_compare(commands: argparse._SubParsersAction) -> None:
    compare = commands.add_parser(
        "compare",
        help="run prompts serially, in static batches and by continuous batching; print a table",
        description="Run the same prompts one after another, in static batches, and by "
        "transformers' continuous batching, and print what each of them took.",
        epilog="example: python -m engine compare --preset mixed --dtype float32 --json out.json",
    )
    _add_order(compare)
    compare.add_argument("--json", type=Path, metavar="OUT", help="save the comparison's record")
    compare.set_defaults(command=compare_command)


def _add_order(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what to run and how; returns the group that says how to batch."""
    what = command.add_argument_group("what to run")
    what.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="a prompt; repeatable"
    )
    what.add_argument(
        "--prompts-file",
        type=Path,
        metavar="F",
        help=".txt: a prompt per line; .csv: columns prompt and, if wanted, max_new_tokens; "
        ".jsonl: per line a string, or an object with these keys",
    )
    what.add_argument(
        "--preset",
        choices=[preset.key for preset in (*PRESETS, MIXED)],
        help="a prompt set of the page, with its budgets and settings",
    )
    what.add_argument(
        "--max-new-tokens",
        metavar="N|N1,N2,..",
        help="token budget: one number, or one per prompt (default: the file's or the preset's, "
        f"else {DEFAULT_BUDGET})",
    )
    how = command.add_argument_group("how to batch")
    how.add_argument(
        "--batch-size", metavar="B", help="rows in a batch (default: all prompts, at most 32)"
    )
    how.add_argument("--padding-side", choices=["left", "right"], help="default left")
    how.add_argument(
        "--raw", action="store_true", help="feed the prompts as they are, without chat template"
    )
    how.add_argument("--ignore-eos", action="store_true", help="let every row use its whole budget")
    sampling = command.add_argument_group("sampling")
    sampling.add_argument("--temperature", default=None, metavar="T", help="0 is greedy (default)")
    sampling.add_argument("--top-p", default=1.0, metavar="P", help="1 is off (default)")
    sampling.add_argument("--top-k", default=0, metavar="K", help="0 is off (default)")
    sampling.add_argument("--min-p", default=0.0, metavar="P", help="0 is off (default)")
    sampling.add_argument(
        "--repetition-penalty", default=1.0, metavar="R", help="1 is off (default)"
    )
    sampling.add_argument("--seed", metavar="S", help="default: drawn, and kept in the record")
    end = command.add_argument_group("when a row ends")
    end.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text that ends a row and is left out of its answer; repeatable",
    )
    end.add_argument(
        "--min-new-tokens",
        default=0,
        metavar="N",
        help="neither an end token nor a stop string ends a row before (default 0)",
    )
    model = command.add_argument_group("model")
    model.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="M",
        help=f"{DEFAULT_MODEL} (embedded, default), a hub id, a folder, or a .gguf file",
    )
    add_device_options(model)
    return how


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
    from engine import SerialEngine, StaticBatchEngine

    serial = options.engine == "serial"
    if serial and (options.batch_size or options.padding_side):
        raise RequestError("The serial engine has no batch size and no padding side.")
    order = _order(options)
    lm = _load(options)
    if serial:
        engine = SerialEngine(lm, chat_template=order.chat_template)
    else:
        engine = StaticBatchEngine(
            lm,
            batch_size=order.batch_size,
            padding_side=order.padding_side,
            chat_template=order.chat_template,
        )
    with closing(engine.stream(order.requests)) as stream:
        try:
            _show_steps(stream)
        finally:
            # Also after Stop (Ctrl+C) and after a failure: what was measured is not lost.
            stream.close()
            _report(stream.record(), options.json)


def compare_command(options: argparse.Namespace) -> None:
    from engine.compare import compare

    order = _order(options)
    stream = compare(
        _load(options),
        order.requests,
        batch_size=order.batch_size,
        padding_side=order.padding_side,
        chat_template=order.chat_template,
    )
    with closing(stream):
        try:
            for step in stream:
                _show_progress(f"{stream.engine}, request {step.batch + 1}", None)
        finally:
            stream.close()
            _report_comparison(stream.record(), options.json)


class _Order(NamedTuple):
    """What to run and how, as the options say it."""

    requests: list[Request]
    batch_size: int
    padding_side: PaddingSide
    chat_template: bool


def _order(options: argparse.Namespace) -> _Order:
    """Raises RequestError for what can't be run, before any model is loaded."""
    preset = NO_PRESET if options.preset is None else find_preset(options.preset)
    prompts = [
        *map(FilePrompt, preset.prompts, preset.budgets),
        *(FilePrompt(prompt, None) for prompt in options.prompt),
        *_read_file(options.prompts_file),
    ]
    requests = make_requests(
        [prompt for prompt, _ in prompts],
        max_new_tokens=_budgets(options.max_new_tokens, prompts),
        temperature=preset.temperature if options.temperature is None else options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        seed=options.seed,
        ignore_eos=options.ignore_eos or preset.ignore_eos,
        min_new_tokens=options.min_new_tokens,
        stop=options.stop,
    )
    if processes().count > 1 and options.seed is None and requests[0].sampling.temperature:
        raise RequestError("All processes must draw the same numbers: name a --seed.")
    default_size = preset.batch_size or min(len(requests), Limits().batch_size)
    batch_size = check_batch_size(options.batch_size or default_size)
    _check_folder(options.json)
    return _Order(
        requests,
        batch_size,
        options.padding_side or "left",
        preset.chat_template and not options.raw,
    )


def _load(options: argparse.Namespace) -> LanguageModel:
    from engine import load_model

    lm = load_model(
        options.model,
        device=options.device,
        dtype=options.dtype,
        compile=options.compile,
        device_map=options.device_map,
        on_progress=_show_progress,
    )
    for note in lm.notes:
        _show_line(f"note: {note}")
    return lm


def bench_command(options: argparse.Namespace) -> None:
    _check_folder(options.json)
    prompts = [prompt for prompt, _ in _read_file(options.prompts_file)]
    newest: Sweep | None = None
    try:
        for news in start_bench(options, prompts, _show_progress):
            if isinstance(news, Progress):
                _show_progress(under_way(news), None)
            else:
                _show_measured(newest, news)
                newest = news
    except KeyboardInterrupt:
        newest = newest and replace(newest, status="stopped")
        raise
    finally:
        if newest is not None:
            _report_sweep(newest, options.json)
    if newest.error:
        raise RunError(newest.error)


def capacity_command(options: argparse.Namespace) -> None:
    measured = read_file(options)
    found = []
    for number, plan in enumerate(plans(measured, options), 1):
        _show_progress(f"computed {number} of {len(options.per_hour)}", None)
        found.append(plan)
    _clear_line()
    print(inert(capacity_report(measured.model, measured.jobs, measured.costs, found)))


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
    print(
        blocks(
            [
                batch_slots(prompt_tokens[start : start + size], new_tokens[start : start + size])
                for start in range(0, len(prompt_tokens), size)
            ]
        )
    )


def report(run: Run) -> str:
    """Each request with its figures and text, then the run's figures, bars and sentence."""
    figures = measure(run)
    numbers = (
        f"output {rate(figures.output_tokens_per_second)} tok/s, "
        f"decode {rate(figures.decode_tokens_per_second)} tok/s, "
        f"prompt {rate(figures.prompt_tokens_per_second)} tok/s, "
        f"first token {seconds(figures.mean_ttft)}, per token {seconds(figures.mean_tpot)}, "
        f"KV cache at most {size(figures.peak_kv_bytes)}"
    )
    return "\n".join(
        [
            *(_request_report(run, row) for row in figures.rows),
            blocks(slot_states(run)),
            "",
            numbers,
            f"wall time {time_split(figures)}",
            f"decode step {step_times(figures)}",
            summary(run, figures),
        ]
    )


def _request_report(run: Run, row: Row) -> str:
    facts = (
        f"waited {seconds(row.waited)}, first token {seconds(row.ttft)}, "
        f"{plural(row.generated, 'token')}, {row.end}"
    )
    prompt, text = run.requests[row.request].prompt, run.texts[row.request]
    return f"[{row.request + 1}] {prompt}\n    ({facts})\n{text}\n"


def _show_measured(before: Sweep | None, now: Sweep) -> None:
    """A line for a size that is complete, once the next one begins."""
    if before and before.sizes and len(now.sizes) > len(before.sizes):
        _show_line(size_line(before.sizes[-1]))


def _report_sweep(measured: Sweep, path: Path | None) -> None:
    """The table for people, and one line of JSON for programs, which are never on one channel."""
    _clear_line()
    if path is not None:
        with _saving(path):
            path.write_text(sweepfile.dumps(measured, indent=2), encoding="utf-8")
    print(inert(sweep_report(measured)), file=sys.stderr)
    print(sweepfile.dumps(measured), flush=True)


def _report_comparison(compared: Comparison, path: Path | None) -> None:
    _clear_line()
    if path is not None:
        with _saving(path):
            path.write_text(comparison.dumps(compared), encoding="utf-8")
    print(inert(comparison_report(compared)))


def _report(run: Run, path: Path | None) -> None:
    _clear_line()
    if path is not None:  # first: what is printed may have nowhere to go
        with _saving(path):
            runfile.save(run, path)
    print(inert(report(run)))


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path} can't be written: {error.strerror}.") from error
    _show_line(f"saved {path}")


def _check_folder(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise RequestError(f"{path} is not a file in an existing folder.")


def _budgets(option: str | None, prompts: Iterable[FilePrompt]) -> int | list[int]:
    if option is not None:
        budgets = _numbers(option, "--max-new-tokens")
        return budgets[0] if len(budgets) == 1 else budgets
    return [DEFAULT_BUDGET if budget is None else budget for _, budget in prompts]


def _read_file(path: Path | None) -> list[FilePrompt]:
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{path} can't be read: {error.strerror}.") from error
    return read_prompts(data, path.name)


def _numbers(text: str, option: str) -> list[int]:
    return [whole_number(part.strip(), option) for part in text.split(",")]


def _show_steps(steps: Iterable[Step]) -> None:
    """One line on a terminal that says how far the run is."""
    tokens = 0
    for step in steps:
        running = step.active_rows - sum(end is not None for end in step.ends)
        tokens += step.active_rows
        _show_progress(
            f"batch {step.batch + 1}, {step.phase}, column {step.forward}, "
            f"{plural(running, 'row')} running, {plural(tokens, 'token')}",
            None,
        )


def _show_progress(message: str, fraction: float | None) -> None:
    if sys.stderr.isatty():
        done = f" ({fraction:.0%})" if fraction is not None else ""
        print(f"\r\033[K{inert(message)}{done}", end="", file=sys.stderr, flush=True)


def _clear_line() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def _show_line(message: str) -> None:
    _clear_line()
    print(inert(message), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

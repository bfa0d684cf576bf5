"""Run -> the value of the stage: the whole state so far, in a form that is cheap to send.

Gradio sends the difference of two values, and a string that only grows travels as what was
appended. So all that grows is a string: `logs[i]`, a line per token of request i, and `times[b]`,
the milliseconds of each forward of batch b. Everything else changes rarely or is short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from engine import runfile
from engine.metrics import Figures, Row, Waste, history, measure
from engine.run import ModelInfo, Run, Step
from viz import words
from viz.explain import worked_states, worked_tiles

LEGEND = {
    "active": "working",
    "padded": "padding",
    "idle": "idle: ended, still in the batch",
}
ROW_WORDS = {
    "waiting": "waiting",
    "running": "running",
    "eos": "ended · EOS",
    "length": "ended · length",
    "stop": "ended · stop text",
    "cancelled": "stopped",
    "error": "failed",
}

StageState = dict[str, Any]


def stage_state(run: Run, *, key: str, recorded: bool = False) -> StageState:
    """The stage's value for a Run under way or ended; `key` tells one run from the next.

    logs[i]: "<token id> <text>\\n" per generated token, backslash and newline in the text escaped;
    what the end of the row released without a token follows the last newline.
    times[b]: "<started>/<seconds> " per forward, both in milliseconds.
    kv[b]: "<live>/<padding>/<dead> " per forward, in bytes.
    A run that is over also has its `record` as JSON, and `moments`: see there.
    """
    figures = measure(run)
    state = {
        "key": key,
        "status": run.status,
        "strip": strip(run),
        "recorded": recorded,
        "prompts": [_prompt_text(request.prompt) for request in run.requests],
        "budgets": [request.max_new_tokens for request in run.requests],
        "side": run.settings.padding_side,
        "batches": [
            {
                "requests": list(batch.requests),
                "lengths": list(batch.prompt_lengths),
            }
            for batch in run.batches
        ],
        "ends": [row.end for row in figures.rows],
        "logs": logs(run),
        "times": _per_batch(run, lambda s: f"{1000 * s.started:.1f}/{1000 * s.seconds:.1f} "),
        "kv": _per_batch(
            run, lambda s: f"{s.kv_bytes.live}/{s.kv_bytes.padding}/{s.kv_bytes.dead} "
        ),
        **moment(run, figures),
    }
    if run.status != "running":
        state |= {"moments": moments(run), "record": runfile.dumps(run)}
    return state


def moment(run: Run, figures: Figures) -> dict[str, Any]:
    """What is said about a run as it stands: heading, tiles, counts of slots, a sentence."""
    tell = words.so_far if run.status == "running" else words.summary
    return {
        "heading": heading(run, figures),
        "summary": tell(run, figures),
        "tiles": tiles(run, figures),
        "counts": worked_states(figures),
    }


def moments(run: Run) -> list[dict[str, Any]]:
    """The moment after each step, from none to the last, for a replay: each as `changes` against
    the moment before it."""
    told: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for k, figures in enumerate(history(run)):
        over = k == len(run.steps)
        now = moment(run if over else replace(run, steps=run.steps[:k], status="running"), figures)
        told.append(changes(before, now))
        before = now
    return told


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, down to the leaves. A list of dictionaries as long as before counts as a
    dictionary of its places: {"tiles": {"0": {"value": "54.8"}}}."""
    differing = {}
    for name, value in after.items():
        old = before.get(name)
        if old == value:
            continue
        if isinstance(value, list) and isinstance(old, list) and isinstance(value[0], dict):
            old, value = _places(old), _places(value)
        both = isinstance(old, dict) and isinstance(value, dict)
        differing[name] = changes(old, value) if both else value
    return differing


def _places(values: list[Any]) -> dict[str, Any]:
    return {str(place): value for place, value in enumerate(values)}


def logs(run: Run) -> list[str]:
    """One string per request, a line per token; see `stage_state`."""
    lines: list[list[str]] = [[] for _ in run.requests]
    released = [0] * len(run.requests)
    for step in run.steps:
        seats = run.batches[step.batch].requests
        for request, token, piece in zip(seats, step.tokens, step.pieces, strict=True):
            if token is not None:
                lines[request].append(f"{token} {_escape(piece)}\n")
                released[request] += len(piece)
    tails = [text[count:] for text, count in zip(run.texts, released, strict=True)]
    return ["".join([*log, _escape(tail)]) for log, tail in zip(lines, tails, strict=True)]


def _per_batch(run: Run, tell: Callable[[Step], str]) -> list[str]:
    told: list[list[str]] = [[] for _ in run.batches]
    for step in run.steps:
        told[step.batch].append(tell(step))
    return ["".join(batch) for batch in told]


def caption(model: ModelInfo) -> str:
    """What runs, on one line."""
    threads = f", {words.plural(model.threads, 'thread')}" if model.device == "CPU" else ""
    return f"{model.name} · {model.dtype} · {model.device}{threads}"


def strip(run: Run) -> str:
    """What ran, how and when, on one line."""
    rows = run.settings.batch_size
    batch = "one by one" if run.settings.engine == "serial" else f"batch of {rows}"
    date = datetime.fromisoformat(run.started_at)
    return f"{caption(run.model)} · {batch} · {date.day} {date:%b %Y}"


def heading(run: Run, figures: Figures) -> list[str]:
    """Two phrases: where the run is, and how many rows still work."""
    step = run.steps[-1] if run.steps else None
    if run.status != "running":
        ended = {"done": "Done", "stopped": "Stopped", "error": "Failed"}[run.status]
        if step is None or len(run.batches) > 1:
            return [ended, ""]
        if run.status == "done":
            return [f"Done after {words.plural(step.forward, 'step')}", ""]
        return [f"{ended} after step {_step_of(run, step)}", ""]
    if step is None:
        return ["Prefill", "all prompts in one forward"]
    seated = [row for row in figures.rows if row.batch.index == step.batch]
    working = sum(row.end is None for row in seated)
    where = f"Batch {step.batch + 1} of {len(run.batches)} · " if len(run.batches) > 1 else ""
    return [
        f"{where}Step {_step_of(run, step)}",
        f"{working} of {words.plural(len(seated), 'row')} still working",
    ]


def _step_of(run: Run, step: Step) -> str:
    last = max(run.requests[index].max_new_tokens for index in run.batches[step.batch].requests)
    return f"{step.forward} of {last}"


def tiles(run: Run, figures: Figures) -> list[dict[str, Any]]:
    """The figures above the picture: label, value, unit, note, and the parts of a bar."""
    kv = figures.kv_bytes
    scale, unit = words.byte_scale(kv.total)
    held = {"live": kv.live, "padding": kv.padding, "ended": kv.dead}
    running = run.status == "running"
    waited = ""
    if len(run.batches) > 1 and figures.mean_waited is not None:
        waited = f" · waited {words.seconds(figures.mean_waited)}"
    timed = [row for row in figures.rows if row.ttft is not None]
    paced = [row for row in figures.rows if row.tpot is not None]
    made = [
        _tile(
            "Output",
            words.rate(figures.output_tokens_per_second),
            "tok/s",
            f"decode {words.rate(figures.decode_tokens_per_second)} tok/s",
        ),
        _timed_tile("First token (TTFT)", figures.mean_ttft, _mean_of(timed) + waited),
        _timed_tile("Per token (TPOT)", figures.mean_tpot, _mean_of(paced)),
        _waste_tile("Prompt padding", figures.padding, "padded", "slots", "no prefill yet"),
        _waste_tile(
            "Idle while decoding",
            figures.idle,
            "idle",
            "slots so far" if running else "slots",
            "no decode yet" if running else "nothing was decoded",
        ),
        _tile(
            "KV cache",
            f"{kv.total / scale:.1f}",
            unit,
            " · ".join(f"{name} {part / scale:.1f}" for name, part in held.items()),
            [
                [state, round(part / kv.total, 3) if kv.total else 0]
                for state, part in zip(("active", "padded", "idle"), held.values(), strict=True)
            ],
        ),
    ]
    return [
        tile | {"worked": worked} for tile, worked in zip(made, worked_tiles(figures), strict=True)
    ]


def _tile(
    label: str,
    value: str,
    unit: str,
    note: str,
    bar: list | None = None,
    *,
    brief: str = "",
) -> dict[str, Any]:
    """`brief` is what a slide shows of the note."""
    return {
        "label": label,
        "value": value,
        "unit": unit,
        "note": note,
        "brief": brief,
        "bar": bar or [],
    }


def _timed_tile(label: str, mean: float | None, note: str) -> dict[str, Any]:
    value, _, unit = words.seconds(mean).partition(" ")
    return _tile(label, value, unit, note)


def _mean_of(rows: list[Row]) -> str:
    return f"mean of {words.plural(len(rows), 'row')}"


def _waste_tile(label: str, waste: Waste, state: str, what: str, none: str) -> dict[str, Any]:
    if waste.fraction is None:
        return _tile(label, "n/a", "", none, [[state, 0]])
    value, unit = words.percent(waste, 1).split(" ")
    return _tile(
        label,
        value,
        unit,
        words.fraction(waste, what),
        [[state, round(waste.fraction, 3)]],
        brief=f"{waste.wasted:,} of {waste.slots:,}",
    )


def _prompt_text(prompt: str | tuple[int, ...]) -> str:
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")

"""Runs as files: strict JSON, checked on the way in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from engine.errors import RecordError
from engine.run import SCHEMA_VERSION, Batch, Run

MAX_BYTES = 32 * 2**20


def dumps(run: Run) -> str:
    """The run as strict JSON: numbers and null, never NaN or Infinity."""
    return json.dumps(asdict(run), allow_nan=False, ensure_ascii=False)


def save(run: Run, path: str | Path) -> None:
    """Write the run as UTF-8 JSON; `load(path)` gives back an equal Run."""
    Path(path).write_text(dumps(run), encoding="utf-8")


def load(path: str | Path) -> Run:
    """Read a saved run; RecordError names what is wrong with the file."""
    path = Path(path)
    if not path.is_file():
        raise RecordError(f"{path.name} is not a file.")
    if path.stat().st_size > MAX_BYTES:
        raise RecordError(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB.")
    return loads(path.read_bytes())


def loads(data: str | bytes) -> Run:
    """Parse a saved run; RecordError names the first thing that is wrong."""
    # Imported here because only reading needs it: the engine also runs without pydantic.
    from pydantic import TypeAdapter, ValidationError

    if len(data) > MAX_BYTES:
        raise RecordError(f"The run is larger than {MAX_BYTES // 2**20} MiB.")
    try:
        parsed = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
        _check_version(parsed)
        run = TypeAdapter(Run).validate_json(data, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RecordError(f"Not a saved run: {where}: {first['msg']}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"Not a saved run: {error}.") from error
    for problem in _problems(run):
        raise RecordError(f"Not a saved run: {problem}.")
    return run


def _check_version(parsed: object) -> None:
    version = parsed.get("schema_version") if isinstance(parsed, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema version {version!r:.20}, this program reads {SCHEMA_VERSION}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _problems(run: Run) -> Iterator[str]:
    """What types alone can't say: that the parts of the record fit each other."""
    if [request.index for request in run.requests] != list(range(len(run.requests))):
        yield "the requests are not numbered 0, 1, 2, ..."
    if len(run.texts) != len(run.requests):
        yield f"{len(run.texts)} texts for {len(run.requests)} requests"
    seated = [index for batch in run.batches for index in batch.requests]
    if seated != list(range(len(run.requests))):
        yield "the batches do not seat each request once, in order"
    last = (0, 0)
    for step in run.steps:
        if not 0 <= step.batch < len(run.batches):
            yield f"a step of batch {step.batch}, which does not exist"
            return
        if (step.batch, step.forward) not in ((last[0], last[1] + 1), (last[0] + 1, 1)):
            yield f"batch {step.batch}, forward {step.forward} is out of order"
        last = (step.batch, step.forward)
        rows = len(run.batches[step.batch].requests)
        if {len(step.tokens), len(step.pieces), len(step.ends)} != {rows}:
            yield f"batch {step.batch}, forward {step.forward} does not have {rows} slots"
        if (step.phase == "prefill") != (step.forward == 1):
            yield f"batch {step.batch}, forward {step.forward} is called {step.phase}"
        if step.seconds < 0 or step.started < 0:
            yield f"batch {step.batch}, forward {step.forward} has a negative time"
    for number, batch in enumerate(run.batches):
        yield from _batch_problems(run, batch, number)


def _batch_problems(run: Run, batch: Batch, number: int) -> Iterator[str]:
    if batch.index != number:
        yield f"batch {number} is numbered {batch.index}"
    if not 1 <= len(batch.requests) <= run.settings.batch_size:
        yield f"batch {number} has {len(batch.requests)} of {run.settings.batch_size} slots"
    if len(batch.prompt_ids) != len(batch.requests) or not all(batch.prompt_ids):
        yield f"batch {number} does not have one prompt for each request"
    running = [True] * len(batch.requests)
    budgets = [run.requests[index].max_new_tokens for index in batch.requests]
    for step in (step for step in run.steps if step.batch == number):
        if batch.started is None:
            yield f"batch {number} has steps but no start"
            return
        if not any(running):
            yield f"batch {number}, forward {step.forward}: every slot has ended before"
            return
        if [token is not None for token in step.tokens] != running:
            yield f"batch {number}, forward {step.forward}: a slot emits after its end, or skips"
            return
        running = [run_on and end is None for run_on, end in zip(running, step.ends, strict=True)]
        if any(run_on and step.forward >= n for run_on, n in zip(running, budgets, strict=True)):
            yield f"batch {number}, forward {step.forward}: a slot runs on past its budget"
            return

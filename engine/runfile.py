"""Runs as files: strict JSON, checked on the way in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from engine.errors import RecordError
from engine.metrics import rows
from engine.run import SCHEMA_VERSION, Run

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
    if problem := next(_problems(run), None):
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
    """What types alone can't say: that the parts of the record fit each other. Only the first
    problem counts; what follows it may rest on what it denies."""
    if [request.index for request in run.requests] != list(range(len(run.requests))):
        yield "the requests are not numbered 0, 1, 2, ..."
    if any(request.max_new_tokens < 1 for request in run.requests):
        yield "a token budget is below 1"
    if not run.requests:
        yield "there are no requests"
    if not _is_moment(run.started_at):
        yield f"{run.started_at!r:.40} is no date and time"
    if len(run.texts) != len(run.requests):
        yield f"{len(run.texts)} texts for {len(run.requests)} requests"
    seated = [index for batch in run.batches for index in batch.requests]
    if seated != list(range(len(run.requests))):
        yield "the batches do not seat each request once, in order"
    for number, batch in enumerate(run.batches):
        if batch.index != number:
            yield f"batch {number} is numbered {batch.index}"
        if not 1 <= len(batch.requests) <= run.settings.batch_size:
            yield f"batch {number} has {len(batch.requests)} of {run.settings.batch_size} slots"
        if len(batch.prompt_ids) != len(batch.requests) or not all(batch.prompt_ids):
            yield f"batch {number} does not have one prompt for each request"
    yield from _step_problems(run)
    if run.status == "done" and not all(row.end for row in rows(run)):
        yield "it is called done, but rows still run"


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _step_problems(run: Run) -> Iterator[str]:
    at, running = (-1, 0), []
    for step in run.steps:
        where = f"batch {step.batch}, forward {step.forward}"
        if not any(running) and (step.batch, step.forward) == (at[0] + 1, 1):
            if step.batch >= len(run.batches) or run.batches[step.batch].started is None:
                yield f"batch {step.batch} has steps but was not started"
            batch = run.batches[step.batch]
            budgets = [run.requests[index].max_new_tokens for index in batch.requests]
            running = [True] * len(budgets)
        elif not any(running) or (step.batch, step.forward) != (at[0], at[1] + 1):
            yield f"{where} is out of order"
        at = (step.batch, step.forward)
        if {len(step.tokens), len(step.pieces), len(step.ends)} != {len(running)}:
            yield f"{where} does not have {len(running)} slots"
        if (step.phase == "prefill") != (step.forward == 1):
            yield f"{where} is called {step.phase}"
        if step.seconds < 0 or step.started < 0:
            yield f"{where} has a negative time"
        if [token is not None for token in step.tokens] != running:
            yield f"{where}: a slot emits after its end, or skips"
        running = [run_on and end is None for run_on, end in zip(running, step.ends, strict=True)]
        if any(run_on and step.forward >= n for run_on, n in zip(running, budgets, strict=True)):
            yield f"{where}: a slot runs on past its budget"

"""Runs as files: strict JSON, checked on the way in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import accumulate, chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.errors import RecordError, RequestError
from engine.metrics import rows
from engine.requests import make_requests
from engine.run import SCHEMA_VERSION, End, Request, Run, Step, texts_after

if TYPE_CHECKING:
    from pydantic import TypeAdapter

READABLE = range(1, SCHEMA_VERSION + 1)
"""Schema versions. Version 2 added fields, which have defaults, so a Run that was read is one of
version 2 whatever its file says, and its fields keep the same rules."""

MAX_BYTES = 16 * 2**20
MAX_REQUESTS = 10_000
MAX_BATCH_SIZE = 10_000
MAX_BUDGET = 1_000_000
MAX_SLOTS = 5_000_000
"""Of a run as a picture: a row per slot of its largest batch, and the columns of all batches."""
MAX_NAME = 200
MAX_SECONDS = 1e9
MAX_TOKEN_ID = 2**31 - 1
MAX_COUNT = 2**53 - 1
"""Bytes, weights and threads: what a browser still counts exactly."""


def dumps(run: Run) -> str:
    """The run as strict JSON: numbers and null, never NaN or Infinity."""
    first, *more, last = chain.from_iterable(_members(*item) for item in vars(run).items())
    return ",".join([f"{{{first}", *more, f"{last}}}"])


def _members(name: str, value: object) -> list[str]:
    """A field, in parts that commas join. A tuple's are apart, since an emoji in a string makes
    all its characters four bytes wide."""
    if not isinstance(value, tuple) or not value:
        return [f'"{name}":{_json(value)}']
    first, *more = map(_json, value)
    *most, last = [f'"{name}":[{first}', *more]
    return [*most, f"{last}]"]


_json = json.JSONEncoder(
    default=vars, allow_nan=False, ensure_ascii=False, separators=(",", ":")
).encode


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
    run = parse(data, _schema(), noun="run", most_bytes=MAX_BYTES, versions=READABLE)
    if found := problem(run):
        raise RecordError(f"Not a saved run: {found}.")
    return of_this_version(run)


Record = TypeVar("Record")


def parse(
    data: str | bytes,
    schema: TypeAdapter[Record],
    *,
    noun: str,
    most_bytes: int,
    versions: range,
    member: str | None = None,
) -> Record:
    """The record in strict JSON of these versions, by the types of its fields alone; where `member`
    is given it is only that part of the file. Raises RecordError, which calls it a saved `noun`."""
    # Imported here because only reading needs it: the engine also runs without pydantic.
    from pydantic import ValidationError

    # A browser may send half a surrogate pair; "surrogatepass" counts it too.
    size = len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    if size > most_bytes:
        raise RecordError(f"The {noun} is larger than {most_bytes // 2**20} MiB.")
    try:
        parsed = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
        if member is not None:
            parsed = parsed.get(member) if isinstance(parsed, dict) else None
            if not isinstance(parsed, dict):
                raise ValueError(f"it has no {member}")
            data = json.dumps(parsed)
        _check_version(parsed, versions)
        return schema.validate_json(data, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:80] or "the file"
        raise RecordError(f"Not a saved {noun}: {where}: {first['msg']}.") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"Not a saved {noun}: it is not JSON (line {error.lineno}).") from error
    except RecursionError as error:
        raise RecordError(f"Not a saved {noun}: it is nested too deeply.") from error
    except ValueError as error:
        raise RecordError(f"Not a saved {noun}: {error}.") from error


def problem(run: Run) -> str | None:
    """The first thing that is wrong with a run whose fields have the right types."""
    if run.schema_version not in READABLE:
        return f"schema version {run.schema_version!r:.20}"
    return next(_problems(run), None)


def of_this_version(run: Run) -> Run:
    """A run that was read, as this program writes it."""
    return replace(run, schema_version=SCHEMA_VERSION)


@cache
def _schema() -> TypeAdapter[Run]:
    from pydantic import TypeAdapter

    return TypeAdapter(Run)


def _check_version(parsed: object, readable: range) -> None:
    version = parsed.get("schema_version") if isinstance(parsed, dict) else None
    if not isinstance(version, int) or version not in readable:
        known = " to ".join(map(str, dict.fromkeys((readable[0], readable[-1]))))
        raise ValueError(f"schema version {version!r:.20}, this program reads {known}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _problems(run: Run) -> Iterator[str]:
    """What types alone can't say: that nothing is out of all proportion, and that the parts of the
    record fit each other. Only the first problem counts; what follows it may rest on what it
    denies."""
    yield from _outsized(run)
    if [request.index for request in run.requests] != list(range(len(run.requests))):
        yield "the requests are not numbered 0, 1, 2, ..."
    if not run.requests:
        yield "there are no requests"
    yield from _unaskable(run)
    if not is_moment(run.started_at):
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
        if run.settings.engine == "continuous" and len(batch.requests) > 1:
            yield f"batch {number} of a continuous run has more than one request"
        if len(batch.prompt_ids) != len(batch.requests) or not all(batch.prompt_ids):
            yield f"batch {number} does not have one prompt for each request"
        if batch.padding_side != run.settings.padding_side:
            yield f"batch {number} is padded on the other side"
    if (run.status == "error") != (run.error is not None):
        yield f"it is called {run.status}, with {'no' if run.error is None else 'an'} error"
    yield from _step_problems(run)
    if run.settings.engine == "continuous" and (seats := _most_seated(run)) > (
        most := run.settings.batch_size
    ):
        yield f"{seats} requests have a slot at once, of {most}"
    if (slots := _slots_of_picture(run)) > MAX_SLOTS:
        yield f"its picture has {slots:,} slots, more than {MAX_SLOTS:,}"
    so_far = texts_after(run, run.steps)
    if not all(text.startswith(start) for text, start in zip(run.texts, so_far, strict=True)):
        yield "a text does not begin with what its steps made readable"
    if run.status == "done" and not all(row.end for row in rows(run)):
        yield "it is called done, but rows still run"


def _outsized(run: Run) -> Iterator[str]:
    """What no real run has, and what would take a page or a picture far too long."""
    model, steps = run.model, run.steps
    budgets = [request.max_new_tokens for request in run.requests]
    least_tokens = [request.min_new_tokens for request in run.requests]
    prompts = [ids for batch in run.batches for ids in batch.prompt_ids]
    prompts += [request.prompt for request in run.requests if not isinstance(request.prompt, str)]
    emitted = (token for step in steps for token in step.tokens if token is not None)
    starts = [batch.started for batch in run.batches if batch.started is not None]
    on_device = (step.device_seconds for step in steps if step.device_seconds is not None)
    clocks = chain.from_iterable((step.started, step.seconds) for step in steps)
    times = chain([run.queued_seconds], starts, clocks, on_device)
    held = (step.kv_bytes for step in steps)
    cached = chain.from_iterable((kv.live, kv.padding, kv.dead) for kv in held)
    foretold = (n for n in (run.kv_estimate, model.kv_bytes_per_token) if n is not None)
    for what, values, least, most in (
        ("the number of requests", [len(run.requests)], 0, MAX_REQUESTS),
        ("the batch size", [run.settings.batch_size], 1, MAX_BATCH_SIZE),
        ("a token budget", budgets, 1, MAX_BUDGET),
        ("the least number of new tokens", least_tokens, 0, MAX_BUDGET),
        ("a token id", chain(emitted, *prompts), 0, MAX_TOKEN_ID),
        ("a time in seconds", times, 0, MAX_SECONDS),
        ("a count of bytes", chain(cached, foretold), 0, MAX_COUNT),
        ("the number of weights or threads", [model.parameters, model.threads], 0, MAX_COUNT),
    ):
        if not all(least <= value <= most for value in values):
            yield f"{what} is not between {least} and {most:,.0f}"
    names = (value for value in vars(model).values() if isinstance(value, str))
    if any(len(name) > MAX_NAME for name in names):
        yield f"a name of the model or its versions is longer than {MAX_NAME} characters"


def _unaskable(run: Run) -> Iterator[str]:
    """What nobody could have asked for. Most rows share their settings, which are checked once."""
    settings = dict.fromkeys(
        (request.sampling, request.seed, request.stop) for request in run.requests
    )
    for sampling, seed, stop in settings:
        try:
            make_requests(["any"], **vars(sampling), seed=seed, stop=stop)
        except RequestError as error:
            yield str(error).rstrip(".")
    for request in run.requests:
        if not request.prompt:
            yield f"request {request.index} has an empty prompt"
        if request.min_new_tokens > request.max_new_tokens:
            yield f"request {request.index} must have more new tokens than its budget"


def _slots_of_picture(run: Run) -> int:
    return run.slots * (sum(batch.padded_length for batch in run.batches) + len(run.steps))


def is_moment(text: str) -> bool:
    """Whether it is a date and time in ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _step_problems(run: Run) -> Iterator[str]:
    yield from _forward_problems(run.steps) if run.settings.engine == "continuous" else ()
    newest, clock = -1, 0.0
    going: dict[int, list[bool]] = {}  # which slots of a batch go on, once it has begun
    forwards: dict[int, int] = {}
    for step in run.steps:
        where = f"batch {step.batch}, forward {step.forward}"
        if not _comes_next(run, step, newest, going, forwards.get(step.batch, 0)):
            yield f"{where} is out of order"
        batch = run.batches[step.batch]
        if batch.started is None:
            yield f"batch {step.batch} has steps but was not started"
        seated = [run.requests[index] for index in batch.requests]
        running = going.get(step.batch, [True] * len(seated))
        newest, forwards[step.batch] = step.batch, step.forward
        if {len(step.tokens), len(step.pieces), len(step.ends)} != {len(running)}:
            yield f"{where} does not have {len(running)} slots"
        if (step.phase == "prefill") != (step.forward == 1):
            yield f"{where} is called {step.phase}"
        if [token is not None for token in step.tokens] != running:
            yield f"{where}: a slot emits after its end, or skips"
        if any(end and not run_on for run_on, end in zip(running, step.ends, strict=True)):
            yield f"{where}: a slot ends twice"
        for request, end in zip(seated, step.ends, strict=True):
            if end and not _may_end(request, end, step.forward):
                yield f'{where}: a slot ends as "{end}", which its request does not allow'
        if step.started < max(clock, batch.started):
            yield f"{where} starts before what comes first"
        clock = step.started
        running = [run_on and end is None for run_on, end in zip(running, step.ends, strict=True)]
        going[step.batch] = running
        if any(
            run_on and step.forward >= request.max_new_tokens
            for run_on, request in zip(running, seated, strict=True)
        ):
            yield f"{where}: a slot runs on past its budget"


def _comes_next(
    run: Run, step: Step, newest: int, going: Mapping[int, Sequence[bool]], forwards: int
) -> bool:
    """Whether this can be the next step: of a batch that goes on, or the first of one. Batches run
    one after another, but for those of a continuous run."""
    if not 0 <= step.batch < len(run.batches) or step.forward != forwards + 1:
        return False
    if run.settings.engine == "continuous":
        return step.batch not in going or any(going[step.batch])
    if any(going.get(newest, ())):
        return step.batch == newest
    return step.batch == newest + 1


def _forward_problems(steps: Sequence[Step]) -> Iterator[str]:
    """One forward is at most one step of each batch, all with its own time."""
    for started, together in groupby(steps, key=attrgetter("started")):
        forward = list(together)
        if len({step.batch for step in forward}) < len(forward):
            yield f"a forward at {started:g} s is two steps of one batch"
        if len({step.seconds for step in forward}) > 1:
            yield f"a forward at {started:g} s takes two times"


def _most_seated(run: Run) -> int:
    """How many requests of a continuous run have a slot at once; one gives it back with its last
    token, if it has come to an end."""
    last = {step.batch: step for step in run.steps}
    seats = [batch for batch in run.batches if batch.started is not None]
    taken = [(batch.started, 1) for batch in seats]
    given_back = [
        (step.finished, -1)
        for step in (last[batch.index] for batch in seats if batch.index in last)
        if any(step.ends)
    ]
    return max(accumulate(change for _, change in sorted(taken + given_back)), default=0)


def _may_end(request: Request, end: End, tokens: int) -> bool:
    """Whether so many tokens can end a row like this. "cancelled" and "error" are ends of a run,
    which no token makes."""
    match end:
        case "length":
            return tokens == request.max_new_tokens
        case "eos":
            return tokens > request.min_new_tokens and not request.ignore_eos
        case "stop":
            return tokens >= request.min_new_tokens and bool(request.stop)
    return False

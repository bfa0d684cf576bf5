"""Run -> a trace in the Trace Event Format, for Perfetto and chrome://tracing.

One track per slot. On it lies, per batch, the request that sits there, from the start of the batch
to its own last token, and inside it the forwards that worked for it; the forwards after its end
are "idle" slices. Requests that wait for their batch share a track of their own, since their slot
is another's meanwhile; on one more lies the wait of the whole run in line, which comes before it.
Counters tell the active rows and the bytes of the KV cache.

Times are whole microseconds since the run was asked for. Every boundary is rounded once and shared
by the slices that meet there, so slices nest and never overlap. Slots, requests and batches count
from 1, as on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from engine.metrics import Row, rows
from engine.run import KVBytes, Run, Step
from viz.words import caption

PROCESS = 1
MICROSECONDS = 1_000_000

Event = dict[str, Any]


class Span(NamedTuple):
    """From when to when, in microseconds since the run was asked for."""

    start: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.start


class Forward(NamedTuple):
    step: Step
    span: Span


def trace(run: Run) -> str:
    """The trace as JSON: complete events ("X") on the slots, asynchronous ones ("b", "e") for the
    waits, counters ("C"), and metadata ("M") that names the tracks."""
    # The sort is stable: a slice stays before those inside it that start with it.
    timed = sorted(_timed(run), key=lambda event: event["ts"])
    content = {
        "traceEvents": [*_names(run), *timed],
        "displayTimeUnit": "ms",
        "otherData": {
            "model": caption(run.model),
            "started_at": run.started_at,
            "status": run.status,
        },
    }
    return json.dumps(content, allow_nan=False, ensure_ascii=False)


def _timed(run: Run) -> Iterator[Event]:
    table = rows(run)
    begin = clock = _microseconds(run.queued_seconds)
    yield from _wait("in line", 0, Span(0, begin))
    yield _counter("active rows", begin, rows=0)
    yield _kv_counter(begin, KVBytes(0, 0, 0))
    for index, steps in groupby(run.steps, key=lambda step: step.batch):
        batch = run.batches[index]
        start = max(clock, begin + _microseconds(batch.started))
        forwards = list(_forwards(steps, begin, start))
        clock = forwards[-1].span.end
        for request in batch.requests:
            about = {"request": request + 1}
            yield from _wait("waiting", request + 1, Span(begin, start), **about)
            yield from _slot(run, table[request], start, forwards)
        yield from _counted(forwards)


def _forwards(steps: Iterable[Step], begin: int, clock: int) -> Iterator[Forward]:
    for step in steps:
        start = max(clock, begin + _microseconds(step.started))
        clock = max(start, begin + _microseconds(step.finished))
        yield Forward(step, Span(start, clock))


def _wait(name: str, number: int, span: Span, **about: Any) -> Iterator[Event]:
    if span.duration > 0:
        wait = {"name": name, "cat": "waiting", "id": number, "pid": PROCESS}
        yield {**wait, "ph": "b", "ts": span.start, "args": about}
        yield {**wait, "ph": "e", "ts": span.end}


def _slot(run: Run, row: Row, start: int, forwards: list[Forward]) -> Iterator[Event]:
    slot = row.slot
    working, idle = forwards[: row.generated], forwards[row.generated :]
    request = run.requests[row.request]
    yield _slice(
        f"request {row.request + 1}",
        "request",
        slot,
        Span(start, working[-1].span.end),
        request=row.request + 1,
        batch=row.batch.index + 1,
        prompt=request.prompt,
        prompt_tokens=row.prompt_tokens,
        max_new_tokens=request.max_new_tokens,
        new_tokens=row.generated,
        end=row.end,
    )
    for step, span in working:
        text = step.pieces[slot]
        yield _slice(
            text.strip() or step.phase,
            step.phase,
            slot,
            span,
            request=row.request + 1,
            forward=step.forward,
            state="active",
            token_id=step.tokens[slot],
            text=text,
            end=step.ends[slot],
            **({} if step.device_seconds is None else {"device_seconds": step.device_seconds}),
        )
    for step, span in idle:
        about = {"request": row.request + 1, "forward": step.forward, "state": "idle"}
        yield _slice("idle", "idle", slot, span, **about)


def _slice(name: str, category: str, slot: int, span: Span, **about: Any) -> Event:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": span.start,
        "dur": span.duration,
        "pid": PROCESS,
        "tid": slot + 1,
        "args": about,
    }


def _counted(forwards: list[Forward]) -> Iterator[Event]:
    """Rows that a forward works for, from its start; bytes of the cache, measured at its end."""
    for step, span in forwards:
        yield _counter("active rows", span.start, rows=step.active_rows)
        yield _kv_counter(span.end, step.kv_bytes)
    yield _counter("active rows", forwards[-1].span.end, rows=0)


def _kv_counter(at: int, kv: KVBytes) -> Event:
    return _counter("KV cache bytes", at, live=kv.live, padding=kv.padding, dead=kv.dead)


def _counter(name: str, at: int, **values: int) -> Event:
    return {"name": name, "ph": "C", "ts": at, "pid": PROCESS, "args": values}


def _names(run: Run) -> Iterator[Event]:
    yield _name("process_name", name=f"Batchscope: {caption(run.model)}")
    for slot in range(run.slots):
        yield _name("thread_name", slot, name=f"slot {slot + 1}")
        yield _name("thread_sort_index", slot, sort_index=slot + 1)


def _name(what: str, slot: int | None = None, **about: Any) -> Event:
    thread = {} if slot is None else {"tid": slot + 1}
    return {"name": what, "ph": "M", "pid": PROCESS, **thread, "args": about}


def _microseconds(seconds: float) -> int:
    return round(seconds * MICROSECONDS)

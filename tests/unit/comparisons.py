"""A comparison made by hand, with round figures: every forward of every engine takes a second."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine import schedules
from engine.comparison import Comparison, Entry
from engine.run import Batch, KVBytes, ModelInfo, Request, Run, Settings, Step
from engine.schedules import Job

MODEL = ModelInfo("paper", None, 1000, "float32", "sdpa", "CPU", 2, "2.13.0", "5.24.0")
STARTED_AT = "2026-11-30T02:00:00+00:00"
TUTORIAL = ((10, 15), (30, 10), (5, 20), (20, 12))
"""Prompt tokens and new tokens of the tutorial's four requests."""


def comparison_of(lengths: Sequence[tuple[int, int]], *, slots: int) -> Comparison:
    """All three runs, done, of requests with so many prompt tokens and new tokens."""
    jobs = [Job(index, prompt, new, new) for index, (prompt, new) in enumerate(lengths)]
    return Comparison(
        entries=(
            Entry("serial", _run("serial", jobs, schedules.serial(jobs), 1)),
            Entry("static", _run("static", jobs, schedules.static(jobs, batch_size=slots), slots)),
            Entry(
                "continuous",
                _run("continuous", jobs, schedules.continuous(jobs, slots=slots), slots),
            ),
        ),
        started_at=STARTED_AT,
        status="done",
    )


def long_comparison(*, requests: int, tokens: int, slots: int) -> Comparison:
    """A static run alone, of requests with up to so many new tokens, all of other lengths."""
    jobs = [
        Job(index, 8 + index, tokens, tokens - index * tokens // (2 * requests))
        for index in range(requests)
    ]
    schedule = schedules.static(jobs, batch_size=slots)
    return Comparison(
        entries=(
            Entry("serial", reason="It would be too long."),
            Entry("static", _run("static", jobs, schedule, slots)),
            Entry("continuous", reason="It would be too long."),
        ),
        started_at=STARTED_AT,
        status="done",
    )


def _run(engine: str, jobs: list[Job], schedule: schedules.Schedule, slots: int) -> Run:
    """The record of a schedule, for which a step is a second."""
    batches = list(_batches(engine, jobs, schedule))
    steps = [step for batch in batches for step in _steps(batch, jobs)]
    return Run(
        model=MODEL,
        settings=Settings(engine, slots, "left", chat_template=False),
        requests=tuple(
            Request(job.request, f"prompt {job.request + 1}", job.budget) for job in jobs
        ),
        batches=tuple(batches),
        steps=tuple(sorted(steps, key=lambda step: (step.started, step.batch))),
        texts=tuple("x" * job.generated for job in jobs),
        started_at=STARTED_AT,
        status="done",
    )


def _batches(engine: str, jobs: list[Job], schedule: schedules.Schedule) -> Iterator[Batch]:
    """Who starts together shares a batch, except in a continuous run."""
    stays = sorted(schedule.stays, key=lambda stay: (stay.start, stay.request))
    keys = [stay.request if engine == "continuous" else stay.start for stay in stays]
    for index, key in enumerate(dict.fromkeys(keys)):
        members = [stay for stay, other in zip(stays, keys, strict=True) if other == key]
        requests = tuple(stay.request for stay in members)
        prompts = tuple((7,) * jobs[request].prompt for request in requests)
        yield Batch(index, requests, prompts, "left", float(members[0].start))


def _steps(batch: Batch, jobs: list[Job]) -> Iterator[Step]:
    """A request that stays below its budget ends by an end token."""
    members = [jobs[request] for request in batch.requests]
    ends = ["length" if job.generated == job.budget else "eos" for job in members]
    for forward in range(1, max(job.generated for job in members) + 1):
        working = [forward <= job.generated for job in members]
        yield Step(
            batch=batch.index,
            forward=forward,
            phase="prefill" if forward == 1 else "decode",
            tokens=tuple(9 if works else None for works in working),
            pieces=tuple("x" if works else "" for works in working),
            ends=tuple(
                end if forward == job.generated else None
                for job, end in zip(members, ends, strict=True)
            ),
            started=batch.started + forward - 1,
            seconds=1.0,
            kv_bytes=KVBytes(100 * len(members), 0, 0),
        )


WHOLE = comparison_of(TUTORIAL, slots=2)
UNDER_WAY = replace(
    WHOLE,
    entries=(
        WHOLE.entries[0],
        Entry(
            "static",
            replace(WHOLE.entries[1].run, status="running", steps=WHOLE.entries[1].run.steps[:20]),
        ),
        Entry("continuous"),
    ),
    status="running",
)
"""In the static run's second batch."""

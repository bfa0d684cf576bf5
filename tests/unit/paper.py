"""Runs made by hand, so that their figures can be worked out on paper."""

from dataclasses import replace

from engine.run import Batch, KVBytes, ModelInfo, Request, Run, Settings, Step, until

INFO = ModelInfo("paper", None, 1, "float32", "sdpa", "CPU", 1, "2.13.0", "5.24.0")


def make_run(batches, *, prefill=0.5, decode=1.5 / 9, status="done", pause=0.0) -> Run:
    """A run on paper: `batches` holds, per batch, one (prompt tokens, generated tokens) a row."""
    requests, made, steps, clock = [], [], [], 0.0
    for number, lengths in enumerate(batches):
        seats = tuple(range(len(requests), len(requests) + len(lengths)))
        prompts = tuple((1,) * prompt for prompt, _ in lengths)
        requests += [
            Request(seat, prompts[slot], lengths[slot][1]) for slot, seat in enumerate(seats)
        ]
        made.append(Batch(number, seats, prompts, "left", started=clock))
        for forward in range(1, max(generated for _, generated in lengths) + 1):
            seconds = prefill if forward == 1 else decode
            steps.append(
                Step(
                    batch=number,
                    forward=forward,
                    phase="prefill" if forward == 1 else "decode",
                    tokens=tuple(65 if forward <= n else None for _, n in lengths),
                    pieces=tuple("A" if forward <= n else "" for _, n in lengths),
                    ends=tuple("length" if forward == n else None for _, n in lengths),
                    started=clock,
                    seconds=seconds,
                    kv_bytes=KVBytes(live=forward, padding=2, dead=3),
                )
            )
            clock += seconds
        clock += pause
    return Run(
        model=INFO,
        settings=Settings("static", max(map(len, batches)), "left", chat_template=False),
        requests=tuple(requests),
        batches=tuple(made),
        steps=tuple(steps),
        texts=tuple("A" * generated for lengths in batches for _, generated in lengths),
        started_at="2025-01-01T00:00:00+00:00",
        status=status,
    )


def with_steps(run: Run, change) -> Run:
    """The run with each step changed: `change(step)` gives its other fields."""
    return replace(run, steps=tuple(replace(step, **change(step)) for step in run.steps))


def cut(run: Run, steps: int, status="running") -> Run:
    """The run as it was after so many steps, under way or ended there."""
    now = until(run, steps)
    return now if steps == len(run.steps) else replace(now, status=status)


WORKED = make_run([[(3, 4), (5, 10), (12, 10)]])
"""The worked example of cases.md: 2.0 s, 0.5 s of it prefill."""

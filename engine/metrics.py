"""Figures of a Run: pure functions, defined once (see "What the words mean" in the README)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.run import Batch, End, KVBytes, Run, Step


class Waste(NamedTuple):
    """Wasted slots out of all slots; the fraction is None where there are no slots to waste."""

    wasted: int
    slots: int

    @property
    def fraction(self) -> float | None:
        return self.wasted / self.slots if self.slots else None


def padding_waste(prompt_lengths: Iterable[Sequence[int]]) -> Waste:
    """Prefill padding, sum(S - L_i) / (B * S), from the prompt lengths of each batch."""
    wasted = slots = 0
    for lengths in prompt_lengths:
        width = max(lengths)
        slots += width * len(lengths)
        wasted += width * len(lengths) - sum(lengths)
    return Waste(wasted, slots)


def idle_waste(generated: Iterable[Sequence[int]]) -> Waste:
    """Decode idle, sum(T - n_i) / (B * T), from the generated tokens of each batch's rows.

    Column 1 comes out of the prefill, so where every T is at most 1 nothing was decoded and
    there are no slots: the figure is "n/a".
    """
    batches = [lengths for lengths in generated if lengths]
    if all(max(lengths) <= 1 for lengths in batches):
        return Waste(0, 0)
    slots = sum(max(lengths) * len(lengths) for lengths in batches)
    return Waste(slots - sum(map(sum, batches)), slots)


@dataclass(frozen=True)
class Row:
    """What one request did so far. Times are seconds since the start of the run."""

    request: int
    batch: Batch
    slot: int
    generated: int
    end: End | None
    first_token_at: float | None
    last_token_at: float | None

    @property
    def prompt_tokens(self) -> int:
        return len(self.batch.prompt_ids[self.slot])

    @property
    def waited(self) -> float | None:
        """Seconds from the start of the run to the start of the row's batch."""
        return self.batch.started

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from the start of the row's batch."""
        if self.first_token_at is None or self.batch.started is None:
            return None
        return self.first_token_at - self.batch.started

    @property
    def tpot(self) -> float | None:
        """Time per output token, (t_last - t_first) / (n - 1); None below two tokens."""
        if self.generated < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (self.generated - 1)


def columns(run: Run, batch: int) -> list[Step]:
    """The steps of one batch in order: step k - 1 is column k."""
    return [step for step in run.steps if step.batch == batch]


def rows(run: Run) -> tuple[Row, ...]:
    """One Row per request, in the order of the requests."""
    return tuple(
        _row(run, batch, slot, steps)
        for batch in run.batches
        for steps in [columns(run, batch.index)]
        for slot in range(len(batch.requests))
    )


def _row(run: Run, batch: Batch, slot: int, steps: Sequence[Step]) -> Row:
    generated = sum(step.tokens[slot] is not None for step in steps)
    last = steps[generated - 1] if generated else None
    unfinished: dict[str, End] = {"stopped": "cancelled", "error": "error"}
    return Row(
        request=batch.requests[slot],
        batch=batch,
        slot=slot,
        generated=generated,
        end=(last and last.ends[slot]) or unfinished.get(run.status),
        first_token_at=steps[0].finished if last else None,
        last_token_at=last.finished if last else None,
    )


@dataclass(frozen=True)
class Figures:
    """The figures of a run so far. Seconds and tokens per second; None is "not measured"."""

    rows: tuple[Row, ...]
    prompt_tokens: int
    generated_tokens: int
    wall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    output_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    mean_waited: float | None
    mean_ttft: float | None
    mean_tpot: float | None
    padding: Waste
    idle: Waste
    kv_bytes: KVBytes
    peak_kv_bytes: int


def measure(run: Run) -> Figures:
    """All figures of a finished or running Run.

    Output tok/s is every generated token over the wall time; decode tok/s is the tokens of the
    decode forwards over their time; prompt tok/s is real prompt tokens over prefill time.
    Batches that have not started are in no figure.
    """
    table = rows(run)
    started = {step.batch for step in run.steps}
    seated = [row for row in table if row.batch.index in started]
    prefill_seconds = sum(step.seconds for step in run.steps if step.phase == "prefill")
    decode_seconds = sum(step.seconds for step in run.steps if step.phase == "decode")
    wall_seconds = run.steps[-1].finished if run.steps else 0.0
    prompt_tokens = sum(row.prompt_tokens for row in seated)
    generated = sum(row.generated for row in seated)
    decoded = sum(row.generated - 1 for row in seated if row.generated)
    return Figures(
        rows=table,
        prompt_tokens=prompt_tokens,
        generated_tokens=generated,
        wall_seconds=wall_seconds,
        prefill_seconds=prefill_seconds,
        decode_seconds=decode_seconds,
        output_tokens_per_second=_ratio(generated, wall_seconds),
        decode_tokens_per_second=_ratio(decoded, decode_seconds),
        prompt_tokens_per_second=_ratio(prompt_tokens, prefill_seconds),
        mean_waited=_mean(row.waited for row in seated),
        mean_ttft=_mean(row.ttft for row in seated),
        mean_tpot=_mean(row.tpot for row in seated),
        padding=padding_waste(
            batch.prompt_lengths for batch in run.batches if batch.index in started
        ),
        idle=idle_waste(
            [row.generated for row in seated if row.batch.index == batch.index]
            for batch in run.batches
        ),
        kv_bytes=run.steps[-1].kv_bytes if run.steps else KVBytes(0, 0, 0),
        peak_kv_bytes=max((step.kv_bytes.total for step in run.steps), default=0),
    )


def _ratio(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

"""The record of a run: the engine writes it, everything that is shown derives from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

SCHEMA_VERSION = 2

Phase = Literal["prefill", "decode"]
PaddingSide = Literal["left", "right"]
End = Literal["eos", "length", "stop", "cancelled", "error"]
Status = Literal["running", "done", "stopped", "error"]


@dataclass(frozen=True)
class Sampling:
    """How a row picks its next token. Temperature 0 is greedy; top_p 1, top_k 0, min_p 0 and
    repetition_penalty 1 are off. The penalty counts the row's own prompt and answer, no pads."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Request:
    """One prompt (text or token ids) and what may be generated for it.

    Neither an end token nor a stop string ends the row before `min_new_tokens`. A text that
    contains one of `stop` ends there, without it. `draws` names one of the seed's streams of random
    numbers; None is that of the index.
    """

    index: int
    prompt: str | tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = Sampling()
    seed: int = 0
    ignore_eos: bool = False
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    draws: int | None = None


@dataclass(frozen=True)
class Batch:
    """Requests that share a forward. `prompt_ids[s]` is what slot s was fed, template included.

    `started` is in seconds since the start of the run; None while the batch waits for its turn.
    In a continuous run every request is a batch of its own, which starts when it gets a slot.
    """

    index: int
    requests: tuple[int, ...]
    prompt_ids: tuple[tuple[int, ...], ...]
    padding_side: PaddingSide
    started: float | None = None

    @property
    def prompt_lengths(self) -> tuple[int, ...]:
        """L_i: real prompt tokens of each slot."""
        return tuple(len(ids) for ids in self.prompt_ids)

    @property
    def padded_length(self) -> int:
        """S: the width of the prefill."""
        return max(self.prompt_lengths)

    @property
    def has_pads(self) -> bool:
        """Whether the prefill pads a row."""
        return min(self.prompt_lengths) < self.padded_length


@dataclass(frozen=True)
class KVBytes:
    """Bytes of the KV cache after a forward, by what holds them.

    live: real tokens of rows that this forward worked for; padding: their pads;
    dead: everything held by rows that had already ended. In a continuous run they are those of
    the step's own request, whose pages end in places that hold no token yet: they are its padding.
    """

    live: int
    padding: int
    dead: int

    @property
    def total(self) -> int:
        return self.live + self.padding + self.dead


@dataclass(frozen=True)
class Step:
    """One forward of one batch. Forward 1 is the prefill; forward k emits column k.

    Where one forward serves several batches, as in a continuous run, it is a step of each of them:
    they follow one another, with the same `started` and `seconds`. A prompt that is read in several
    forwards has its first step from the last of these.

    `tokens[s]` is the id that slot s emitted, None once it had ended; `pieces[s]` the text
    that became readable with it ("" while the bytes of a character are incomplete); `ends[s]`
    why slot s ended with this token. `started` is in seconds since the start of the run, and
    `seconds` lasts until the tokens were on the host, read as text. `device_seconds` is what the
    forward and the sampling took on a CUDA device; None where the clock of the host says it all.
    """

    batch: int
    forward: int
    phase: Phase
    tokens: tuple[int | None, ...]
    pieces: tuple[str, ...]
    ends: tuple[End | None, ...]
    started: float
    seconds: float
    kv_bytes: KVBytes
    device_seconds: float | None = None

    @property
    def active_rows(self) -> int:
        """How many rows the forward worked for: each of them emitted a token."""
        return sum(token is not None for token in self.tokens)

    @property
    def finished(self) -> float:
        """Seconds since the start of the run at which the tokens were on the host."""
        return self.started + self.seconds


@dataclass(frozen=True)
class ModelInfo:
    """What ran: enough to caption a picture and to run it again.

    `dtype` is that of the weights, `kv_dtype` that of the cache; `kv_bytes_per_token` is what a
    token holds in the cache as long as it is inside every sliding window. Both are None in
    records of version 1.
    """

    name: str
    revision: str | None
    parameters: int
    dtype: str
    attention: str
    device: str
    threads: int
    torch: str
    transformers: str
    kv_dtype: str | None = None
    kv_bytes_per_token: int | None = None


@dataclass(frozen=True)
class Settings:
    """How the requests were arranged. A batch has at most `batch_size` rows; in a continuous run,
    so many requests at most have a slot at a time."""

    engine: Literal["static", "serial", "continuous"]
    batch_size: int
    padding_side: PaddingSide
    chat_template: bool


@dataclass(frozen=True)
class Run:
    """Everything that happened, in plain data. `texts[i]` is the answer to request i so far.

    `queued_seconds` is how long the run stood in line before it started. `kv_estimate` is what
    the KV cache was said to hold at most, in bytes, before the run; None if nothing was said.
    """

    model: ModelInfo
    settings: Settings
    requests: tuple[Request, ...]
    batches: tuple[Batch, ...]
    steps: tuple[Step, ...]
    texts: tuple[str, ...]
    started_at: str
    status: Status
    error: str | None = None
    queued_seconds: float = 0.0
    kv_estimate: int | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def slots(self) -> int:
        """How many slots a picture needs: the rows of the largest batch."""
        return max(len(batch.requests) for batch in self.batches)


def until(run: Run, steps: int) -> Run:
    """The run as it stood after so many of its steps; with all of them, the run itself."""
    if not 0 <= steps <= len(run.steps):
        raise ValueError(f"step {steps} of {len(run.steps)}")
    if steps == len(run.steps):
        return run
    kept = run.steps[:steps]
    started = {step.batch for step in kept}
    return replace(
        run,
        batches=tuple(
            batch if batch.index in started else replace(batch, started=None)
            for batch in run.batches
        ),
        steps=kept,
        texts=texts_after(run, kept),
        status="running",
        error=None,
    )


def texts_after(run: Run, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """What of each answer was readable after these steps."""
    pieces: list[list[str]] = [[] for _ in run.requests]
    for step in steps:
        for request, piece in zip(run.batches[step.batch].requests, step.pieces, strict=True):
            pieces[request].append(piece)
    return tuple("".join(text) for text in pieces)

"""Two calls for scripts, in the shape of nanoLLMServe's: `generate_one` and `generate_batch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.metrics import Row, columns, rows
from engine.models import LanguageModel
from engine.requests import DEFAULT_BUDGET, make_requests
from engine.run import PaddingSide, Run
from engine.static import OnStep, StaticBatchEngine


@dataclass(frozen=True)
class GenerationResult:
    """One prompt's answer. Times in seconds, counted from the start of the row's batch.

    generated_token_ids includes the end token, which `text` leaves out. `finished` is True if
    the row ended by an end token, False at its budget. decode_seconds sums the decode forwards
    up to the row's own last token; elapsed_seconds ends with that token. tpot_seconds is None
    below two tokens.
    """

    prompt: str
    text: str
    generated_token_ids: list[int]
    prompt_tokens: int
    generated_tokens: int
    elapsed_seconds: float
    ttft_seconds: float
    tpot_seconds: float | None
    prefill_seconds: float
    decode_seconds: float
    finished: bool

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over elapsed seconds, this row alone."""
        return self.generated_tokens / self.elapsed_seconds


def generate_one(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    *,
    max_new_tokens: int = DEFAULT_BUDGET,
    temperature: float = 0.0,
    seed: int | None = None,
    on_step: OnStep | None = None,
) -> GenerationResult:
    """Generate for one prompt: a batch of one."""
    return generate_batch(
        model,
        tokenizer,
        [prompt],
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        on_step=on_step,
    )[0]


def generate_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    max_new_tokens: int | Sequence[int] = DEFAULT_BUDGET,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    ignore_eos: bool = False,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
    batch_size: int | None = None,
    padding_side: PaddingSide = "left",
    chat_template: bool = False,
    on_step: OnStep | None = None,
) -> list[GenerationResult]:
    """Generate for all prompts in one static batch, or in batches of `batch_size`.

    `max_new_tokens` is one number or one per prompt. Results are in the order of the prompts.
    Raises RequestError before any forward, RunError if the run breaks.
    """
    requests = make_requests(
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        ignore_eos=ignore_eos,
        min_new_tokens=min_new_tokens,
        stop=stop,
    )
    engine = StaticBatchEngine(
        LanguageModel(model, tokenizer, name=model.config.name_or_path or "model"),
        batch_size=len(requests) if batch_size is None else batch_size,
        padding_side=padding_side,
        chat_template=chat_template,
    )
    run = engine.run(requests, on_step=on_step)
    return [_result(run, row) for row in rows(run)]


def _result(run: Run, row: Row) -> GenerationResult:
    steps = columns(run, row.batch.index)[: row.generated]
    return GenerationResult(
        prompt=run.requests[row.request].prompt,
        text=run.texts[row.request],
        generated_token_ids=[step.tokens[row.slot] for step in steps],
        prompt_tokens=row.prompt_tokens,
        generated_tokens=row.generated,
        elapsed_seconds=row.last_token_at - row.batch.started,
        ttft_seconds=row.ttft,
        tpot_seconds=row.tpot,
        prefill_seconds=steps[0].seconds,
        decode_seconds=sum(step.seconds for step in steps[1:]),
        finished=row.end in ("eos", "stop"),
    )

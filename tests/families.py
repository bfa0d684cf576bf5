"""The proof on random batches: a row's ids equal its solo run and transformers' generate, whatever
is beside it. Tiny random models in float32; the exit status is 1 if a row differs.

python -m tests.families --batches 500
"""

from __future__ import annotations

import argparse
import random
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import transformers

import engine.graphs
from engine.masks import sliding_window
from engine.models import LanguageModel
from engine.run import End, PaddingSide, Request, Run, Sampling
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.captured import captured, record
from tests.tiny import BOS, EOS, VOCABULARY, byte_tokenizer, row_ids, tiny_lm, token_ids

END_IDS = [EOS, *range(5, 250, 18)]
"""Many, so that random rows end by themselves at every length."""
LARGEST_BATCH = 8
LARGEST_BUDGET = 24
LONGEST_PROMPT = 40
SHORT_PROMPT = 16
"""Half of the prompts are this short: they cross the tiny models' window of 8 while decoding."""


def ends_often(lm: LanguageModel, end_ids: list[int] = END_IDS) -> LanguageModel:
    lm.model.generation_config.eos_token_id = end_ids
    return lm


def with_tokenizer(end_ids: list[int] = END_IDS, **options: bool) -> LanguageModel:
    """A Llama with another tokenizer."""
    model = tiny_lm(vocab_size=BOS + 1).model
    return ends_often(LanguageModel(model, byte_tokenizer(**options), name="tiny-llama"), end_ids)


FAMILIES: dict[str, Callable[[], LanguageModel]] = {
    "llama": lambda: ends_often(tiny_lm("llama")),
    "qwen3": lambda: ends_often(tiny_lm("qwen3")),
    "gpt2": lambda: ends_often(tiny_lm("gpt2")),
    "gemma3": lambda: ends_often(tiny_lm("gemma3")),
    "mistral": lambda: ends_often(tiny_lm("mistral")),
    "mixtral": lambda: ends_often(tiny_lm("mixtral")),
    "qwen3_moe": lambda: ends_often(tiny_lm("qwen3_moe")),
    # One more end token is the tokenizer's alone.
    "several-eos": lambda: with_tokenizer(END_IDS[1:], pad=True),
    "no-pad-no-bos": lambda: with_tokenizer(),
    "bos": lambda: with_tokenizer(bos=True),
    "appends-eos": lambda: with_tokenizer(bos=True, append_eos=True),
}


class Answer(NamedTuple):
    """What a row emitted, its end token included, and why it ended."""

    ids: list[int]
    end: End


@dataclass
class Tally:
    """What came out of a family's batches; what differs is told in a line each."""

    window: int | None
    sides: list[PaddingSide]
    batches: int = 0
    rows: int = 0
    crossed: int = 0
    compared: int = 0
    ends: Counter[End] = field(default_factory=Counter)
    not_solo: list[str] = field(default_factory=list)
    not_generate: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.not_solo and not self.not_generate


def prove(
    lm: LanguageModel, *, batches: int, seed: int, batched: LanguageModel | None = None
) -> Tally:
    """Run random batches drawn from a pool of random requests; every other batch from those with
    options. What each request answers alone is found out once. `batched` runs the batches, where
    another path of decoding is to be proved equal."""
    rng = random.Random(seed)
    pool = [
        random_request(rng, index, options=index % 2 == 1) for index in range(batches // 2 + 16)
    ]
    alone = answers(SerialEngine(lm).run(pool))
    expected = [generate_ids(lm, request) for request in pool]
    windows = [sliding_window(layer) for layer in lm.new_cache().layers]
    window = next((columns for columns in windows if columns is not None), None)
    tally = Tally(window, ["left"] if window else ["left", "right"])
    for number, (batch, side) in enumerate(random_batches(rng, pool, batches, tally.sides)):
        static = StaticBatchEngine(batched or lm, batch_size=LARGEST_BATCH, padding_side=side)
        run = static.run(batch)
        tally.batches += 1
        for request, answer, prompt_tokens in zip(
            batch, answers(run), run.batches[0].prompt_lengths, strict=True
        ):
            tally.rows += 1
            tally.ends[answer.end] += 1
            if window and prompt_tokens <= window < prompt_tokens + len(answer.ids):
                tally.crossed += 1
            told = f"batch {number} ({len(batch)} rows, {side}): {request}: {answer}"
            if answer != alone[request.index]:
                tally.not_solo.append(f"{told}, alone {alone[request.index]}")
            if (ids := expected[request.index]) is not None:
                tally.compared += 1
                if answer.ids != ids:
                    tally.not_generate.append(f"{told}, generate {ids}")
    return tally


def random_request(rng: random.Random, index: int, *, options: bool) -> Request:
    """Text or ids, a few tokens or many, and with `options` other ways to pick and to end."""
    length = rng.randint(1, rng.choice([SHORT_PROMPT, LONGEST_PROMPT]))
    first = rng.choice(string.ascii_letters)
    text = first + "".join(rng.choices(string.printable[:95], k=length - 1))
    ids = tuple(rng.choices(range(VOCABULARY), k=length))
    budget = rng.randint(1, LARGEST_BUDGET)
    request = Request(index, rng.choice([text, ids]), budget)
    if not options:
        return request
    sampling = Sampling(
        temperature=rng.choice([0.0, 0.0, 0.7]),
        top_p=rng.choice([1.0, 0.8]),
        top_k=rng.choice([0, 20]),
        min_p=rng.choice([0.0, 0.05]),
        repetition_penalty=rng.choice([1.0, 0.8, 1.3, 2.0]),
    )
    return Request(
        index,
        request.prompt,
        budget,
        sampling,
        seed=rng.getrandbits(32),
        min_new_tokens=rng.choice([0, rng.randint(0, budget)]),
        stop=rng.choice([(), (), tuple(rng.sample(string.ascii_lowercase, k=8))]),
    )


def random_batches(
    rng: random.Random, pool: list[Request], batches: int, sides: list[PaddingSide]
) -> Iterator[tuple[list[Request], PaddingSide]]:
    """Alternately of plain requests and of those with options, on every side in turn. A request
    keeps its index, since a sampled row draws with it."""
    for number in range(batches):
        among = pool[number % 2 :: 2]
        side = sides[number // 2 % len(sides)]
        yield rng.sample(among, k=rng.randint(1, LARGEST_BATCH)), side


def answers(run: Run) -> list[Answer]:
    ends: dict[int, End] = {}
    for step in run.steps:
        for request, end in zip(run.batches[step.batch].requests, step.ends, strict=True):
            if end is not None:
                ends[request] = end
    return [Answer(ids, ends[request]) for request, ids in enumerate(row_ids(run))]


def generate_ids(lm: LanguageModel, request: Request) -> list[int] | None:
    """What transformers' own generate says; None where it draws other random numbers or has
    another idea of stop strings. The prompt's ids are made without the engine."""
    if request.sampling.temperature > 0 or request.stop:
        return None
    prompt = request.prompt
    if isinstance(prompt, str):
        begin = [] if lm.tokenizer.bos_token_id is None else [lm.tokenizer.bos_token_id]
        prompt = begin + token_ids(prompt)
    ids = torch.tensor([prompt], device=lm.device)
    with torch.inference_mode():
        out = lm.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            min_new_tokens=request.min_new_tokens,
            repetition_penalty=request.sampling.repetition_penalty,
            eos_token_id=sorted(lm.end_ids),
            pad_token_id=lm.pad_id,
            do_sample=False,
        )
    return out[0, ids.shape[1] :].tolist()


COLUMNS = (
    f"{'family':14} {'window':>6} {'padding':>11} {'batches':>7} {'rows':>5} {'eos':>5} "
    f"{'length':>6} {'stop':>5} {'crossed':>7} {'not solo':>8} {'not generate':>15} {'seconds':>7}"
)


def line(name: str, tally: Tally, seconds: float) -> str:
    ends = tally.ends
    generate = f"{len(tally.not_generate)} of {tally.compared}"
    return (
        f"{name:14} {tally.window or '-':>6} {' '.join(tally.sides):>11} {tally.batches:7} "
        f"{tally.rows:5} {ends['eos']:5} {ends['length']:6} {ends['stop']:5} "
        f"{tally.crossed if tally.window else '-':>7} {len(tally.not_solo):8} {generate:>15} "
        f"{seconds:7.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batches", type=int, default=500, help="per family (default: 500)")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--captured",
        action="store_true",
        help="decode as on a CUDA device: steps captured (here: recorded) and one ahead",
    )
    asked = parser.parse_args()
    engine.graphs.capture = record
    torch.set_num_threads(1)  # such small products are faster on one
    transformers.utils.logging.set_verbosity_error()
    print(COLUMNS)
    status = 0
    for name in asked.family or FAMILIES:
        started = time.perf_counter()
        lm = FAMILIES[name]()
        tally = prove(
            lm,
            batches=asked.batches,
            seed=asked.seed,
            batched=captured(lm) if asked.captured else None,
        )
        print(line(name, tally, time.perf_counter() - started), flush=True)
        for told in (tally.not_solo + tally.not_generate)[:5]:
            print(f"  {told}", file=sys.stderr)
        status |= not tally.holds
    return status


if __name__ == "__main__":
    sys.exit(main())

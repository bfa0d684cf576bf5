"""Many OpenAI clients at the same time, each with its own question: does each get its own answer,
and how full are the batches that they share?

python -m tests.callers --calls 200      the default model on this machine
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from openai import AsyncOpenAI

from engine import StaticBatchEngine, load_model, make_requests
from engine.models import LanguageModel
from tests.clients import Served, served


@dataclass(frozen=True)
class Answered:
    """What one client got: the text, how many rows its batch had, and how long it waited for it
    and for all of the answer (seconds)."""

    text: str
    rows: int
    waited: float
    seconds: float


def questions(calls: int) -> list[str]:
    return [f"Repeat {number * 37 % 1000:03}" for number in range(calls)]


def ask_all(url: str, model: str, asked: Sequence[str], *, budget: int) -> list[Answered]:
    """Each question as a chat of its own, all at the same time."""

    async def ask(client: AsyncOpenAI, question: str) -> Answered:
        began = time.perf_counter()
        answer = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=budget,
            temperature=0,
        )
        return Answered(
            answer.choices[0].message.content,
            answer.batchscope["batch_rows"],
            answer.batchscope["waited_seconds"],
            time.perf_counter() - began,
        )

    async def ask_together() -> list[Answered]:
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600
        ) as client:
            return list(await asyncio.gather(*(ask(client, question) for question in asked)))

    with ThreadPoolExecutor(1) as thread:  # the caller's may have a loop of its own
        return thread.submit(lambda: asyncio.run(ask_together())).result()


def texts_alone(lm: LanguageModel, asked: Sequence[str], *, budget: int) -> list[str]:
    """What the engine says to each question by itself."""
    engine = StaticBatchEngine(lm, batch_size=1, chat_template=True)
    return list(engine.run(make_requests(asked, max_new_tokens=budget)).texts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.callers", description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--one-by-one", type=int, default=10, help="calls that are timed alone")
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    lm = load_model(dtype="float32")
    asked, budget = questions(options.calls), options.max_tokens
    expected = texts_alone(lm, asked, budget=budget)
    with served(lm, window=0.05, batch_size=options.batch_size) as here:
        _report(here, lm, asked, expected, options)


def _report(
    here: Served,
    lm: LanguageModel,
    asked: Sequence[str],
    expected: Sequence[str],
    options: argparse.Namespace,
) -> None:
    budget = options.max_tokens
    ask_all(here.url, lm.name, asked[:1], budget=budget)
    began = time.perf_counter()
    answers = ask_all(here.url, lm.name, asked, budget=budget)
    together = time.perf_counter() - began
    few = asked[: options.one_by_one]
    began = time.perf_counter()
    for question in few:
        ask_all(here.url, lm.name, [question], budget=budget)
    alone = (time.perf_counter() - began) / len(few) * len(asked)
    right = sum(answer.text == text for answer, text in zip(answers, expected, strict=True))
    waits = sorted(answer.waited for answer in answers)
    print(f"{len(answers)} calls in {together:.1f} s, {right} with the text of a solo run")
    print(f"rows per batch: {statistics.mean(answer.rows for answer in answers):.1f} on average")
    print(f"waited: median {statistics.median(waits):.1f} s, longest {waits[-1]:.1f} s")
    print(f"one by one: {alone:.1f} s ({len(few)} timed), {alone / together:.1f} times as long")


if __name__ == "__main__":
    main()

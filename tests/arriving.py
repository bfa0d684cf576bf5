"""OpenAI clients that come at random, and the same arrivals in the simulator: are its waits right?

python -m tests.arriving --per-second 0.7 2    the default model on this machine, a minute each

The page serves the endpoints in a process of its own, to clients of which each asks for one answer.
The simulator gets the moments at which they asked, the lengths of what they asked and got, and the
prices of the steps: nothing else. These are timed twice before: in batches that run by themselves,
and as a client sees them that is alone. What the second adds is what serving costs, on a machine
whose cores the server shares with the clients; what is left is how right the simulator is.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from openai import AsyncOpenAI, OpenAI, OpenAIError

from engine.arrivals import Load, Service, poisson, static
from engine.capacity import Times, times_of
from engine.costs import CostModel, FitError, fit
from tests.callers import questions
from tests.serving import wait_for

ROOT = Path(__file__).parents[1]
NAME = "smollm2-135m"


class Heard(NamedTuple):
    """What one client had: when it asked, and had its first and its last piece (seconds since the
    first asked), the tokens of its prompt and its answer, and the rows of its batch."""

    asked: float
    first: float
    last: float
    prompt: int
    generated: int
    rows: int


def measured_costs(*, budget: int, batch_size: int) -> CostModel:
    """Prices from batches that run by themselves in this process."""
    from engine import StaticBatchEngine, load_model, make_requests

    lm = load_model(NAME, dtype="float32", device="cpu")
    runs = []
    for rows in _sizes(batch_size):
        engine = StaticBatchEngine(lm, batch_size=rows, chat_template=True)
        requests = make_requests(questions(rows), max_new_tokens=budget, ignore_eos=True)
        engine.run(requests[:1])
        runs += [engine.run(requests), engine.run(requests)]
    return fit(runs)


def served_costs(url: str, *, budget: int, batch_size: int, window: float) -> CostModel:
    """Prices as a client sees them whose call is a batch of its own: the first piece comes after a
    prefill, and the window where the batch is not full."""
    steps, prefills, tokens = [], [], []
    for rows in _sizes(batch_size):
        seen = [ask(url, [0.0], budget=budget, choices=rows)[0] for _ in range(3)]
        steps.append((rows, statistics.median(one.last - one.first for one in seen) / (budget - 1)))
        first = statistics.median(one.first - one.asked for one in seen)
        prefills.append(first - (window if rows < batch_size else 0.0))
        tokens.append(rows * seen[0].prompt)
    prompt_token, prefill = np.polyfit(tokens, prefills, 1).tolist()
    nothing = FitError(len(steps), 0.0, 0.0, 0.0)
    return CostModel(tuple(steps), max(prefill, 0.0), max(prompt_token, 0.0), 0.0, nothing)


def _sizes(batch_size: int) -> list[int]:
    return [2**power for power in range(batch_size.bit_length())]


@contextmanager
def endpoints(*, batch_size: int, window_ms: int) -> Iterator[str]:
    """The page with OpenAI's endpoints in a process of its own -> their address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = {"--port": port, "--batch-size": batch_size, "--batch-window-ms": window_ms}
    command = [sys.executable, "app.py", "--openai", "--dtype", "float32", "--device", "cpu"]
    command += [str(part) for flag in flags.items() for part in flag]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        client = OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
        wait_for(lambda: _answers(client), seconds=60)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(client: OpenAI) -> bool:
    try:
        client.completions.create(model=NAME, prompt="Hi", max_tokens=2)
    except OpenAIError:
        return False
    return True


def ask(
    url: str, arrivals: Sequence[float], *, budget: int, choices: int | None = None
) -> list[Heard]:
    """A client for each arrival, which streams one chat; one that asks for so many choices has them
    all of the same length."""
    same = {"extra_body": {"ignore_eos": True}, "n": choices} if choices else {}

    async def one(client: AsyncOpenAI, began: float, at: float, question: str) -> Heard:
        await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
        asked, first, usage, rows = time.perf_counter(), None, None, 0
        stream = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": question}],
            max_tokens=budget,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            **same,
        )
        async for piece in stream:
            first = first or time.perf_counter()
            usage = piece.usage or usage
            rows = (piece.model_extra.get("batchscope") or {}).get("batch_rows", rows)
        over = time.perf_counter()
        return Heard(
            asked - began,
            first - began,
            over - began,
            usage.prompt_tokens,
            usage.completion_tokens,
            rows,
        )

    async def all_of_them() -> list[Heard]:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:
            began = time.perf_counter()
            asked = zip(arrivals, questions(len(arrivals)), strict=True)
            return list(await asyncio.gather(*(one(client, began, *each) for each in asked)))

    return asyncio.run(all_of_them())


def simulated(
    heard: Sequence[Heard], costs: CostModel, *, batch_size: int, window: float
) -> Service:
    """The same requests, served on paper."""
    asked = sorted(heard)
    columns = ([getattr(one, name) for one in asked] for name in ("asked", "prompt", "generated"))
    return static(Load(*map(np.array, columns)), costs, batch_size=batch_size, window=window)


def measured_times(heard: Sequence[Heard]) -> Times:
    first = np.array([one.first - one.asked for one in heard])
    latency = np.array([one.last - one.asked for one in heard])
    ranks = [np.sort(first), np.sort(first), np.sort(latency)]
    at = [-(-percent * len(heard) // 100) - 1 for percent in (50, 95, 95)]
    return Times(*(float(values[rank]) for values, rank in zip(ranks, at, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.arriving", description=__doc__)
    parser.add_argument("--per-second", nargs="+", type=float, default=[0.7, 2.0])
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--batch-window-ms", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    size, window = options.batch_size, options.batch_window_ms / 1000
    alone = measured_costs(budget=options.max_tokens, batch_size=size)
    with endpoints(batch_size=size, window_ms=options.batch_window_ms) as url:
        as_served = served_costs(url, budget=options.max_tokens, batch_size=size, window=window)
        print(f"alone:     {alone.formula}\nas served: {as_served.formula}\n{HEAD}", flush=True)
        for per_second in options.per_second:
            calls = max(1, round(per_second * options.seconds))
            arrivals = poisson(per_second=per_second, requests=calls, seed=options.seed)
            heard = ask(url, arrivals.tolist(), budget=options.max_tokens)
            batches = sum(1 / one.rows for one in heard)
            print(line(per_second, calls, "measured", measured_times(heard), batches), flush=True)
            for who, costs in (("steps alone", alone), ("as served", as_served)):
                paper = simulated(heard, costs, batch_size=size, window=window)
                told = line(per_second, calls, f"computed, {who}", times_of(paper), paper.batches)
                print(told, flush=True)


HEAD = (
    f"{'a second':>9}{'calls':>7}  {'':<22}{'first token':>12}{'p95':>9}{'latency p95':>13}"
    f"{'rows per batch':>16}"
)


def line(per_second: float, calls: int, who: str, times: Times, batches: float) -> str:
    first, late, latency = times
    told = f"{first:>10.2f} s{late:>7.2f} s{latency:>11.2f} s{calls / batches:>16.2f}"
    return f"{per_second:>9}{calls:>7}  {who:<22}{told}"


if __name__ == "__main__":
    main()

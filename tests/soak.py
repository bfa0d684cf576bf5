"""Many runs in one server process, some of them stopped, left or broken: does anything pile up?

python -m tests.soak --runs 300            a tiny random model, minutes
python -m tests.soak --runs 300 --default  the default model in float32, much longer
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from app import build_demo
from engine import StaticBatchEngine, load_model
from engine.active import ActiveBatch
from engine.models import LanguageModel
from engine.requests import make_requests
from engine.shelf import ModelShelf
from engine.turns import turns_on
from tests.serving import Visitor, rows_of, wait_for
from tests.tiny import row_ids, tiny_lm

ROOT = Path(__file__).parents[1]
WORDS = ["slot", "batch", "row", "pad", "step", "token", "cache", "idle", "queue", "stop", "the"]
KINDS = {3: "stopped", 6: "left", 9: "broken"}
"""What becomes of every tenth run, by the last digit of its number."""
EVERY = 50
"""Runs between two lines of the report."""
MOST_GROWTH = 0.02


class Server:
    """A served page in a process of its own, and what it says about itself."""

    def __init__(self, *, default: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak", "--serve", *["--default"] * default],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": self.folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # tracebacks of the runs that are made to break
            text=True,
        )
        self.url, self.model = json.loads(self.process.stdout.readline())

    def counts(self) -> dict[str, Any]:
        """What is alive in the server now; `flags` are the files of its stop flags."""
        told = self._ask("counts")
        return told | {"flags": len(list(Path(self.folder.name).glob("batchscope-run-*")))}

    def tensors(self) -> int:
        """Tensors that are alive in the server."""
        return self._ask("tensors")

    def resident(self) -> int:
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])

    def _ask(self, what: str) -> Any:
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.folder.cleanup()


@contextmanager
def server(*, default: bool = False) -> Iterator[Server]:
    here = Server(default=default)
    try:
        yield here
    finally:
        here.close()


class Soak:
    """Sends run after run to a server and checks each; `steps_after_leaving` is how many
    forwards followed at most once a visitor had closed the connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.steps_after_leaving = 0

    def run(self, number: int) -> None:
        """One run by a new visitor, until the device is free again. No forward belongs to none."""
        kind = KINDS.get(number % 10, "done")
        before = self.server.counts()["forwards"]
        visitor = Visitor(self.server.url)
        prompts, budgets = asked(number, kind)
        visitor.join(rows_of(prompts, budgets), self.server.model, ignore_eos=True)
        if kind == "left":
            self._leave(visitor)
            self.wait_until_free()
        else:
            run = self._watch(visitor, stops=kind == "stopped")
            assert run.status == {"broken": "error"}.get(kind, kind), (number, run.status)
            assert not run.error or "odd weather" in run.error
            forwards = self.server.counts()["forwards"] - before
            assert forwards == len(run.steps) + (kind == "broken"), (number, forwards)
        visitor.http.close()

    def wait_until_free(self) -> None:
        wait_for(lambda: self.server.counts()["line"] == 0)

    def _watch(self, visitor: Visitor, *, stops: bool) -> Any:
        for frame in visitor.frames():
            if stops and frame.drawn and frame.stage["logs"][0]:
                visitor.stop()
                stops = False
        return frame.record

    def _leave(self, visitor: Visitor) -> None:
        with visitor.messages() as messages:
            for message, _ in messages:
                if message["msg"] == "process_generating" and self.server.counts()["line"]:
                    break
        left_at = self.server.counts()["forwards"]
        self.wait_until_free()
        after = self.server.counts()["forwards"] - left_at
        self.steps_after_leaving = max(self.steps_after_leaving, after)


def asked(number: int, kind: str) -> tuple[list[str], list[int]]:
    """The prompts of a run and their token budgets: other ones each time."""
    random_of = random.Random(number)
    prompts = [
        f"{number} " + " ".join(random_of.choices(WORDS, k=random_of.randint(1, 12)))
        for _ in range(random_of.randint(1, 6))
    ]
    budgets = [random_of.randint(10, 40) for _ in prompts]
    if kind == "broken":
        prompts[0] = f"raise at {random_of.randint(1, 10)}: {prompts[0]}"
    elif kind != "done":
        prompts[0] = f"slowly: {prompts[0]}"
        budgets[0] = 400
    return prompts, budgets


def matches_solo(server: Server, lm: LanguageModel, number: int) -> bool:
    """Whether each row of a run on the server has the ids of its run alone, in this process."""
    prompts, budgets = asked(number, "done")
    visitor = Visitor(server.url)
    run = visitor.run(rows_of(prompts, budgets), server.model, ignore_eos=True)[-1].record
    engine = StaticBatchEngine(lm)
    alone = [
        row_ids(engine.run(make_requests([prompt], max_new_tokens=budget, ignore_eos=True)))[0]
        for prompt, budget in zip(prompts, budgets, strict=True)
    ]
    return row_ids(run) == alone


def served_lm(*, default: bool) -> LanguageModel:
    return load_model(dtype="float32", device="cpu") if default else tiny_lm()


def serve(*, default: bool) -> None:
    """The server's side: its address, then a line of JSON for each question that is read."""
    torch.set_num_threads(1)
    lm = served_lm(default=default)
    forwards = obey(lm)
    shelf = ModelShelf([lm.name])
    shelf.add(lm)
    demo = build_demo(shelf)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    print(json.dumps([url.rstrip("/"), lm.name]), flush=True)
    for question in sys.stdin:
        if question.strip() == "tensors":
            gc.collect()
            print(sum(torch.is_tensor(thing) for thing in gc.get_objects()), flush=True)
            continue
        queue = demo._queue
        counts = {
            "forwards": forwards[0],
            "line": len(turns_on(lm.device)),
            "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208, a path would open one more
            "connections": sum(
                connection.status != psutil.CONN_LISTEN
                for connection in psutil.Process().net_connections("tcp")
            ),
            "sessions": len(demo.app.state_holder.session_data),
            "queues": len(queue.pending_messages_per_session),
            "events": len(queue.event_ids_to_events),
            "iterators": len(demo.app.iterators),
        }
        print(json.dumps(counts), flush=True)


def obey(lm: LanguageModel) -> list[int]:
    """Make batches do what a prompt says: "raise at k" (a forward of its batch) or "slowly" ->
    [forwards so far]."""
    forwards, raises_in, seconds = [0], [0], [0.0]
    step = ActiveBatch.step

    def obedient(rows: ActiveBatch) -> None:
        forwards[0] += 1
        if rows.forwards == 0:
            text = " ".join(lm.tokenizer.batch_decode(rows.batch.prompt_ids))
            told = re.search(r"raise at (\d+)", text)
            raises_in[0] = int(told[1]) if told else 0
            seconds[0] = 0.01 if "slowly" in text else 0.0
        time.sleep(seconds[0])
        raises_in[0] -= 1
        if raises_in[0] == 0:
            raise RuntimeError("odd weather")
        step(rows)

    ActiveBatch.step = obedient
    return forwards


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--default", action="store_true", help="the default model, not a tiny one")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(default=options.default)
        return 0
    if options.runs < 2 * EVERY:
        parser.error(f"--runs must be at least {2 * EVERY}: memory is compared from run {EVERY} on")
    with server(default=options.default) as here:
        soak, resident = Soak(here), {}
        for number in range(1, options.runs + 1):
            soak.run(number)
            if number % EVERY == 0:
                resident[number] = here.resident()
                print(f"run {number}: {resident[number] / 1e6:.1f} MB, {here.counts()}", flush=True)
        first, last = min(resident), max(resident)
        growth = resident[last] / resident[first] - 1
        print(f"forwards after a visitor had left: at most {soak.steps_after_leaving}")
        print(f"resident memory, run {first} to run {last}: {growth:+.2%}")
        right = matches_solo(here, served_lm(default=options.default), options.runs + 1)
        print(f"run {options.runs + 1} equals its solo runs: {right}")
    return 0 if right and abs(growth) <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())

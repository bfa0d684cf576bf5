"""The page on a ZeroGPU host: the engine's loop in a forked worker, everything pickled."""

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine import StaticBatchEngine
from engine.requests import make_requests
from tests.page.zero_gpu.host import HELLO
from tests.serving import Visitor, rows_of, wait_for
from tests.tiny import EOS, scripted_lm

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m"


class Space:
    """A host in a process of its own, and what happened in its workers."""

    def __init__(self, events: Path) -> None:
        self.events = events
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.page.zero_gpu.host"],
            cwd=ROOT,
            env=os.environ
            | {
                "SPACES_ZERO_GPU": "true",
                "PYTHONPATH": str(ROOT / "tests/page/zero_gpu"),
                "EVENTS": str(events),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip().rstrip("/")

    def happened(self) -> list[list[str]]:
        return [line.split() for line in self.events.read_text().splitlines()]

    def count(self, event: str) -> int:
        return Counter(words[0] for words in self.happened())[event]

    def worker_is_gone(self) -> bool:
        return self.count("start") == self.count("end")


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    events = tmp_path_factory.mktemp("space") / "events"
    events.touch()
    space = Space(events)
    yield space
    space.process.terminate()
    space.process.wait()


@pytest.fixture
def visitor(space):
    space.events.write_text("")
    yield Visitor(space.url)
    wait_for(space.worker_is_gone)


def without_clock(run):
    """What does not depend on when and in which process a run was made."""
    return replace(
        run,
        model=replace(run.model, threads=0),
        batches=tuple(replace(batch, started=0.0) for batch in run.batches),
        steps=tuple(replace(step, started=0.0, seconds=0.0) for step in run.steps),
        started_at="",
        queued_seconds=0.0,
    )


def test_a_run_streams_out_of_the_fork_and_equals_one_without(space, visitor):
    frames = visitor.run(rows_of(["first", "second prompt"], 40), MODEL, seed="5")
    counts = [len(frame.tokens[0]) for frame in frames if frame.drawn]
    assert len(set(counts)) >= 5
    assert counts == sorted(counts)
    assert (space.count("start"), space.count("forward")) == (1, 40)
    lm = scripted_lm([HELLO, [*HELLO[:4], EOS]])
    requests = make_requests(["first", "second prompt"], max_new_tokens=40, seed=5)
    here = StaticBatchEngine(lm, batch_size=4).run(requests)
    assert without_clock(frames[-1].record) == without_clock(here)
    assert frames[-1].run_button["interactive"]


def test_stop_reaches_the_fork_and_the_last_frame_says_stopped(space, visitor):
    visitor.join(rows_of(["long", "longer"], 90), MODEL)
    pressed_at = None
    for frame in visitor.frames():
        if pressed_at is None and frame.drawn and len(frame.tokens[0]) > 4:
            visitor.stop()
            pressed_at = space.count("forward")
    assert space.count("forward") <= pressed_at + 1
    assert frame.record.status == "stopped"
    assert len(frame.record.steps) == space.count("forward")
    assert visitor.run(rows_of(["again"], 3), MODEL)[-1].record.status == "done"


def test_a_closed_tab_ends_the_worker(space, visitor):
    visitor.join(rows_of(["long"], 90), MODEL)
    with visitor.messages() as messages:
        for message, _ in messages:
            if message["msg"] == "process_generating" and space.count("forward") >= 5:
                break
    left_at = space.count("forward")
    wait_for(space.worker_is_gone)
    assert space.count("forward") <= left_at + 5
    assert Visitor(space.url).run(rows_of(["next"], 3), MODEL)[-1].record.status == "done"


def test_what_only_planning_finds_out_is_said_in_its_own_words(space, visitor):
    refused = visitor.run(rows_of(["a", "z" * 90], 30), MODEL)[-1]
    assert refused.notice["kind"] == "error"
    assert refused.says == (
        "Prompt 2 does not fit the model's context: 90 prompt tokens + 30 new tokens > 100."
    )
    assert space.count("start") == 1
    assert space.count("forward") == 0


def test_two_visitors_have_a_worker_each(space, visitor):
    other = Visitor(space.url)
    visitor.join(rows_of(["one"], 60), MODEL)
    frames = visitor.frames()
    next(frame for frame in frames if frame.drawn)
    assert other.run(rows_of(["two"], 3), MODEL)[-1].record.status == "done"
    assert list(frames)[-1].record.status == "done"
    assert space.count("start") == 2


def test_a_gpu_that_is_taken_away_leaves_the_picture_and_says_so(space, visitor):
    visitor.join(rows_of(["long"], 90), MODEL)
    killed = False
    for frame in visitor.frames():
        if not killed and frame.drawn and len(frame.tokens[0]) > 4:
            os.kill(int(space.happened()[0][1]), signal.SIGKILL)
            killed = True
    assert frame.record.status == "error"
    assert frame.record.error == "The run was cut off: GPU task aborted."
    assert len(frame.record.steps) >= 5
    assert frame.run_button["interactive"]
    with space.events.open("a") as events:
        events.write("end\n")  # which the killed worker could not
    assert visitor.run(rows_of(["again"], 3), MODEL)[-1].record.status == "done"


def test_a_model_is_pickled_as_a_reference_to_itself():
    lm = scripted_lm([[1]])
    assert pickle.loads(pickle.dumps(lm)) is lm
    assert len(pickle.dumps(lm)) < 200


def test_the_stand_in_refuses_what_cannot_be_pickled(tmp_path):
    script = "import spaces; next(spaces.GPU(lambda x: iter([x]), duration=lambda x: 9)(lambda: 0))"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "tests/page/zero_gpu",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pickle" in answer.stderr.lower()
    assert answer.returncode == 1


def test_spaces_comes_before_torch_and_models_before_the_launch():
    script = (
        "import engine.shelf as s; s.ModelShelf.load_all = lambda shelf: print(*shelf.names);"
        "import app, spaces, sys; assert 'torch' not in sys.modules; app.demo"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ
        | {"SPACES_ZERO_GPU": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/page/zero_gpu'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == MODEL

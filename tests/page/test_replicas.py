"""A page on two replicas: runs at the same time, Stop, leaving, a kill, and OpenAI's clients."""

import logging
import os
import signal
import threading
import time
from datetime import datetime

import pytest
from openai import APIError

pytest.importorskip("ray")

from engine import StaticBatchEngine, load_model
from engine.errors import ModelError, RequestError
from engine.host import Host
from engine.live import Waiting
from engine.orders import make_order
from engine.requests import Limits, make_requests
from engine.run import Run
from tests.inside import count, counts, process_of
from tests.replicas import (
    DIED,
    LIMITS,
    Watched,
    expected_of,
    farm,
    kill_one,
    processes,
    save_tiny,
)
from tests.serving import wait_for
from tests.tiny import row_ids

BUDGET = 200
WINDOW = 5.0
"""Seconds that no test waits for: its calls fill a batch."""
NO_MODEL = "./no-such-folder"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    name, another = (save_tiny(tmp_path_factory.mktemp("tiny")) for _ in range(2))
    with farm(name, another, NO_MODEL, window=WINDOW, batch_size=2) as here:
        yield here


@pytest.fixture(scope="module")
def expected(here):
    return expected_of(here, BUDGET)


@pytest.fixture(autouse=True)
def _replicas_are_given_back(here):
    yield
    here.wait_until_up()
    here.wait_until_free()


@pytest.fixture
def host(here):
    return Host(here.fleet, LIMITS)


TOGETHER = 3.0
"""Seconds that two runs go on beside each other: records say to the second when they began."""


def interval(run):
    """When a run took place for certain, as its record has it: `started_at` leaves out what a
    second has been cut down by."""
    began = datetime.fromisoformat(run.started_at).timestamp()
    return began + 1, began + run.steps[-1].finished


def test_two_runs_overlap_as_their_records_say(host, expected):
    runs, both_run = {}, threading.Barrier(2)

    def run(prompt):
        asked = {"max_new_tokens": 4000, "ignore_eos": True, "chat_template": False}
        until = None
        for frame in host.run(prompt, prompts=[prompt], **asked):
            if isinstance(frame, Run) and frame.steps:
                if until is None:
                    both_run.wait(20)
                    until = time.monotonic() + TOGETHER
                if time.monotonic() > until:
                    host.stop(prompt)
        runs[prompt] = frame

    threads = [threading.Thread(target=run, args=(prompt,)) for prompt in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first, first_end), (second, second_end) = map(interval, runs.values())
    assert max(first, second) < min(first_end, second_end)
    for prompt, found in runs.items():
        ids = row_ids(found)[0][: len(expected[prompt])]
        assert ids == expected[prompt][: len(ids)]


def test_a_replica_that_is_killed_ends_its_run_and_comes_back(here, expected):
    before = processes()
    assert kill_one(here, budget=BUDGET, expected=expected).told < 5
    wait_for(lambda: processes() == before)


def test_a_third_run_waits_for_the_first_that_is_free_and_the_record_says_how_long(here, host):
    longest = Watched(here, "left", 4000)
    shorter = Watched(here, "right", 4000)
    assert longest.began.wait(20)
    assert shorter.began.wait(20)
    shown = host.run("third", prompts=["Hi"], max_new_tokens=3, ignore_eos=True)
    waiting = next(frame for frame in shown if not isinstance(frame, str))
    assert waiting == Waiting(1, waiting.seconds)
    fourth = host.run("fourth", prompts=["Hi"], max_new_tokens=3, ignore_eos=True)
    assert next(frame for frame in fourth if not isinstance(frame, str)).ahead == 2
    host.stop("fourth")
    assert list(fourth)[-1] is None
    shorter.visitor.stop()
    run = list(shown)[-1]
    assert (run.status, len(run.steps)) == ("done", 3)
    assert run.queued_seconds >= waiting.seconds
    assert longest.is_alive()
    longest.visitor.stop()
    assert longest.to_the_end().status == "stopped"


def test_stop_reaches_the_replica_within_a_forward(here, host):
    shown = host.run("ann", prompts=["Hi"], max_new_tokens=4000, ignore_eos=True)
    next(frame for frame in shown if isinstance(frame, Run))
    (keeper,) = here.busy()
    here.ask(keeper, count)
    next(frame for frame in shown if isinstance(frame, Run) and frame.steps)
    host.stop("ann")
    run = list(shown)[-1]
    assert run.status == "stopped"
    counted = here.ask(keeper, counts)
    assert counted.at_stop > 0
    assert counted.forwards - counted.at_stop <= 1


def test_who_leaves_frees_the_replica(here, host):
    shown = host.run("ann", prompts=["Hi"], max_new_tokens=4000, ignore_eos=True)
    next(frame for frame in shown if isinstance(frame, Run) and frame.steps)
    assert here.busy()
    shown.close()
    here.wait_until_free()
    assert list(host.run("ann", prompts=["Hi"], max_new_tokens=3))[-1].status == "done"


def test_what_a_replica_finds_out_is_said_here(here, host):
    order = make_order(LIMITS, prompts=["Hi"], max_new_tokens=5)
    found = host.forecast(order)
    assert (found.rows, found.columns) == (1, 2 + 4)
    long = make_order(LIMITS, prompts=["x" * 8000], max_new_tokens=300)
    with pytest.raises(RequestError, match=r"^Prompt 1 does not fit the model's context: "):
        host.forecast(long)
    with pytest.raises(RequestError, match=r"^Prompt 1 does not fit the model's context: "):
        list(host.run("ann", prompts=["x" * 8000], max_new_tokens=300))
    with pytest.raises(ModelError, match=r"^This page does not offer"):
        here.fleet.start("another")


def test_a_model_that_no_replica_can_load_is_said_in_the_words_of_the_loader(here, host):
    with pytest.raises(ModelError) as alone:
        load_model(NO_MODEL)
    with pytest.raises(ModelError) as raised:
        list(host.run("ann", prompts=["Hi"], max_new_tokens=3, model=NO_MODEL))
    assert str(raised.value) == str(alone.value)


def test_each_replica_has_a_shelf_of_its_own(here, host):
    another = here.fleet.names[1]
    run = list(host.run("ann", prompts=["Hi"], max_new_tokens=3, model=another))[-1]
    assert (run.status, run.model.name) == ("done", another)
    wait_for(lambda: all(keeper.has(another) for keeper in here.fleet.keepers))


def test_a_run_has_its_time_and_its_line_in_the_log(here, caplog):
    caplog.set_level(logging.INFO)
    brief = Host(here.fleet, Limits(new_tokens=4000, run_seconds=1))
    run = list(brief.run("ann", prompts=["Hi"], max_new_tokens=4000, ignore_eos=True))[-1]
    assert run.status == "error"
    assert run.error == "The run took longer than this host allows: 1 s."
    (line,) = [line for line in caplog.messages if line.startswith("run 1 error: ")]
    assert line.endswith(run.error)


def test_comparisons_and_sweeps_come_back_whole(host):
    compared = list(host.compare("ann", prompts=["Hi", "Ho"], max_new_tokens=4, ignore_eos=True))
    assert compared[-1].status == "done"
    assert [run.status for run in compared[-1].runs] == ["done"] * 3
    swept = list(host.sweep("ann", prompt="Hello", batch_sizes=[1, 2], max_new_tokens=4, runs=1))
    assert [size.batch_size for size in swept[-1].sizes] == [1, 2]


def test_batches_of_both_replicas_overlap_and_their_answers_are_right(here):
    prompts = ["one", "two", "three", "four"]
    asked = {"model": here.name, "max_tokens": BUDGET, "temperature": 0}
    with here.served.client() as client:
        answers = {}

        def ask(prompt):
            answers[prompt] = client.completions.create(prompt=prompt, **asked)

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
        for thread in threads:
            thread.start()
        collector = wait_for_collector(here)
        wait_for(lambda: len(collector.under_way) == 2)
        for thread in threads:
            thread.join()
    wait_for(lambda: collector.current is None)
    batches = [served.run for served in collector.recent[-2:]]
    assert [len(run.requests) for run in batches] == [2, 2]
    engine = StaticBatchEngine(here.lm, batch_size=1)
    alone = engine.run(make_requests(prompts, max_new_tokens=BUDGET)).texts
    assert tuple(answers[prompt].choices[0].text for prompt in prompts) == alone


def test_a_client_that_leaves_a_batch_frees_its_replica(here):
    asked = {"model": here.name, "max_tokens": 4000, "temperature": 0}
    with here.served.client() as client:
        stream = client.completions.create(prompt=["Hi", "Ho"], stream=True, **asked)
        next(iter(stream))
        assert here.busy()
        stream.close()
    here.wait_until_free()
    collector = wait_for_collector(here)
    wait_for(lambda: collector.current is None)
    assert collector.recent[-1].run.status == "stopped"
    assert collector.recent[-1].left[0] is not None


def test_a_batch_whose_replica_dies_tells_its_clients(here):
    asked = {"model": here.name, "max_tokens": 4000, "temperature": 0}
    with here.served.client() as client:
        stream = client.completions.create(prompt=["Hi", "Ho"], stream=True, **asked)
        pieces = iter(stream)
        next(pieces)
        (keeper,) = here.busy()
        before = processes()
        os.kill(here.ask(keeper, process_of), signal.SIGKILL)
        with pytest.raises(APIError, match="has died"):
            list(pieces)
    collector = wait_for_collector(here)
    wait_for(lambda: collector.current is None)
    last = collector.recent[-1].run
    assert (last.status, last.error) == ("error", DIED)
    assert last.steps
    here.wait_until_up()
    wait_for(lambda: processes() == before)


def wait_for_collector(here):
    wait_for(lambda: here.name in here.served.server.collectors)
    return here.served.server.collectors[here.name]

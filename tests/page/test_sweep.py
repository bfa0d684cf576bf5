"""The "Batch size" tab over HTTP, and the named endpoint `/sweep`."""

import itertools
import json
import logging
import time

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from engine import bench, sweepfile
from engine.requests import Limits
from engine.sweep import Rates
from engine.turns import turns_on
from tests.page.test_zero_gpu import MODEL, Space
from tests.serving import Visitor, rows_of, served, wait_for
from tests.tiny import scripted_lm, token_ids
from viz.page.sparing import SPARING_SECONDS

ORDER = {"batch_sizes": [1, 2], "prompt": "hello", "max_new_tokens": 4, "runs": 2, "model": None}
HELLO = token_ids("hello brave new world")
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def quick_rates(monkeypatch):
    monkeypatch.setattr(bench, "measure_rates", lambda *_: Rates(1e9, 1e9, "float32"))


@pytest.fixture
def lm():
    return scripted_lm([HELLO], seconds=0.02)


def measure(visitor, **changes):
    """Press Measure."""
    body = visitor._body("press_measure", []) | {"event_data": ORDER | changes}
    visitor.http.post("/gradio_api/queue/join", json=body).raise_for_status()


def test_the_charts_fill_in_and_the_last_value_is_a_saved_sweep(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        measure(visitor)
        seen = list(visitor.values())
    shown = [value["shown"] for value in seen if value["shown"]]
    assert {state["key"] for state in shown} == {shown[0]["key"]}
    assert [len(state["points"]) for state in shown] == sorted(
        len(state["points"]) for state in shown
    )
    # Only the newest news is shown, so which it is depends on the machine.
    assert any(state["heading"].startswith("Batch size ") for state in shown)
    assert {value["busy"] for value in seen[:-1]} == {True}
    last = seen[-1]
    assert (last["busy"], last["shown"]["heading"]) == (False, "Done: 2 batch sizes")
    sweep = sweepfile.loads(last["shown"]["record"])
    assert [size.batch_size for size in sweep.sizes] == [1, 2]
    assert len(sweep.size(2).engine.samples) == 2


def test_a_browser_beside_a_busy_engine_seldom_hears_what_is_under_way(lm, monkeypatch):
    monkeypatch.setattr("viz.page.sparing.IN_USE", 0)
    with served(lm) as url:
        visitor = Visitor(url)
        measure(visitor, runs=4, max_new_tokens=12)
        began = time.monotonic()
        shown = [value["shown"] for value in visitor.values() if value["shown"]]
        seconds = time.monotonic() - began
    assert shown[-1]["heading"] == "Done: 2 batch sizes"
    figures = [{**state, "heading": ""} for state in shown]
    no_news = sum(before == after for before, after in itertools.pairwise(figures))
    assert no_news <= 2 + seconds / SPARING_SECONDS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_sizes": []}, "There are no batch sizes: choose at least one."),
        ({"batch_sizes": "12"}, "There are no batch sizes: choose at least one."),
        ({"batch_sizes": [1, 64]}, "The batch size is 64, the limit is 32."),
        ({"batch_sizes": [0]}, "The batch size must be at least 1, not 0."),
        ({"batch_sizes": [MARKUP]}, f"The batch size must be a whole number, not {MARKUP!r:.40}."),
        ({"prompt": ""}, "The prompt is empty."),
        ({"prompt": 7}, "The prompt must be a text."),
        ({"prompt": "x" * 8001}, "The prompt has 8,001 characters: the limit is 8,000."),
        ({"max_new_tokens": 513}, "The number of new tokens is 513, the limit is 512."),
        (
            {"max_new_tokens": 1},
            "The number of new tokens must be at least 2: a pace takes two tokens.",
        ),
        ({"max_new_tokens": None}, "The number of new tokens must be a whole number, not empty."),
        ({"runs": 0}, "The number of runs must be from 1 to 20, not 0."),
        ({"model": MARKUP}, f"This page does not offer the model {MARKUP!r:.60}."),
        (
            {"prompt": "a"},
            "No prompt has more than 1 token: there would be no real prefill to measure.",
        ),
    ],
)
def test_what_is_wrong_is_one_plain_sentence_and_leaves_the_charts(lm, changes, sentence):
    with served(lm) as url:
        visitor = Visitor(url)
        measure(visitor, **changes)
        last = list(visitor.values())[-1]
    assert last["notice"] == {"text": sentence, "kind": "error"}
    assert (last["busy"], last["shown"]) == (False, None)
    assert lm.model.calls == []


def test_stop_ends_it_and_keeps_what_was_measured(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        measure(visitor, batch_sizes=[1, 2, 4, 8])
        for value in visitor.values():
            if value["shown"] and len(value["shown"]["points"]) == 1:
                visitor.call("halt_sweep").raise_for_status()
        assert not len(turns_on("cpu"))
    assert value["shown"]["status"] == "stopped"
    assert [point["size"] for point in value["shown"]["points"]] in ([1], [1, 2])
    assert sweepfile.loads(value["shown"]["record"]).status == "stopped"


def test_a_visitor_has_one_run_or_sweep_at_a_time(lm):
    still = "Your last run is still under way: stop it, or wait."
    with served(lm) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["long"], 400), "scripted")
        with visitor.messages() as messages:
            wait_for(lambda: lm.model.calls)
            measure(visitor)
            for message, _ in messages:
                data = message.get("output", {}).get("data", [])
                if message["msg"] == "process_generating" and len(data) == 1:
                    assert data[0]["notice"] == {"text": still, "kind": "error"}
                    break
            visitor.stop()
        other = Visitor(url)
        measure(other, max_new_tokens=400)
        with other.messages() as messages:
            seen = len(lm.model.calls)
            wait_for(lambda: len(lm.model.calls) > seen + 2)
            other.join(rows_of(["x"], 4), "scripted")
            for message, _ in messages:
                data = message.get("output", {}).get("data", [])
                if message["msg"] == "process_generating" and len(data) == 4:
                    assert data[1] == {"text": still, "kind": "info"}
                    break
            other.stop()
        wait_for(lambda: not len(turns_on("cpu")))


def test_a_visitor_who_leaves_ends_the_sweep(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        measure(visitor, max_new_tokens=400)
        with visitor.messages() as messages:
            next(message for message, _ in messages if message["msg"] == "process_generating")
            wait_for(lambda: len(lm.model.calls) > 3)
        wait_for(lambda: not len(turns_on("cpu")))
        assert len(lm.model.calls) < 400


def test_the_runs_stand_in_line_and_the_page_says_so(lm):
    with served(lm) as url:
        other = turns_on("cpu").join()
        visitor = Visitor(url)
        measure(visitor)
        said = []
        for value in visitor.values():
            said.append(value["notice"]["text"])
            if said[-1].startswith("Waiting: 1 run before yours"):
                other.leave()
    assert any(text.startswith("Waiting: 1 run before yours") for text in said)
    assert value["shown"]["status"] == "done"


def test_the_hosts_time_holds_for_the_whole_sweep_and_what_was_measured_stays(lm, caplog):
    caplog.set_level(logging.INFO, "batchscope.host")
    with served(lm, limits=Limits(run_seconds=1)) as url:
        visitor = Visitor(url)
        measure(visitor, batch_sizes=[1, 2, 4, 8, 16], max_new_tokens=8)
        last = list(visitor.values())[-1]
    reason = "The sweep took longer than this host allows: 1 s."
    assert (last["shown"]["status"], last["busy"]) == ("error", False)
    assert last["shown"]["remark"].startswith(reason)
    assert len(last["shown"]["points"]) >= 1
    [line] = [line for line in caplog.messages if "sweep" in line]
    assert line.startswith("sweep 1 error: scripted, batch size 1: ")
    assert line.endswith(reason)
    assert "hello" not in line


def test_the_endpoint_streams_and_its_result_opens_as_a_saved_sweep(lm):
    with served(lm) as url:
        client = Client(url, verbose=False)
        job = client.submit("hello", [2, 1], max_new_tokens=4, runs=2, api_name="/sweep")
        result = job.result()
        *updates, last = job.outputs()
    assert last == result
    sweep = sweepfile.loads(json.dumps(result))
    assert (sweep.status, sweep.batch_sizes) == ("done", (1, 2))
    assert all(set(update) == {"status", "doing", "sizes"} for update in updates)
    assert "Batch size 2: run 1 of 2" in [update["doing"] for update in updates]
    measured = [[size["batch_size"] for size in update["sizes"]] for update in [*updates, result]]
    assert measured == sorted(measured)
    assert measured[-1] == [1, 2]
    assert result["static_batch"]["batch_size"] == 2


def test_the_endpoint_measures_what_the_host_allows_if_no_sizes_are_named(lm):
    with served(lm, limits=Limits(batch_size=3)) as url:
        client = Client(url, verbose=False)
        result = client.predict(max_new_tokens=2, runs=1, api_name="/sweep")
        with pytest.raises(AppError, match=r"^The batch size is 4, the limit is 3\.$"):
            client.predict(batch_sizes=[4], api_name="/sweep")
    assert result["batch_sizes"] == [1, 2]


def test_a_sweep_on_zero_gpu_streams_out_of_one_fork(tmp_path):
    (tmp_path / "events").touch()
    space = Space(tmp_path / "events")
    try:
        visitor = Visitor(space.url)
        measure(visitor, model=MODEL)
        seen = list(visitor.values())
        wait_for(space.worker_is_gone)
        assert seen[-1]["shown"]["heading"] == "Done: 2 batch sizes"
        assert "Batch size 2: run 1 of 2" in [
            value["shown"]["heading"] for value in seen if value["shown"]
        ]
        assert (space.count("start"), space.count("forward")) == (1, 2 * 3 * 4)
        measure(visitor, model=MODEL, max_new_tokens=90)
        for value in visitor.values():
            if value["shown"] and value["shown"]["heading"].startswith("Batch size 1: run 1"):
                visitor.call("halt_sweep").raise_for_status()
        assert value["shown"]["status"] == "stopped"
        assert space.count("forward") < 24 + 2 * 90
    finally:
        space.process.terminate()
        space.process.wait()

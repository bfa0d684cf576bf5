"""The "Compare" tab over HTTP, and the named endpoint `/compare`."""

import json
import logging
from dataclasses import asdict

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from engine import comparison as comparisons
from engine.presets import MIXED
from engine.requests import Limits
from engine.turns import turns_on
from tests.serving import DEFAULTS, Visitor, rows_of, served, wait_for
from tests.tiny import scripted_lm, tiny_lm, token_ids
from viz.page.sparing import SPARING_SECONDS

HELLO = token_ids("hello brave new world")
MARKUP = "<img src=x onerror=alert(1)>"
PROMPTS = ["long", "a", "bb", "ccc"]
BUDGETS = [12, 2, 3, 6]


@pytest.fixture
def lm():
    return scripted_lm([HELLO], seconds=0.02)


def compare(visitor, prompts, model="scripted", *, source="form", **settings):
    """Press Compare."""
    values = {**DEFAULTS, "batch_size": 2} | settings
    data = [prompts, model, *(values[name] for name in DEFAULTS)]
    body = visitor._body("press_compare", data) | {"event_data": {"source": source}}
    visitor.http.post("/gradio_api/queue/join", json=body).raise_for_status()


def test_three_lanes_fill_in_one_after_another_and_give_the_same_ids():
    lm = tiny_lm()
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(PROMPTS, BUDGETS), lm.name, ignore_eos=True)
        seen = list(visitor.values())
    last = seen[-1]
    assert (last["busy"], last["shown"]["status"]) == (False, "done")
    comparison = comparisons.loads(last["shown"]["record"])
    assert [run.settings.engine for run in comparison.runs] == ["serial", "static", "continuous"]
    assert comparisons.same_ids(comparison)
    assert last["shown"]["remark"].startswith("Same ids in all three. ")
    assert [lane["slots"] for lane in last["shown"]["lanes"]] == [1, 2, 2]
    assert [row[0] for row in last["shown"]["computed"]["rows"]] == [
        "Static",
        "Shrinking",
        "Continuous",
    ]


def test_the_lanes_stream_in_while_they_are_measured(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(PROMPTS, BUDGETS))
        seen = list(visitor.values())
    shown = [value["shown"] for value in seen if value["shown"]]
    assert {state["key"] for state in shown} == {shown[0]["key"]}
    assert {value["busy"] for value in seen[:-1]} == {True}
    for lane in (0, 1):
        walls = [state["lanes"][lane]["wall"] for state in shown]
        assert walls == sorted(walls)
        assert len(set(walls)) > 2
    # The static lane has its slots before it begins, so that nothing moves.
    assert {state["lanes"][1]["slots"] for state in shown} == {2}
    assert any(state["heading"].startswith("Serial: ") for state in shown)


def test_a_browser_beside_a_busy_engine_is_told_seldom_and_all_in_the_end(lm, monkeypatch):
    monkeypatch.setattr("viz.page.sparing.IN_USE", 0)
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(PROMPTS, BUDGETS))
        shown = [value["shown"] for value in visitor.values() if value["shown"]]
    comparison = comparisons.loads(shown[-1]["record"])
    assert comparison.status == "done"
    seconds = sum(run.steps[-1].finished for run in comparison.runs)
    assert len(shown) <= 4 + seconds / SPARING_SECONDS


def test_where_a_model_cant_be_run_continuously_the_lane_says_why(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(PROMPTS, BUDGETS))
        *_, last = visitor.values()
    assert last["shown"]["status"] == "done"
    assert "scripted" in last["shown"]["lanes"][2]["note"]
    assert last["shown"]["remark"].startswith("Same ids in both. ")


def test_the_example_needs_nothing_of_the_form(lm):
    with served(lm, limits=Limits(new_tokens=6)) as url:
        visitor = Visitor(url)
        compare(visitor, None, source="example")
        *_, last = visitor.values()
    comparison = comparisons.loads(last["shown"]["record"])
    assert tuple(request.prompt for request in comparison.runs[0].requests) == MIXED.prompts
    assert max(request.max_new_tokens for request in comparison.runs[0].requests) == 6


@pytest.mark.parametrize(
    ("prompts", "settings", "sentence"),
    [
        (rows_of([""], 4), {}, "Prompt 1 is empty."),
        ([], {}, "There are no prompts: enter at least one."),
        (rows_of(["a"], 4), {"batch_size": 64}, "The batch size is 64, the limit is 32."),
        (
            rows_of(["a"], 4),
            {"batch_size": MARKUP},
            f"The batch size must be a whole number, not {MARKUP!r:.40}.",
        ),
        (rows_of(["a"], 513), {}, "Prompt 1: the token budget is 513, the limit is 512."),
        (7, {}, "There are no prompts: enter at least one."),
    ],
)
def test_what_is_wrong_is_one_plain_sentence_and_leaves_the_lanes(lm, prompts, settings, sentence):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, prompts, **settings)
        *_, last = visitor.values()
    assert last["notice"] == {"text": sentence, "kind": "error"}
    assert (last["busy"], last["shown"]) == (False, None)
    assert lm.model.calls == []


def test_without_a_batch_size_all_requests_have_a_slot(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(PROMPTS, BUDGETS), batch_size=None)
        *_, last = visitor.values()
    assert last["shown"]["lanes"][1]["slots"] == 4


def test_stop_ends_it_and_keeps_what_was_measured(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(["a", "b"], 60))
        for value in visitor.values():
            if value["shown"] and value["shown"]["lanes"][1]["spans"]:
                visitor.call("halt_compare").raise_for_status()
        assert not len(turns_on("cpu"))
    shown = value["shown"]
    assert (shown["status"], value["busy"]) == ("stopped", False)
    assert shown["lanes"][0]["told"]
    assert shown["lanes"][1]["spans"]
    assert shown["computed"] is None
    assert comparisons.loads(shown["record"]).status == "stopped"


def test_a_visitor_has_one_run_or_comparison_at_a_time(lm):
    still = "Your last run is still under way: stop it, or wait."
    with served(lm) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["long"], 400), "scripted")
        with visitor.messages() as messages:
            wait_for(lambda: lm.model.calls)
            compare(visitor, rows_of(["a"], 4))
            for message, _ in messages:
                data = message.get("output", {}).get("data", [])
                if message["msg"] == "process_generating" and len(data) == 1:
                    assert data[0]["notice"] == {"text": still, "kind": "error"}
                    break
            visitor.stop()
        wait_for(lambda: not len(turns_on("cpu")))


def test_a_visitor_who_leaves_ends_the_comparison(lm):
    with served(lm) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(["a"], 400))
        with visitor.messages() as messages:
            next(message for message, _ in messages if message["msg"] == "process_generating")
            wait_for(lambda: len(lm.model.calls) > 3)
        wait_for(lambda: not len(turns_on("cpu")))
        assert len(lm.model.calls) < 400


def test_the_runs_stand_in_line_and_the_page_says_so(lm):
    with served(lm) as url:
        other = turns_on("cpu").join()
        visitor = Visitor(url)
        compare(visitor, rows_of(["a"], 4))
        said = []
        for value in visitor.values():
            said.append(value["notice"]["text"])
            if said[-1].startswith("Waiting: 1 run before yours"):
                other.leave()
    assert any(text.startswith("Waiting: 1 run before yours") for text in said)
    assert value["shown"]["status"] == "done"


def test_the_hosts_time_holds_for_the_whole_comparison_and_the_log_has_one_line(lm, caplog):
    caplog.set_level(logging.INFO, "batchscope.host")
    with served(lm, limits=Limits(run_seconds=1)) as url:
        visitor = Visitor(url)
        compare(visitor, rows_of(["secret"], 200))
        *_, last = visitor.values()
    assert (last["shown"]["status"], last["busy"]) == ("error", False)
    assert "longer than this host allows" in last["shown"]["remark"]
    [line] = [line for line in caplog.messages if "comparison" in line]
    assert "secret" not in line


def test_the_endpoint_streams_and_its_result_opens_as_a_saved_comparison(lm):
    with served(lm) as url:
        client = Client(url, verbose=False)
        job = client.submit(PROMPTS, BUDGETS, batch_size=2, api_name="/compare")
        result = job.result()
        *updates, last = job.outputs()
    assert last == result
    comparison = comparisons.loads(json.dumps(result))
    assert comparison.status == "done"
    assert all(set(update) == {"status", "engine", "texts"} for update in updates)
    assert {"serial", "static"} <= {update["engine"] for update in updates}
    assert len(updates[-1]["texts"]["serial"]) == len(PROMPTS)


def test_the_endpoint_takes_the_settings_of_a_run(lm):
    asked = {"stop": ["o b"], "min_new_tokens": 2, "repetition_penalty": 1.5, "seed": 1}
    sampled = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1}
    with served(lm) as url:
        client = Client(url, verbose=False)
        job = client.submit(PROMPTS, BUDGETS, batch_size=2, **asked, **sampled, api_name="/compare")
        comparison = comparisons.loads(json.dumps(job.result()))
    for run in comparison.runs:
        for request in run.requests:
            assert (request.stop, request.min_new_tokens) == (("o b",), 2)
            assert asdict(request.sampling).items() >= sampled.items()
            assert request.sampling.repetition_penalty == 1.5
        assert run.texts[0] == "hell"


def test_the_endpoint_refuses_in_a_sentence(lm):
    with served(lm) as url:
        client = Client(url, verbose=False)
        with pytest.raises(AppError, match=r"^The batch size is 64, the limit is 32\.$"):
            client.predict(["a"], batch_size=64, api_name="/compare")

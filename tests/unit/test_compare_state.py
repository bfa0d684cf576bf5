"""Comparison -> the value of the "Compare" tab, and what the tab asks the server for."""

import csv
import html
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from engine import comparison as comparisons
from engine import sweepfile
from engine.comparison import Comparison, Entry
from tests.unit.comparisons import TUTORIAL, UNDER_WAY, WHOLE, comparison_of
from tests.unit.sweeps import WHOLE as SWEEP
from viz.compare.desk import (
    compute_lanes,
    export_comparison,
    let_arrive,
    open_comparison,
    plan_batch,
    recorded_comparison,
)
from viz.compare.lane import STATES
from viz.compare.state import CompareWriter, compare_value, shown_state

MARKUP = "<img src=x onerror=alert(1)>"


def shown(comparison=WHOLE, **options):
    return shown_state(comparison, key="k", **options)


def with_reason(engine, reason):
    """The comparison without one of its runs."""
    entries = [
        Entry(engine, reason=reason) if entry.engine == engine else entry for entry in WHOLE.entries
    ]
    return replace(WHOLE, entries=tuple(entries))


def basis_of(comparison=WHOLE):
    """As it comes back from the page."""
    return json.loads(json.dumps(shown(comparison)["basis"]))


def test_three_lanes_have_their_slots_and_their_spans_on_one_axis_of_seconds():
    serial, static, continuous = shown()["lanes"]
    assert [lane["slots"] for lane in (serial, static, continuous)] == [1, 2, 2]
    assert [lane["wall"] for lane in (serial, static, continuous)] == [57, 35, 30]
    second = [span for span in static["spans"] if span[1] == 1]
    assert [(STATES[state], start, end) for _, _, state, start, end in second] == [
        ("prefill", 0, 1),
        ("active", 1, 10),
        ("idle", 10, 15),
    ]
    assert not [span for span in continuous["spans"] if STATES[span[2]] == "idle"]


def test_no_two_spans_of_a_lane_are_in_a_slot_at_a_time():
    state = shown()
    for lane in state["lanes"] + state["computed"]["lanes"]:
        for slot in range(lane["slots"]):
            spans = sorted(span[3:] for span in lane["spans"] if span[0] == slot)
            assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_the_heading_and_the_remark_follow_from_the_figures():
    state = shown()
    assert state["heading"] == "Static 1.63 × and continuous 1.90 × as fast as serial"
    assert state["remark"] == (
        "Same ids in all three. 57 tokens took 57.0 s one by one, 35.0 s in static batches and "
        "30.0 s continuously. In the static run 13 of 70 decode slots were idle (19 %)."
    )
    assert state["strip"] == "paper · float32 · CPU, 2 threads · 4 requests · 30 Nov 2026"


def test_the_table_has_numerators_and_denominators_and_waits_from_the_start_of_the_run():
    state = shown()
    line = dict(zip(state["columns"], state["rows"][1], strict=True))
    assert line == {
        "": "Static",
        "Wall time": "35.0 s",
        "Output tok/s": "1.6",
        "First token\nmedian · p90 · max": "1.0 s · 16.0 s · 16.0 s",
        "Latency\nmedian · p90 · max": "15.0 s · 35.0 s · 35.0 s",
        "Prompt padding": "35 % (35 of 100)",
        "Idle while decoding": "19 % (13 of 70)",
        "Peak KV cache": "200 B",
        "Speed-up over serial": "1.63 ×",
    }


def test_other_ids_are_told():
    static = WHOLE.entries[1].run
    step = static.steps[3]
    other = replace(
        static, steps=(*static.steps[:3], replace(step, tokens=(8, 8)), *static.steps[4:])
    )
    entries = (WHOLE.entries[0], Entry("static", other), WHOLE.entries[2])
    remark = shown(replace(WHOLE, entries=entries))["remark"]
    assert remark.startswith("The ids are not the same in all three. ")


def test_a_run_under_way_is_drawn_as_far_as_it_is_and_compared_with_nothing():
    state = CompareWriter(key="k", slots=2).write(UNDER_WAY)
    serial, static, continuous = state["lanes"]
    assert (state["heading"], state["remark"], state["record"]) == ("Static: 35 tokens", "", "")
    assert (static["wall"], static["told"], serial["told"]) == (20, ["20.0 s"], ["57.0 s"])
    assert (continuous["slots"], continuous["spans"], continuous["note"]) == (2, [], "to come")
    assert set(state["rows"][2][1:]) == {"–"}
    assert (state["computed"], state["basis"]) == (None, None)


def test_a_run_that_is_over_is_measured_once(monkeypatch):
    measured = []
    lane_of = comparisons.lane_of
    monkeypatch.setattr(
        "viz.compare.state.lane_of",
        lambda run: measured.append(run.settings.engine) or lane_of(run),
    )
    writer = CompareWriter(key="k", slots=2)
    for _ in range(3):
        writer.write(UNDER_WAY)
    assert measured == ["serial", "static", "static", "static"]


def test_where_an_engine_cant_run_its_lane_says_why():
    reason = "This model can't be run by continuous batching."
    state = shown(with_reason("continuous", reason))
    lane = state["lanes"][2]
    assert (lane["note"], lane["spans"], lane["slots"]) == (reason, [], 0)
    assert state["heading"] == "Static 1.63 × as fast as serial"
    assert state["remark"].startswith("Same ids in both. ")


def test_without_a_static_run_there_is_nothing_to_compute_from():
    state = shown(with_reason("static", "No."))
    assert (state["computed"], state["basis"]) == (None, None)
    assert state["why"] == "Other schedules can be computed once there is a static run."
    assert state["heading"] == "Continuous 1.90 × as fast as serial"


def test_nothing_ran_at_all():
    entries = tuple(Entry(entry.engine, reason="It needs 9 GB.") for entry in WHOLE.entries)
    state = shown(Comparison(entries, WHOLE.started_at, "done"))
    assert (state["heading"], state["remark"], state["strip"]) == ("Done", "", "30 Nov 2026")
    assert {lane["note"] for lane in state["lanes"]} == {"It needs 9 GB."}


def test_the_computed_lanes_begin_with_the_settings_of_the_run_and_agree_with_it():
    state = shown()
    static, shrinking, continuous = state["computed"]["lanes"]
    assert static["spans"] == state["lanes"][1]["spans"]
    assert (static["wall"], continuous["wall"]) == (35, 30)
    assert sorted(continuous["spans"]) == sorted(state["lanes"][2]["spans"])
    assert not [span for span in shrinking["spans"] if STATES[span[2]] == "idle"]
    assert all(lane["computed"] for lane in state["computed"]["lanes"])
    assert not any(lane["computed"] for lane in state["lanes"])


def test_what_was_computed_is_checked_against_what_was_measured():
    assert shown()["check"] == (
        "With the settings of the run: static 35.0 s computed, 35.0 s measured (+0 %); continuous "
        "30.0 s computed, 30.0 s measured (+0 %)."
    )


def test_a_run_that_was_stopped_is_compared_with_nothing():
    static = WHOLE.entries[1].run
    cut = replace(static, status="stopped", steps=static.steps[:20])
    entries = (WHOLE.entries[0], Entry("static", cut), Entry("continuous"))
    state = shown(replace(WHOLE, entries=entries, status="stopped"))
    assert (state["heading"], state["lanes"][1]["told"]) == ("Stopped", ["20.0 s"])
    assert state["rows"][1][-1] == "n/a"
    assert state["why"].startswith("Other schedules can be computed once all rows")


def test_sliders_ask_for_other_slots_and_another_order():
    found = compute_lanes({"basis": basis_of(), "slots": 4, "order": "as given"})
    assert [lane["slots"] for lane in found["lanes"]] == [4, 4, 4]
    assert found["lanes"][0]["wall"] == 20
    assert found["rows"][0][6] == "29 % (23 of 80)"  # the tutorial's
    sorted_ = compute_lanes({"basis": basis_of(), "slots": 2, "order": "by generated length"})
    assert sorted_["lanes"][0]["wall"] == 32  # 20 and 12 instead of 15 and 20
    assert sorted_["lanes"][0]["note"] == "batches of 2, longest answer first"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slots": 0}, "The slots must be from 1 to 4, not 0."),
        ({"slots": 5}, "The slots must be from 1 to 4, not 5."),
        ({"slots": True}, "The slots must be from 1 to 4, not True."),
        ({"slots": MARKUP}, f"The slots must be from 1 to 4, not {MARKUP!r:.40}."),
        ({"basis": None}, "These are no requests to compute schedules for."),
        ({"basis": {"jobs": []}}, "These are no requests to compute schedules for."),
        ({"basis": basis_of() | {"jobs": []}}, "These are no requests to compute schedules for."),
        (
            {"basis": basis_of() | {"jobs": [[0, 1, 1, 10**9]]}},
            "These are no requests to compute schedules for.",
        ),
        (
            {"basis": basis_of() | {"jobs": [[0, 1, 1, 1]] * 1025}},
            "These are no requests to compute schedules for.",
        ),
    ],
)
def test_what_cant_be_computed_is_told_in_a_sentence(changes, sentence):
    question = {"basis": basis_of(), "slots": 2, "order": "as given"} | changes
    assert compute_lanes(question) == {"error": sentence}


def test_an_unknown_order_is_told_in_a_sentence():
    found = compute_lanes({"basis": basis_of(), "slots": 2, "order": ["by luck"]})
    assert found["error"].startswith("The order must be one of as given, ")


@pytest.mark.parametrize(
    "price",
    [
        {"prefill": float("nan")},
        {"prompt_token": -1.0},
        {"column": float("inf")},
        {"steps": []},
        {"steps": [[1, 0.0]]},
        {"steps": [[2, 1.0], [1, 1.0]]},
        {"steps": [[0, 1.0]]},
    ],
)
def test_prices_without_sense_are_refused(price):
    basis = basis_of()
    basis["costs"] |= price
    refused = {"error": "These are no requests to compute schedules for."}
    assert compute_lanes({"basis": basis, "slots": 2, "order": "as given"}) == refused
    assert let_arrive({"basis": basis}) == refused


def test_the_value_is_strict_json_and_none_leaves_the_lanes_as_they_are():
    json.dumps(compare_value(shown()), allow_nan=False)
    assert compare_value(text="No.", kind="error") == {
        "notice": {"text": "No.", "kind": "error"},
        "busy": False,
        "shown": None,
    }


def test_a_saved_comparison_opens_as_it_was():
    record = comparisons.dumps(WHOLE)
    assert open_comparison({"record": record})["shown"] | {"key": "k"} == shown()


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({}, "Not a saved comparison: it is not text."),
        (None, "Not a saved comparison: it is not text."),
        ({"record": comparisons.dumps(UNDER_WAY)}, "The comparison was saved before it ended."),
    ],
)
def test_what_is_no_saved_comparison_is_told_in_a_sentence(question, sentence):
    assert open_comparison(question) == {"error": sentence}


def test_the_comparison_that_comes_with_the_page_is_whole_and_says_that_it_was_recorded():
    state = recorded_comparison()
    assert (state["status"], state["recorded"], state["record"]) == ("done", True, "")
    assert state["remark"].startswith("Same ids in all three. ")
    assert [lane["note"] for lane in state["lanes"] if not lane["spans"]] == []
    question = {"recorded": True, "format": "json", "theme": "light"}
    settings = {name: state["computed"][name] for name in ("slots", "order")}
    found = export_comparison(question | settings)
    assert comparisons.loads(found["text"]).status == "done"


def exported(format, *, theme="light", comparison=WHOLE, **settings):
    question = {"record": comparisons.dumps(comparison), "format": format, "theme": theme}
    return export_comparison(question | {"slots": 2, "order": "as given"} | settings)


def test_the_picture_is_an_svg_of_large_type_with_computed_lanes_told_apart():
    pictures = [exported("svg", theme=theme)["text"] for theme in ("light", "dark")]
    assert pictures[0] != pictures[1]
    root = ET.fromstring(pictures[0])
    texts = [node for node in root.iter() if node.tag.endswith("}text")]
    assert min(float(node.get("font-size")) for node in texts) >= 48
    said = [node.text for node in texts]
    assert said.count("computed") == 4  # three lanes and the legend
    assert "Static 1.63 × and continuous 1.90 × as fast as serial" in said
    assert all(float(node.get("x")) <= 1920 for node in texts)


def test_the_picture_has_the_computed_lanes_that_are_shown():
    assert exported("svg", slots=4)["text"] != exported("svg", slots=2)["text"]
    assert exported("svg", slots=9) == {"error": "The slots must be from 1 to 4, not 9."}


def test_the_table_as_csv_has_a_line_per_lane_with_seconds_in_full():
    found = exported("csv", slots=4)
    assert found["name"] == "batchscope-paper-2026-11-30T02-00-00-compare.csv"
    lines = list(csv.DictReader(io.StringIO(found["text"], newline="")))
    assert [(line["lane"], line["computed"]) for line in lines] == [
        ("serial", "no"),
        ("static", "no"),
        ("continuous", "no"),
        ("static", "yes"),
        ("shrinking", "yes"),
        ("continuous", "yes"),
    ]
    assert float(lines[1]["wall_s"]) == 35
    assert (lines[3]["idle_slots"], lines[3]["decode_slots"]) == ("23", "80")
    assert float(lines[2]["speed_up_over_serial"]) == pytest.approx(57 / 30)


def test_b8_a_reason_that_begins_like_a_formula_is_none_in_the_csv():
    found = exported("csv", comparison=with_reason("continuous", "=1+1"))
    *_, line = [row for row in csv.reader(io.StringIO(found["text"])) if row[0] == "continuous"][:1]
    assert line[-1] == "'=1+1"
    assert len(line) == len(next(csv.reader(io.StringIO(found["text"]))))


def test_the_trace_has_a_process_per_lane_whose_slots_hold_one_request_at_a_time():
    found = exported("trace")
    assert found["name"].endswith("-compare.trace.json")
    events = json.loads(found["text"])["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert [name.partition(":")[0] for name in names] == [
        "Serial, measured",
        "Static, measured",
        "Continuous, measured",
        "Static, computed",
        "Shrinking, computed",
        "Continuous, computed",
    ]
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    assert len(tracks) == 1 + 2 + 2 + 2 + 2 + 2
    for spans in tracks.values():
        assert all(type(span[key]) is int for span in spans for key in ("ts", "dur"))
        ends = [span["ts"] + span["dur"] for span in spans]
        assert all(end <= span["ts"] for end, span in zip(ends, spans[1:], strict=False))
    static = [span for (process, _), spans in tracks.items() if process == 2 for span in spans]
    assert max(span["ts"] + span["dur"] for span in static) == 35_000_000
    idle = sum(span["dur"] for span in static if span["cat"] == "idle")
    assert idle == 13_000_000  # 5 and 8 steps of a second


def test_the_page_of_its_own_has_everything_and_neither_a_script_nor_a_request():
    found = exported("html", slots=4)
    assert (found["type"], found["name"][-5:]) == ("text/html", ".html")
    text = found["text"]
    assert "default-src 'none'" in text
    assert not re.search(r"<script|src=|href=|url\(", text)
    assert text.count("<tr>") == 1 + 6
    assert text.count('<th scope="row">') == 6
    assert "Same ids in all three." in text
    assert "Continuous, computed" in text
    assert exported("html", theme="dark")["text"] != exported("html")["text"]


def test_b8_a_hostile_sentence_is_text_in_the_page_of_its_own():
    hostile = replace(with_reason("continuous", MARKUP), status="error", error=MARKUP)
    text = exported("html", comparison=hostile)["text"]
    assert "<img" not in text
    assert html.escape(MARKUP) in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "png"}, "The format must be one of svg, html, csv, json, trace."),
        ({"format": ["svg"]}, "The format must be one of svg, html, csv, json, trace."),
        ({"theme": "red"}, "The theme must be light or dark."),
        ({"record": 7}, "Not a saved comparison: it is not text."),
    ],
)
def test_what_cant_be_exported_is_told_in_a_sentence(changes, sentence):
    question = {"record": comparisons.dumps(WHOLE), "format": "svg", "theme": "light"}
    assert export_comparison(question | changes) == {"error": sentence}


def test_prompts_are_cut_for_the_page_and_token_ids_are_shown_as_they_are():
    static = WHOLE.entries[1].run
    requests = (
        replace(static.requests[0], prompt="y" * 500),
        replace(static.requests[1], prompt=(7,) * 30),
        *static.requests[2:],
    )
    entries = tuple(
        Entry(entry.engine, replace(entry.run, requests=requests)) for entry in WHOLE.entries
    )
    first, second, *_ = shown(replace(WHOLE, entries=entries))["prompts"]
    assert (len(first), first[-2:]) == (201, "y…")
    assert second == " ".join(["7"] * 30)


def test_the_planner_finds_the_batch_size_of_the_highest_throughput_within_the_limits():
    record = sweepfile.dumps(SWEEP)
    found = plan_batch({"sweep": record, "kind": "tpot", "limit": 200.0, "memory": None})
    assert found["best"][0] == 4
    assert found["limits"]["latency"] == 4
    assert found["told"].endswith("One more row would take longer than the limit.")
    assert [size for size, _ in found["measured"]] == [1, 2, 4, 8]
    tight = plan_batch({"sweep": record, "kind": "ttft", "limit": 1.0, "memory": None})
    assert tight["best"] is None
    assert tight["told"] == "No batch size that was measured keeps to these limits."


def test_the_planner_begins_with_limits_that_matter_in_the_sweep_that_comes_with_the_page():
    found = plan_batch({})
    most = found["points"][-1][0]
    assert 1 < found["limits"]["latency"] < most
    assert 1 < found["limits"]["memory"] < most


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"kind": MARKUP}, f"The limit must be on one of tpot, ttft, not {MARKUP!r:.40}."),
        ({"limit": 0}, "The limit on the latency must be a number above 0, not 0."),
        ({"limit": "x"}, "The limit on the latency must be a number above 0, not 'x'."),
        ({"limit": 5, "memory": -1}, "The memory must be a number above 0, not -1."),
        ({"sweep": 7}, "Not a saved sweep: it is not text."),
    ],
)
def test_what_cant_be_planned_is_told_in_a_sentence(question, sentence):
    assert plan_batch(question) == {"error": sentence}


def test_requests_that_arrive_wait_longer_for_a_batch_to_fill():
    basis = basis_of(comparison_of(TUTORIAL, slots=4))
    found = let_arrive({"basis": basis, "per_second": 0.1, "slots": 4, "window": 60})
    batches, refilled = found["curves"]
    assert all(later >= sooner for sooner, later in zip(refilled, batches, strict=True))
    assert found == let_arrive({"basis": basis, "per_second": 0.1, "slots": 4, "window": 60})
    assert found["rows"][0][0] == "Waits for a slot"
    assert found["about"].startswith("Computed: 5,000 requests at random (Poisson, seed 1)")


def test_requests_that_come_faster_than_they_can_be_served_are_told():
    found = let_arrive({"basis": basis_of(), "per_second": 100, "slots": 2, "window": 1})
    assert found["told"].endswith(
        "They come faster than static batches and continuous batching can serve them: waits grow "
        "on."
    )


def test_arrival_times_can_come_from_a_file():
    found = let_arrive({"basis": basis_of(), "slots": 1, "window": 0, "times": "0\n100\n200"})
    assert [row[1] for row in found["rows"]][:2] == ["0 ms · 0 ms · 0 ms", "1.0 s · 1.0 s · 1.0 s"]
    assert "3 requests from a file" in found["about"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slots": 0}, "The slots must be from 1 to 1,024, not 0."),
        ({"window": -1}, "The window must be a number from 0 to 3,600, not -1."),
        ({"per_second": 0}, "Requests per second must be more than 0."),
        ({"per_second": "x"}, "Requests per second must be a number from 0 to 1,000,000, not 'x'."),
        ({"times": [1]}, "The arrival times must be a text of at most 1 MiB."),
        ({"times": "soon"}, "Line 1 of the arrival times is no number: soon"),
        ({"basis": 1}, "These are no requests to compute schedules for."),
    ],
)
def test_arrivals_without_sense_are_told_in_a_sentence(changes, sentence):
    question = {"basis": basis_of(), "per_second": 1, "slots": 2, "window": 1}
    assert let_arrive(question | changes) == {"error": sentence}

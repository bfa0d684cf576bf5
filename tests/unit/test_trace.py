"""The trace: whole microseconds, slices that nest and never overlap, and the run's own span."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.metrics import measure
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import EOS, scripted_lm, token_ids
from tests.unit.paper import WORKED, cut, make_run, with_steps
from tests.unit.traces import events_of, problems, span_of


def slices(events, category, slot=None):
    return [
        event
        for event in events
        if event.get("cat") == category and slot in (None, event.get("tid"))
    ]


def overlapping(run, seconds):
    """The run with every step so much longer that it reaches into the next."""
    return with_steps(run, lambda step: {"seconds": step.seconds + seconds})


RUNS = {
    "one batch": WORKED,
    "three batches, a smaller last one": make_run(
        [[(3, 4), (5, 2)], [(7, 3), (1, 3)], [(2, 1)]], prefill=0.1234567, decode=1 / 3, pause=0.01
    ),
    "half microseconds": make_run([[(1, 40), (2, 7)]], prefill=1.5e-6, decode=2.5e-6),
    "clocks that overlap": overlapping(make_run([[(1, 3)], [(1, 2)]]), 3e-6),
    "stopped": cut(WORKED, 6, status="stopped"),
    "running": cut(make_run([[(1, 3)], [(1, 3)]]), 2),
    "one token": make_run([[(4, 1)]]),
    "stopped before its first step": cut(WORKED, 0, status="stopped"),
    "waited in line": replace(make_run([[(1, 3)], [(1, 2)]]), queued_seconds=1 / 3),
    "never came to its turn": replace(cut(WORKED, 0, status="stopped"), queued_seconds=1 / 3),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_c14_a_strict_reader_has_no_complaint(run):
    assert list(problems(events_of(run))) == []


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_c14_the_span_is_the_wall_time_of_the_run(run):
    wall = measure(run).wall_seconds
    assert span_of(events_of(run)) == round(1e6 * wall)


def test_c14_a_run_of_two_seconds_spans_two_seconds():
    """Microseconds, not nanoseconds or milliseconds."""
    assert span_of(events_of(WORKED)) == 2_000_000
    assert sum(event["dur"] for event in slices(events_of(WORKED), "prefill", slot=1)) == 500_000


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_slot_has_a_slice_for_each_forward_of_its_batches(run):
    events = events_of(run)
    for slot in range(run.settings.batch_size):
        steps = [step for step in run.steps if slot < len(step.tokens)]
        working = [step for step in steps if step.tokens[slot] is not None]
        made = slices(events, "prefill", slot + 1) + slices(events, "decode", slot + 1)
        told = sorted((e["ts"], e["args"]["forward"], e["args"]["token_id"]) for e in made)
        assert [(forward, token) for _, forward, token in told] == [
            (step.forward, step.tokens[slot]) for step in working
        ]
        assert len(slices(events, "idle", slot + 1)) == len(steps) - len(working)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    st.floats(0, 1e-4),
    st.floats(0, 1e-4),
    st.floats(0, 1e-5),
)
def test_c14_slices_nest_whatever_the_times_round_to(batches, prefill, decode, pause):
    run = make_run(batches, prefill=prefill, decode=decode, pause=pause)
    events = events_of(run)
    assert list(problems(events)) == []
    assert span_of(events) == round(1e6 * run.steps[-1].finished)


def test_a_request_holds_its_forwards_and_ends_with_its_own_last_token():
    events = events_of(WORKED)
    request = slices(events, "request", slot=1)[0]
    inside = slices(events, "prefill", slot=1) + slices(events, "decode", slot=1)
    assert request["name"] == "request 1"
    assert request["ts"] == 0
    assert request["ts"] + request["dur"] == max(e["ts"] + e["dur"] for e in inside)
    assert min(event["ts"] for event in slices(events, "idle", slot=1)) == request["dur"]
    assert request["args"]["new_tokens"] == 4
    assert request["args"]["end"] == "length"


def test_a_wait_ends_where_the_batch_starts():
    run = make_run([[(1, 2)], [(1, 3)]], pause=0.25)
    waits = [event for event in events_of(run) if event.get("cat") == "waiting"]
    assert [(event["ph"], event["ts"], event["id"]) for event in waits] == [
        ("b", 0, 2),
        ("e", round(1e6 * run.batches[1].started), 2),
    ]
    second = slices(events_of(run), "request", slot=1)[1]
    assert second["ts"] == round(1e6 * run.batches[1].started)


def test_the_wait_in_line_comes_before_the_run():
    run = make_run([[(1, 2)], [(1, 3)]], pause=0.25)
    late = events_of(replace(run, queued_seconds=1.5))
    in_line = [event for event in late if event["name"] == "in line"]
    assert [(event["ph"], event["ts"]) for event in in_line] == [("b", 0), ("e", 1_500_000)]
    assert [event for event in late if event not in in_line] == [
        {**event, "ts": event["ts"] + 1_500_000} if "ts" in event else event
        for event in events_of(run)
    ]


def test_a_slice_tells_the_devices_own_time_where_it_was_measured():
    on_device = with_steps(WORKED, lambda step: {"device_seconds": 0.125})
    told = [event["args"]["device_seconds"] for event in slices(events_of(on_device), "decode", 1)]
    assert told == [0.125] * 3
    assert "device_seconds" not in slices(events_of(WORKED), "decode", slot=1)[0]["args"]


def test_a_slice_is_named_for_its_text_or_its_phase():
    first = replace(WORKED.steps[0], pieces=(" the", "\n", ""))
    events = events_of(replace(WORKED, steps=(first, *WORKED.steps[1:])))
    prefill = slices(events, "prefill")
    assert [event["name"] for event in prefill] == ["the", "prefill", "prefill"]
    assert [event["args"]["text"] for event in prefill] == [" the", "\n", ""]


def test_b6_an_end_token_shows_in_the_trace_and_in_no_text():
    lm = scripted_lm([[*token_ids("a"), EOS], token_ids("bbb")])
    run = StaticBatchEngine(lm).run(make_requests(["one", "two"], max_new_tokens=3))
    assert run.texts == ("a", "bbb")
    told = [event["args"] for event in slices(events_of(run), "decode", slot=1)]
    assert [(each["token_id"], each["text"], each["end"]) for each in told] == [(EOS, "", "eos")]


def test_tracks_and_process_have_names():
    names = {
        (event["name"], event.get("tid")): event["args"].get("name")
        for event in events_of(WORKED)
        if event["ph"] == "M"
    }
    assert names["process_name", None] == "Batchscope: paper · float32 · CPU, 1 thread"
    assert [names["thread_name", slot] for slot in (1, 2, 3)] == ["slot 1", "slot 2", "slot 3"]


def test_counters_follow_the_rows_and_the_cache():
    counters = [event for event in events_of(WORKED) if event["ph"] == "C"]
    rows = [event["args"]["rows"] for event in counters if event["name"] == "active rows"]
    kv = [(e["ts"], e["args"]) for e in counters if e["name"] == "KV cache bytes"]
    assert rows == [0, *[3] * 4, *[2] * 6, 0]
    assert kv[1:] == [
        (
            round(1e6 * step.finished),
            {
                "live": step.kv_bytes.live,
                "padding": step.kv_bytes.padding,
                "dead": step.kv_bytes.dead,
            },
        )
        for step in WORKED.steps
    ]


def test_the_strict_reader_finds_what_is_wrong():
    events = events_of(WORKED)

    def broken(category, **change):
        index = next(i for i, event in enumerate(events) if event.get("cat") == category)
        return list(problems([*events[:index], {**events[index], **change}, *events[index + 1 :]]))

    assert broken("decode", dur=10**9)
    assert broken("decode", dur=-1)
    assert broken("decode", ts=1.5)
    assert broken("idle", ts=0)
    assert broken("decode", ph="Q")

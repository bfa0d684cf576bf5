"""A run as of any of its steps: the record, its figures, and what the stage is told of them."""

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.metrics import history, measure
from engine.requests import make_requests
from engine.run import until
from engine.static import StaticBatchEngine
from tests.tiny import EOS, scripted_lm, token_ids
from tests.unit.paper import WORKED, cut, make_run
from viz.explain import TILES
from viz.stage.stage import stage_props
from viz.stage.state import (
    MOST_MOMENTS,
    MOST_ROWS_TOLD,
    changes,
    moment,
    moments,
    stage_state,
    stride,
)

SMALL = st.lists(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


def test_until_is_the_record_that_the_engine_had_then():
    script = [[*token_ids("a🤗"), EOS], token_ids("abcdef")]
    engine = StaticBatchEngine(scripted_lm(script), batch_size=2)
    requests = make_requests(["one", "two", "three"], max_new_tokens=6)
    with closing(engine.stream(requests)) as stream:
        then = [stream.record() for _ in stream]
    run = stream.record()
    assert run.status == "done"
    assert [until(run, k) for k in range(1, len(run.steps))] == then[:-1]
    assert until(run, len(run.steps)) == run
    assert until(run, 0).steps == ()
    assert until(run, 0).texts == ("", "", "")
    assert all(batch.started is None for batch in until(run, 0).batches)


@pytest.mark.parametrize("steps", [-1, 11])
def test_until_refuses_a_step_that_never_was(steps):
    with pytest.raises(ValueError, match=f"step {steps} of 10"):
        until(WORKED, steps)


@settings(max_examples=40, deadline=None)
@given(SMALL, st.sampled_from(["done", "stopped", "error"]))
def test_history_is_what_measure_says_at_every_moment(batches, status):
    run = make_run(batches, status=status, pause=0.1)
    assert list(history(run)) == [measure(until(run, k)) for k in range(len(run.steps) + 1)]


@settings(max_examples=40, deadline=None)
@given(SMALL, st.integers(1, 9))
def test_history_may_leave_moments_out_but_never_the_last(batches, every):
    run = make_run(batches, pause=0.1)
    steps = [*range(0, len(run.steps), every), len(run.steps)]
    assert list(history(run, every=every)) == [measure(until(run, k)) for k in steps]


def merged(before, change):
    """What the page makes of `changes`."""
    if isinstance(before, list):
        return [
            merged(old, change[str(place)]) if str(place) in change else old
            for place, old in enumerate(before)
        ]
    if not isinstance(change, dict) or not isinstance(before, dict):
        return change
    nested = {
        name: merged(before[name], value) if isinstance(value, dict) and name in before else value
        for name, value in change.items()
    }
    return before | nested


@settings(max_examples=40, deadline=None)
@given(SMALL)
def test_moments_add_up_to_what_is_said_at_every_step(batches):
    run = make_run(batches, pause=0.1)
    now = {}
    for k, change in enumerate(moments(run)):
        now = merged(now, change)
        then = until(run, k)
        assert now == moment(then, measure(then))


@settings(max_examples=40, deadline=None)
@given(SMALL, st.integers(2, 9))
def test_with_a_stride_each_moment_is_that_of_its_step(batches, every):
    run = make_run(batches, pause=0.1)
    now = {}
    for i, change in enumerate(moments(run, every=every)):
        now = merged(now, change)
        then = until(run, min(i * every, len(run.steps)))
        assert now == moment(then, measure(then))
    assert now == moment(run, measure(run))


def test_ordinary_runs_have_all_their_moments():
    assert stride(WORKED) == 1
    assert stride(make_run([[(8, 512)] * 64])) == 1


@pytest.mark.parametrize(
    "batches", [[[(1, 512)]] * 64, [[(1, MOST_MOMENTS + 1)]], [[(1, 10)]] * 600], ids=len
)
def test_a_long_run_has_a_bounded_number_of_moments(batches):
    run = make_run(batches)
    every = stride(run)
    assert every > 1
    count = len(list(history(run, every=every)))
    assert count == -(-len(run.steps) // every) + 1
    assert count <= MOST_MOMENTS + 1
    assert count * len(run.requests) <= MOST_ROWS_TOLD + 2 * len(run.requests)


def test_changes_go_down_to_the_leaves():
    before = {"a": "x", "tiles": [{"value": "1", "bar": [["idle", 0]]}, {"value": "2"}]}
    after = {"a": "x", "tiles": [{"value": "3", "bar": [["idle", 0]]}, {"value": "2"}]}
    assert changes(before, after) == {"tiles": {"0": {"value": "3"}}}
    assert changes(before, before) == {}
    assert changes({}, before) == before
    shorter = {"a": "x", "tiles": before["tiles"][:1]}
    assert changes(before, shorter) == {"tiles": shorter["tiles"]}
    assert changes({"tiles": []}, before) == before
    assert changes(before, {"tiles": []}) == {"tiles": []}


def test_only_a_run_that_is_over_has_moments_and_its_record():
    assert {"moments", "record"} & stage_state(cut(WORKED, 3), key="k").keys() == set()
    state = stage_state(WORKED, key="k", recorded=True)
    assert state["stride"] == 1
    assert len(state["moments"]) == len(WORKED.steps) + 1
    assert state["recorded"]


def test_the_strip_tells_model_dtype_device_batch_and_date():
    strip = stage_state(WORKED, key="k")["strip"]
    assert strip == "paper · float32 · CPU, 1 thread · batch of 3 · 1 Jan 2025"


def test_a_serial_run_has_no_batch_to_speak_of():
    one_by_one = replace(WORKED.settings, engine="serial", batch_size=1)
    run = replace(make_run([[(3, 4)], [(5, 2)]]), settings=one_by_one)
    assert stage_state(run, key="k")["strip"].endswith(" · one by one · 1 Jan 2025")


def test_each_batch_says_what_stands_under_its_columns():
    alone, *_ = stage_state(WORKED, key="k")["batches"]
    assert alone["names"] == {
        "prompt": ("{} prompt tokens, all in one prefill forward", "{} prompt tokens", "{} tokens"),
        "new": ("{} new tokens, one forward each", "{} new tokens"),
    }
    several = stage_state(make_run([[(3, 4), (5, 2)], [(5, 2)]]), key="k")["batches"]
    assert [batch["names"]["prompt"] for batch in several] == [
        ("batch 1: requests 1–2", "batch 1"),
        ("batch 2: request 3", "batch 2"),
    ]


def test_tiles_are_those_that_the_stage_explains():
    state, explained = stage_state(WORKED, key="k"), stage_props()["tiles"]
    assert [tile["label"] for tile in explained] == [tile.label for tile in TILES.values()]
    assert all(set(tile) == {"label", "short", "text", "formula"} for tile in explained)
    parts = {"value", "unit", "note", "brief", "bar", "worked"}
    assert [set(tile) for tile in state["tiles"]] == [parts] * len(explained)


def test_briefs_are_short_whatever_the_counts():
    run = make_run([[(1, 512)] * 30 + [(512, 16)] * 2])
    briefs = [tile["brief"] for tile in stage_state(run, key="k")["tiles"]]
    assert briefs[1:] == ["mean", "mean", "15.3k of 16.4k", "992 of 16.4k", "at the end"]
    assert briefs[0].startswith("decode ")
    before = [tile["brief"] for tile in stage_state(cut(run, 0), key="k")["tiles"]]
    assert before[3:5] == ["not yet", "not yet"]


def test_worked_figures_repeat_the_formula_with_the_runs_numbers():
    worked = [tile["worked"] for tile in stage_state(WORKED, key="k")["tiles"]]
    assert worked[0] == "24 tokens / 2.00 s = 12.0 tok/s; decode 21 tokens / 1.50 s = 14.0 tok/s"
    assert worked[3:5] == ["16 / 36 = 44.4 %", "6 / 30 = 20.0 %"]
    before = [tile["worked"] for tile in stage_state(cut(WORKED, 0), key="k")["tiles"]]
    assert before[:5] == ["n/a"] * 5

"""A run as of any of its steps: the record, its figures, and what the stage is told of them."""

import itertools
import json
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.metrics import history, measure
from engine.requests import make_requests
from engine.run import KVBytes, until
from engine.static import StaticBatchEngine
from tests.figures import Size, made_up_run
from tests.tiny import EOS, scripted_lm, token_ids
from tests.unit.paper import WORKED, cut, make_run, with_steps
from viz import words
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

FULL = replace(
    with_steps(WORKED, lambda step: {"device_seconds": 0.15}),
    queued_seconds=1.5,
    kv_estimate=12_400,
    model=replace(WORKED.model, kv_dtype="float16", kv_bytes_per_token=46_080),
)
"""The worked example with everything told that a record can tell."""

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
    assert stride(make_run([[(8, 512)] * 32])) == 1


@pytest.mark.parametrize(
    "batches",
    [[[(1, 512)]] * 64, [[(1, MOST_MOMENTS + 1)]], [[(1, 10)]] * 600, [[(8, 2048)] * 64]],
    ids=["64 batches", "long", "600 batches", "64 rows"],
)
def test_a_long_run_has_a_bounded_number_of_moments(batches):
    run = make_run(batches)
    every = stride(run)
    assert every > 1
    count = len(list(history(run, every=every)))
    assert count == -(-len(run.steps) // every) + 1
    assert count <= MOST_MOMENTS + 1
    assert count * len(run.requests) <= MOST_ROWS_TOLD + 2 * len(run.requests)


def test_the_value_of_a_run_that_is_over_grows_no_faster_than_its_cells():
    cells = [Size(8, 256), Size(8, 512), Size(16, 512), Size(16, 1024)]
    sizes = [len(json.dumps(stage_state(made_up_run(size), key="k"))) for size in cells]
    for before, after in itertools.pairwise(sizes):
        assert 1 < after / before < 2.1


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
    named = {"label", "short", "text", "formula", "rows", "columns"}
    assert all(set(tile) == named for tile in explained)
    parts = {"value", "unit", "note", "brief", "bar", "worked", "facts"}
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
    assert worked[0] == "24 tokens / 2.00 s = 12.0 tok/s\ndecode: 21 tokens / 1.50 s = 14.0 tok/s"
    assert worked[3:5] == ["16 / 36 = 44.4 %", "6 / 30 = 20.0 %"]
    before = [tile["worked"] for tile in stage_state(cut(WORKED, 0), key="k")["tiles"]]
    assert before[:5] == ["n/a"] * 5


def table(run, key):
    """The table of a tile's panel: what is known of each of its rows."""
    tile = TILES[key]
    lines = dict(zip(TILES, stage_state(run, key="k")["tiles"], strict=True))[key]["facts"]
    return {
        name: line.split("\t")
        for name, line in zip(tile.rows, lines.split("\n") if lines else [], strict=False)
        if line
    }


def test_c6_the_panel_of_output_tells_where_the_wall_time_went():
    parts = {
        "prefill": ["0.500 s", "25.0 %"],
        "decode": ["1.500 s", "75.0 %"],
        "between forwards": ["0.000 s", "0.0 %"],
        "= wall time": ["2.000 s", "100 %"],
    }
    assert table(WORKED, "output") == parts
    under_way = list(table(cut(WORKED, 4), "output").items())
    assert under_way[-1] == ("= wall time so far", ["1.000 s", "100 %"])
    assert table(FULL, "output") == parts | {
        "device time": ["1.500 s", "75.0 %"],
        "in line, before it": ["1.500 s"],
    }


@settings(max_examples=60, deadline=None)
@given(SMALL, st.floats(1e-4, 9), st.floats(1e-4, 9), st.floats(0, 3))
def test_the_parts_of_the_wall_time_add_up_as_they_are_shown(batches, prefill, decode, pause):
    run = make_run(batches, prefill=prefill, decode=decode, pause=pause)
    *parts, whole = table(run, "output").values()
    amounts = [Decimal(seconds.removesuffix(" s").replace(",", "")) for seconds, _ in parts]
    assert sum(amounts) == Decimal(whole[0].removesuffix(" s").replace(",", ""))
    assert sum(Decimal(percent.removesuffix(" %")) for _, percent in parts) == 100
    assert min(amounts) >= 0


def test_the_panel_of_the_first_token_tells_each_wait():
    run = make_run([[(2, 3)], [(4, 2)]], prefill=0.5, decode=0.25)
    assert table(replace(run, queued_seconds=1.5), "ttft") == {
        "in line": ["1.500 s"],
        "waiting for the batch": ["0.500 s", "0.000 s", "1.000 s", "1.000 s"],
        "TTFT": ["0.500 s"] * 4,
        "= until the first token": ["2.500 s"],
    }
    assert list(table(run, "ttft")) == [*TILES["ttft"].rows[1:]]


@settings(max_examples=60, deadline=None)
@given(SMALL, st.floats(0, 20), st.floats(1e-4, 9), st.floats(0, 3))
def test_the_waits_until_the_first_token_add_up_as_they_are_shown(batches, queued, prefill, pause):
    run = replace(make_run(batches, prefill=prefill, pause=pause), queued_seconds=queued)
    *waits, total = (Decimal(mean.removesuffix(" s")) for mean, *_ in table(run, "ttft").values())
    assert sum(waits) == total


def test_c11_the_panel_of_tpot_tells_percentiles_and_their_method():
    times = {2: 0.02, 3: 0.01, 4: 0.03}
    run = with_steps(
        make_run([[(3, 4)]]), lambda step: {"seconds": times.get(step.forward, step.seconds)}
    )
    few = ["20 ms", "20 ms", "30 ms", "", "30 ms", "3 steps"]
    assert table(run, "tpot")["decode step"] == few
    assert table(cut(run, 2), "tpot")["decode step"] == [*["20 ms"] * 3, "", "20 ms", "1 step"]
    assert table(cut(run, 1), "tpot") == {}
    assert "nearest rank" in TILES["tpot"].text
    assert words.step_times(measure(run)) == (
        "median 20 ms, p90 30 ms, longest 30 ms (nearest rank of 3 steps)"
    )
    assert words.step_times(measure(cut(run, 1))) == "n/a"


def test_c11_p99_is_told_where_it_is_not_the_longest():
    run = with_steps(
        make_run([[(3, 102)]]), lambda step: {"seconds": 0.5 if step.forward == 102 else 0.02}
    )
    short = words.step_times(measure(cut(run, 100)))
    assert short == "median 20 ms, p90 20 ms, longest 20 ms (nearest rank of 99 steps)"
    whole = words.step_times(measure(run))
    assert whole == "median 20 ms, p90 20 ms, p99 20 ms (nearest rank of 101 steps)"
    # One row and many steps: the longest of both.
    assert [cells[3:5] for cells in table(run, "tpot").values()] == [
        ["", "500 ms"],
        ["", words.seconds(measure(run).mean_tpot)],
    ]
    many = make_run([[(3, 102)] * 100])
    assert [cells[3:5] for cells in table(many, "tpot").values()] == [["167 ms", ""]] * 2


def test_c2_a_row_of_one_token_is_in_no_statistic_of_tpot():
    run = make_run([[(3, 1), (5, 10)], [(3, 2)]], decode=0.25)
    assert table(run, "tpot")["TPOT"] == [*["250 ms"] * 3, "", "250 ms", "2 rows"]


def test_the_figure_of_a_tile_is_in_its_table():
    run = make_run([[(1, 3), (5, 10)], [(3, 2)]], decode=0.0213)
    tile = dict(zip(TILES, stage_state(run, key="k")["tiles"], strict=True))["tpot"]
    assert table(run, "tpot")["TPOT"][0] == f"{tile['value']} {tile['unit']}"


def test_the_panel_of_the_cache_tells_what_was_estimated_beside_what_was_measured():
    assert table(FULL, "kv") == {
        "estimated before the run": ["at most 12.4 kB"],
        "measured peak": ["15 B"],
        "per token of a row": ["46,080 bytes"],
        "number format of the cache": ["float16"],
        "number format of the weights": ["float32"],
    }
    assert "measured peak" not in table(cut(FULL, 0), "kv")
    assert table(WORKED, "kv") == {}


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (KVBytes(10, 2, 3), "10 B + 2 B + 3 B = 15 B"),
        (KVBytes(1_650_000, 1_250_000, 0), "1.7 MB + 1.2 MB + 0.0 MB = 2.9 MB"),
        (KVBytes(999_000, 1_000, 340_000), "1.0 MB + 0.0 MB + 0.3 MB = 1.3 MB"),
        (KVBytes(0, 0, 0), "0 B + 0 B + 0 B = 0 B"),
    ],
)
def test_the_parts_of_the_cache_add_up_in_one_unit_as_they_are_shown(held, told):
    run = with_steps(WORKED, lambda _: {"kv_bytes": held})
    tile = stage_state(run, key="k")["tiles"][-1]
    assert tile["worked"] == told
    parts = [part.split()[0] for part in told.split(" = ")[0].split(" + ")]
    assert tile["note"] == "live {} · padding {} · ended {}".format(*parts)
    assert f"{tile['value']} {tile['unit']}" == told.split(" = ")[1]


def test_c3_before_the_first_token_no_panel_tells_a_time():
    stopped = cut(FULL, 0, "stopped")
    assert {key: table(stopped, key) for key in ("output", "ttft", "tpot")} == {
        "output": {},
        "ttft": {},
        "tpot": {},
    }
    assert words.time_split(measure(stopped)) == "n/a"
    values = [tile["value"] for tile in stage_state(stopped, key="k")["tiles"]]
    assert values[:3] == ["n/a"] * 3


def test_the_wall_time_in_one_line():
    assert words.time_split(measure(FULL)) == (
        "2.000 s: prefill 0.500 s (25.0 %), decode 1.500 s (75.0 %), between forwards 0.000 s "
        "(0.0 %); device time 1.500 s; 1.500 s in line before it"
    )
    assert words.time_split(measure(WORKED)).endswith("(0.0 %)")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "n/a"),
        (0, "0 ms"),
        (2e-5, "0 ms"),
        (6e-5, "0.1 ms"),
        (0.00994, "9.9 ms"),
        (0.00996, "10 ms"),
        (0.118, "118 ms"),
        (0.9996, "1.0 s"),
    ],
)
def test_seconds_have_two_digits_where_a_step_is_short(seconds, told):
    assert words.seconds(seconds) == told


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.integers(0, 5000))
def test_shares_add_up_and_none_is_off_by_a_unit(amounts, units):
    given = words.shares(amounts, units)
    if total := sum(amounts):
        assert sum(given) == units
        for share, amount in zip(given, amounts, strict=True):
            assert abs(share - units * amount / total) < 1 + 1e-6
    else:
        assert given == [0] * len(amounts)


def test_a_run_that_tells_everything_is_replayed_with_all_of_it():
    now = {}
    for k, change in enumerate(moments(FULL)):
        now = merged(now, change)
        then = until(FULL, k)
        assert now == moment(then, measure(then))

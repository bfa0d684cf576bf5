"""Sweep -> the value of the "Batch size" tab."""

import json
from dataclasses import replace

import pytest

from engine import sweepfile
from engine.sweep import Progress, Sample, Series
from tests.unit.sweeps import UNDER_WAY, WHOLE, sized
from viz.sweep.desk import open_sweep, recorded_sweep
from viz.sweep.state import shown_state, sweep_value
from viz.words import under_way


def shown(sweep=WHOLE, progress=None, **options):
    return shown_state(sweep, progress, key="k", **options)


def test_points_are_medians_between_the_least_and_the_most():
    point = shown()["points"][1]
    assert point["size"] == 2
    assert point["rate"] == pytest.approx([16.0, 20 / 1.375, 20 / 1.125])
    assert point["tpot"] == pytest.approx([125.0, 112.5, 137.5])


def test_the_floor_is_the_larger_of_its_two_times_and_its_share_is_of_the_median():
    points = shown()["points"]
    assert [point["floor"] for point in points] == pytest.approx([50, 50, 80, 160])
    assert [point["reached"] for point in points] == ["50 %", "40 %", "40 %", "40 %"]


def test_the_table_tells_every_figure():
    state = shown()
    line = dict(zip(state["columns"], state["rows"][3], strict=True))
    assert line == {
        "Batch size": "8",
        "Prompt tokens per row": "5",
        "Output, tok/s": "20.0",
        "Speed-up over batch size 1": "2.00 ×",
        "TTFT": "400 ms",
        "TPOT": "400 ms",
        "Floor": "160 ms, compute",
        "Of the limit": "40 %",
        "Spread of tok/s": "20.2 %",
    }


def test_c2_what_was_not_measured_is_not_zero():
    untimed = Series("engine", (Sample(elapsed_seconds=1.0, generated_tokens=10),))
    size = replace(sized(1), engine=untimed, floor=None)
    state = shown(replace(WHOLE, batch_sizes=(1,), sizes=(size,)))
    [point], [line] = state["points"], state["rows"]
    assert (point["tpot"], point["floor"], point["reached"]) == (None, None, "")
    assert line[4:] == ["n/a", "n/a", "n/a", "n/a", "1 run"]


def test_sizes_to_come_have_their_place_in_the_table_and_on_the_axis():
    state = shown(UNDER_WAY, Progress(4, "engine", 2, 3))
    assert state["planned"] == [1, 2, 4, 8]
    assert [point["size"] for point in state["points"]] == [1, 2, 4]
    assert [line[0] for line in state["rows"]] == ["1", "2", "4", "8"]
    assert set(state["rows"][3][1:]) == {"–"}
    assert (state["heading"], state["record"]) == ("Batch size 4: run 2 of 3", "")


def test_a_size_that_has_only_begun_is_not_drawn():
    begun = replace(sized(4), engine=Series("engine"))
    state = shown(replace(UNDER_WAY, sizes=(sized(1), sized(2), begun)))
    assert [point["size"] for point in state["points"]] == [1, 2]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, "Beginning"),
        (Progress(0, "rates", 1, 1), "Measuring what the device can do"),
        (Progress(8, "warm-up", 1, 1), "Batch size 8: warm-up 1 of 1, not counted"),
        (Progress(8, "engine", 2, 3), "Batch size 8: run 2 of 3"),
        (Progress(8, "memory", 1, 1), "Batch size 8: measuring its memory"),
        (Progress(8, "generate", 2, 3), "Batch size 8: model.generate, run 2 of 3"),
        (Progress(1, "naive", 2, 3), "Batch size 1: no KV cache, run 2 of 3"),
    ],
)
def test_c8_what_is_under_way_is_told_and_a_warm_up_is_said_not_to_count(progress, words):
    assert under_way(progress) == words


def test_c8_the_line_below_says_how_many_warm_ups_were_discarded():
    what, how = shown()["strip"]
    assert what == "paper · float32 · CPU, 2 threads"
    assert "10 new tokens · median of 3 runs, 1 warm-up discarded · 30 Nov 2026" in how


def test_the_least_time_left_follows_from_the_newest_size_that_is_whole():
    # Four runs of each size to come, none shorter than the shortest of size 2: 1.125 s.
    whole = replace(UNDER_WAY, sizes=(sized(1), sized(2)))
    assert shown(whole)["remark"].startswith("At least 9 s more")
    assert shown(replace(UNDER_WAY, sizes=(sized(1, runs=2),)))["remark"] == ""
    assert shown(replace(UNDER_WAY, sizes=WHOLE.sizes))["remark"] == ""


def test_the_least_time_left_has_nothing_of_the_size_under_way():
    sixteen = replace(UNDER_WAY, batch_sizes=(1, 2, 4, 8, 16))
    assert [len(size.engine.samples) for size in sixteen.sizes] == [3, 3, 1]
    assert shown(sixteen)["remark"].startswith("At least 9 s more")  # of 8 and of 16


@pytest.mark.parametrize(
    ("changes", "heading", "remark"),
    [
        (
            {},
            "Done: 4 batch sizes",
            "8 times the rows gave 2.0 times the tokens per second; "
            "a token took 400 ms instead of 100 ms.",
        ),
        (
            {"status": "stopped", "sizes": UNDER_WAY.sizes},
            "Stopped after run 1 of 3 at batch size 4",
            "4 times the rows gave 2.2 times the tokens per second; "
            "a token took 180 ms instead of 100 ms.",
        ),
        (
            {"status": "error", "error": "It needs 9 GB.", "sizes": WHOLE.sizes[:1]},
            "Ended early after run 3 of 3 at batch size 1",
            "It needs 9 GB.",
        ),
        (
            {"status": "stopped", "sizes": ()},
            "Stopped before anything was measured",
            "",
        ),
    ],
)
def test_the_end_says_what_came_out_and_why_it_was_early(changes, heading, remark):
    state = shown(replace(WHOLE, **changes))
    assert (state["heading"], state["remark"]) == (heading, remark)
    assert sweepfile.loads(state["record"]) == replace(WHOLE, **changes)


def test_published_figures_are_multiples_of_their_own_size_and_labelled():
    state = shown()
    assert [tuple(point) for point in state["published"]] == [
        (1, 1.0),
        (2, pytest.approx(64.3 / 33.1)),
        (4, pytest.approx(131.5 / 33.1)),
        (8, pytest.approx(257.3 / 33.1)),
    ]
    brief, more = state["note"]
    assert brief == "Published by nanoLLMServe: other model, other hardware; not measured here."
    assert "33.1, 64.3, 131.5 and 257.3 tok/s" in more
    assert "1.93 to 1.99 s per batch" in more


def test_published_figures_begin_with_the_first_size_or_are_left_out():
    from_two = replace(WHOLE, batch_sizes=(2, 4), sizes=(sized(2), sized(4)))
    assert tuple(shown(from_two)["published"][0]) == (2, 1.0)
    assert "Speed-up over batch size 2" in shown(from_two)["columns"]
    three = replace(sized(4), batch_size=3, prompt_tokens=(5, 5, 5))
    from_three = shown(replace(WHOLE, batch_sizes=(3,), sizes=(three,)))
    assert (from_three["published"], from_three["note"]) == ([], [])


def test_a_baseline_that_ran_beside_has_a_column():
    twice = tuple(
        replace(sample, elapsed_seconds=2 * sample.elapsed_seconds)
        for sample in sized(2).engine.samples
    )
    compared = replace(sized(2), baselines=(Series("generate", twice),))
    state = shown(replace(WHOLE, batch_sizes=(1, 2), sizes=(sized(1), compared)))
    assert state["columns"][-1] == "Time against model.generate"
    assert [line[-1] for line in state["rows"]] == ["n/a", "0.50 ×"]


def test_the_value_is_strict_json_and_none_leaves_the_charts_as_they_are():
    json.dumps(sweep_value(shown()), allow_nan=False)
    assert sweep_value(text="No.", kind="error") == {
        "notice": {"text": "No.", "kind": "error"},
        "busy": False,
        "shown": None,
    }


def test_a_saved_sweep_opens_as_it_was():
    state = open_sweep({"record": sweepfile.dumps(WHOLE)})["shown"]
    assert state | {"key": "k"} == shown()


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({}, "Not a saved sweep: it is not text."),
        (None, "Not a saved sweep: it is not text."),
        ({"record": "{"}, "Not a saved sweep: it is not JSON (line 1)."),
        ({"record": sweepfile.dumps(UNDER_WAY)}, "The sweep was saved before it ended."),
    ],
)
def test_what_is_no_saved_sweep_is_told_in_a_sentence(question, sentence):
    assert open_sweep(question) == {"error": sentence}


def test_the_sweep_that_comes_with_the_page_is_whole_and_says_that_it_was_recorded():
    state = recorded_sweep()
    assert (state["status"], state["recorded"]) == ("done", True)
    assert [point["size"] for point in state["points"]] == state["planned"]

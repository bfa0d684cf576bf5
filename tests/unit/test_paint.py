"""The picture of a run: every bar is what the record says, where the record says."""

import tracemalloc
from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.run import KVBytes, until
from tests.unit.paper import WORKED, make_run
from tests.unit.pictures import bars, lines, names, parse, places
from viz.areas import memory
from viz.columns import bars as axis_bars
from viz.columns import columns
from viz.paint import slots, swatch
from viz.slide.slide import slide_svg
from viz.slots import slot_states
from viz.svg import PAGE, Box, clean, element, number, picture, text
from viz.theme import DARK, LIGHT

BOX = Box(10, 20, 1000, 300)
THREE_BATCHES = make_run([[(3, 4), (9, 2)], [(5, 1), (2, 8)], [(4, 3)]])
RUNS = st.lists(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
).map(make_run)


def drawn(run, colours=LIGHT, **more):
    return parse(picture(1020, 340, slots(run, BOX, colours, **more), title="a run"))


def remembered(run, colours=LIGHT, **more):
    return parse(picture(1020, 340, memory(run, BOX, colours, **more), title="a run"))


def counted(run):
    """(bars, columns) of each state, straight from the states of the slots."""
    found = {}
    for batch in slot_states(run):
        for row in [*batch.prefill, *batch.generation]:
            for state, group in groupby(row):
                number_of_bars, width = found.get(state, (0, 0))
                found[state] = (number_of_bars + 1, width + len(list(group)))
    found.pop("empty", None)
    return found


@pytest.mark.parametrize("run", [WORKED, THREE_BATCHES], ids=["worked", "batches"])
def test_a_run_of_equal_state_is_one_bar_as_wide_as_its_columns(run):
    root = drawn(run, left=100)
    column = 900 / columns(run).total
    expected = counted(run)
    assert {"active", "padded", "idle"} <= set(expected)
    for state, (how_many, width) in expected.items():
        found = bars(root, state)
        assert len(found) == how_many
        assert sum(bar["width"] for bar in found) == pytest.approx(width * column, abs=0.1)
    assert bars(root, "planned") == []


def test_bars_stand_where_their_columns_are():
    # 3 of 12 prompt columns are real and stand right; a gap of one column; 4 of 10 new tokens.
    root = drawn(WORKED, left=100)
    column = 900 / (12 + 1 + 10)
    assert columns(WORKED).total == 23
    first_row = min(bar["y"] for bar in bars(root, "active"))
    left, right = sorted(
        (bar for bar in bars(root, "active") if bar["y"] == first_row), key=lambda bar: bar["x"]
    )
    assert left["x"] == pytest.approx(110 + 9 * column, abs=0.01)
    assert left["width"] == pytest.approx(3 * column, abs=0.01)
    assert right["x"] == pytest.approx(110 + 13 * column, abs=0.01)
    assert right["width"] == pytest.approx(4 * column, abs=0.01)


def test_rows_stand_below_each_other_inside_the_box():
    tops = sorted({bar["y"] for bar in bars(drawn(WORKED), "active")})
    assert len(tops) == 3
    heights = {bar["height"] for bar in bars(drawn(WORKED), "active")}
    assert len(heights) == 1
    assert tops[0] >= BOX.y
    assert tops[1] - tops[0] > heights.pop()
    assert tops[2] + 20 < BOX.bottom


def test_what_is_planned_is_drawn_while_a_run_is_under_way():
    root = drawn(until(WORKED, 4), left=100)
    column = 900 / 23
    planned = bars(root, "planned")
    assert len(planned) == 3
    assert {round(bar["width"] / column) for bar in planned} == {6}
    stopped = drawn(replace(until(WORKED, 4), status="stopped"), left=100)
    assert bars(stopped, "planned") == []


def test_batches_that_wait_are_planned_and_those_that_never_ran_are_not_shown():
    under_way = until(THREE_BATCHES, 4)
    assert len(columns(under_way).places) == 3
    assert len(bars(drawn(under_way), "planned")) == 2 * 2 + 2
    assert len(columns(replace(under_way, status="error")).places) == 1


def test_batches_are_two_gaps_apart():
    axis = columns(THREE_BATCHES)
    assert axis.gap == 1
    assert places(THREE_BATCHES) == [
        {"batch": 0, "promptStart": 0, "start": 10, "width": 4},
        {"batch": 1, "promptStart": 16, "start": 22, "width": 8},
        {"batch": 2, "promptStart": 32, "start": 37, "width": 3},
    ]
    assert axis.total == 40
    assert columns(make_run([[(400, 600)]])).gap == 12


def test_what_is_planned_takes_no_memory():
    """A file of a few kB may name any budget; and prompts are planned too before they are read."""
    vast = tuple(replace(each, max_new_tokens=10**9) for each in THREE_BATCHES.requests)
    tracemalloc.start()
    for step in (0, 1, 4, 5):
        run = until(replace(THREE_BATCHES, requests=vast), step)
        axis = columns(run)
        assert axis.total > 10**9
        widest = {}
        for bar in axis_bars(run, axis):
            widest[bar.state] = max(bar.width, widest.get(bar.state, 0))
        assert widest["planned"] > 9 * 10**8
        drawn(run), remembered(run), slide_svg(run)
        assert run.status == "running"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20


def test_an_ended_batch_keeps_its_columns_while_the_next_one_runs():
    short = replace(
        THREE_BATCHES,
        requests=tuple(replace(each, max_new_tokens=50) for each in THREE_BATCHES.requests),
    )
    first, second, _ = columns(until(short, 5)).places
    assert (first.width, second.width) == (4, 50)


def test_a_slot_without_a_request_is_empty():
    last = drawn(make_run([[(4, 3), (4, 3)], [(4, 3)]]))
    assert len(bars(last, "active")) == 2 * 3


def test_padding_and_idle_have_a_sign_besides_their_colour():
    def strokes(root):
        return [path for path in root.iter() if path.get("stroke-opacity")]

    hatch, dots = strokes(drawn(WORKED))
    assert "stroke-dasharray" not in hatch.attrib
    assert dots.get("stroke-dasharray").startswith("0 ")
    assert dots.get("stroke-linecap") == "round"
    assert strokes(drawn(make_run([[(5, 4), (5, 4)]]))) == []


def test_a_swatch_looks_like_its_bars():
    for state, signs in (("active", 0), ("padded", 1), ("idle", 1)):
        root = parse(picture(20, 20, swatch(Box(0, 0, 20, 20), state, LIGHT), title="x"))
        assert len(bars(root, state)) == 1
        assert sum("stroke-opacity" in each.attrib for each in root.iter()) == signs


def test_the_hatch_stays_inside_its_bars():
    root = drawn(make_run([[(3, 1), (12, 1)]]))
    (padded,) = bars(root, "padded")
    (path,) = [each for each in root.iter() if each.get("stroke-opacity")]
    pieces = path.get("d").removeprefix("M").split("M")
    assert len(pieces) > 5
    for piece in pieces:
        start, delta = piece.split("l")
        x, y = map(float, start.split())
        dx, dy = map(float, delta.split())
        assert dx == -dy
        for px, py in ((x, y), (x + dx, y + dy)):
            assert padded["x"] - 0.02 <= px <= padded["x"] + padded["width"] + 0.02
            assert padded["y"] - 0.02 <= py <= padded["y"] + padded["height"] + 0.02


def test_single_columns_can_be_told_apart_while_they_are_wide_enough():
    def separators(run):
        return [p.get("d").count("M") for p in drawn(run).iter() if p.get("stroke") == "#ffffff"]

    assert 11 + 9 in separators(WORKED)
    wide = make_run([[(400, 600), (400, 600)]])
    assert separators(wide) == []


def test_captions_count_the_columns():
    said = [line.said for line in lines(drawn(WORKED))]
    assert said == [
        "1",
        "2",
        "3",
        "12 prompt tokens, all in one prefill forward",
        "10 new tokens, one forward each",
    ]


def test_captions_shrink_with_their_place_and_never_overlap():
    for size in range(10, 60, 3):
        for run in (WORKED, THREE_BATCHES):
            said = sorted(lines(drawn(run, size=size)), key=lambda line: (line.baseline, line.left))
            for one, other in pairwise(said):
                assert one.baseline != other.baseline or one.right <= other.left


def test_batches_are_named_with_their_requests():
    said = [line.said for line in lines(drawn(THREE_BATCHES, size=8))]
    assert {"slot 1", "slot 2", "batch 1: requests 1–2", "batch 3: request 5"} <= set(said)


def test_many_rows_are_not_all_numbered():
    run = make_run([[(4, 3)] * 32])
    labels = [line for line in lines(drawn(run, size=24, left=100)) if line.right < 110]
    assert labels[0].said == "1"
    assert 4 < len(labels) < 20
    assert all(b.baseline - a.baseline >= 0.9 * 24 for a, b in pairwise(labels))


def areas(root):
    return {each.get("data-state"): each.get("d") for each in root.iter() if each.get("d")}


def levels(path):
    """[(level in pixels above the floor, column it ends at)] of an area."""
    floor = float(path.rpartition("V")[2].removesuffix("Z"))
    stairs = path.split("V")[1:-1]
    return [(floor - float(y), float(x)) for y, x in (stair.split("H") for stair in stairs)]


def with_bytes(run, *amounts):
    steps = tuple(
        replace(step, kv_bytes=KVBytes(*each))
        for step, each in zip(run.steps, amounts, strict=True)
    )
    return replace(run, steps=steps)


def test_memory_stacks_what_each_forward_held():
    run = with_bytes(make_run([[(3, 3), (5, 1)]]), (50, 10, 0), (40, 10, 20), (40, 20, 40))
    paths = areas(remembered(run, rows=False, left=100))
    column = 900 / (5 + 1 + 3)
    ends = [pytest.approx(110 + end * column, abs=0.01) for end in (7, 8, 9)]
    tall = [(pytest.approx(300 * part), end) for part, end in zip((0.6, 0.7, 1), ends, strict=True)]
    assert levels(paths["idle"]) == tall
    assert levels(paths["padded"]) == [
        (pytest.approx(180), ends[0]),
        *[(pytest.approx(height), end) for height, end in zip((150, 180), ends[1:], strict=True)],
    ]
    # Two forwards with the same bytes are one stair.
    assert levels(paths["active"]) == [(pytest.approx(150), ends[0]), (pytest.approx(120), ends[2])]


def test_memory_names_its_peak_and_its_rows():
    run = with_bytes(make_run([[(3, 2), (5, 1)]]), (3_000_000, 1_000_000, 100_000), (9, 9, 9))
    assert [line.said for line in lines(remembered(run))] == ["4.1 MB", "2 rows"]
    assert [line.said for line in lines(remembered(run, rows=False, label="KV"))] == ["KV"]


def test_rows_at_work_step_down():
    root = remembered(make_run([[(3, 3), (5, 1)]]), left=100)
    (line,) = [each for each in root.iter() if each.get("stroke") == LIGHT["text"]]
    column = 900 / 9
    bottom = BOX.bottom
    full, half = 0.3 * 300, 0.15 * 300
    assert line.get("d") == (
        f"M110 {number(bottom - full)}V{number(bottom - full)}H{number(110 + 7 * column)}"
        f"V{number(bottom - half)}H{number(110 + 9 * column)}"
    )


def test_slots_and_memory_share_their_columns():
    right_of_slots = max(bar["x"] + bar["width"] for bar in bars(drawn(WORKED), "idle"))
    path = areas(remembered(WORKED))["idle"]
    assert levels(path)[-1][1] == pytest.approx(right_of_slots, abs=0.02)
    left_of_slots = min(bar["x"] for bar in bars(drawn(WORKED), "padded"))
    assert float(path.removeprefix("M").split(" ")[0]) == pytest.approx(left_of_slots, abs=0.02)


def test_before_the_first_step_nothing_is_held():
    root = remembered(until(WORKED, 0))
    assert "idle" not in areas(root)
    assert [line.said for line in lines(root)] == ["0 B", "0 rows"]


def test_in_the_page_every_colour_is_a_variable():
    root = drawn(WORKED, PAGE)
    used = {e.get(k) for e in root.iter() for k in ("fill", "stroke")} - {None, "none"}
    assert used
    assert all(colour.startswith("var(--bs-") for colour in used)
    assert set(PAGE) == set(DARK)


def test_text_is_data():
    root = parse(picture(9, 9, text(0, 9, "<b>&\x00\ud800", size=9, colour='"'), title="<i>\x07"))
    assert names(root) == {"svg", "title", "text"}
    assert lines(root)[0].said == "<b>&\ufffd\ufffd"
    assert root[0].text == "<i>\ufffd"


def test_a_right_to_left_line_keeps_its_place():
    for anchor, left in (("left", 100), ("right", 100 - 20 * 0.62)):
        (line,) = lines(
            parse(
                picture(
                    9,
                    9,
                    text(100, 9, "ع", size=20, colour="red", anchor=anchor, rtl=True),
                    title="x",
                )
            )
        )
        assert line.left == pytest.approx(left)


def test_numbers_are_short_and_attributes_escaped():
    assert [number(each) for each in (3, 3.14159, -0.5, 0.001, -0.001, 1200.0)] == [
        "3",
        "3.14",
        "-0.5",
        "0",
        "0",
        "1200",
    ]
    assert element("a", x=None, b_c='"<', class_="d") == '<a b-c=\'"&lt;\' class="d"/>'
    assert element("a", b="\x00") == '<a b="\ufffd"/>'
    assert clean("a\tb\x0bc\ufffe") == "a\tb\ufffdc\ufffd"


@settings(max_examples=40, deadline=None)
@given(RUNS, st.data())
def test_any_run_at_any_step_is_drawn_whole(run, data):
    run = until(run, data.draw(st.integers(0, len(run.steps))))
    root = drawn(run, data.draw(st.sampled_from([LIGHT, PAGE])), size=data.draw(st.integers(8, 48)))
    for state, (how_many, _) in counted(run).items():
        assert len(bars(root, state)) == how_many
    remembered(run)

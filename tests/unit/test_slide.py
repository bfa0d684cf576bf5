"""The slide: legible from the last row, whole, and nothing in it but shapes and words."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.run import Run, until
from tests.unit.paper import INFO, WORKED, make_run
from tests.unit.pictures import SVG, bars, lines, names, parse
from viz.slide.slide import slide_svg
from viz.theme import DARK, FONT, LIGHT

TUTORIAL = make_run([[(10, 15), (30, 10), (5, 20), (20, 12)]])
HUGE = make_run([[(20 + 11 * slot, 512 - 13 * slot) for slot in range(32)]])
BATCHES = make_run([[(3, 4), (9, 2)], [(5, 1), (2, 8)], [(4, 3)]])
LONG = "Antidisestablishmentarianism, " * 30


def telling(run: Run, *texts: str, prompts: tuple[str, ...] = ()) -> Run:
    """The run with these answers and prompts in place of its own."""
    requests = [
        replace(request, prompt=prompt)
        for request, prompt in zip(run.requests, prompts, strict=False)
    ]
    return replace(
        run,
        texts=texts + run.texts[len(texts) :],
        requests=(*requests, *run.requests[len(requests) :]),
    )


RUNS = {
    "tutorial": TUTORIAL,
    "one column": make_run([[(12, 1)]]),
    "two rows": make_run([[(12, 5), (2, 9)]]),
    "eight rows": make_run([[(5 + slot, 20 + slot) for slot in range(8)]]),
    "huge": HUGE,
    "huge, cut": until(HUGE, 100),
    "batches": BATCHES,
    "batches, cut": until(BATCHES, 7),
    "serial": make_run([[(5, 4)] for _ in range(12)]),
    "before the first step": until(TUTORIAL, 0),
    "cut": until(TUTORIAL, 8),
    "stopped": replace(until(TUTORIAL, 8), status="stopped"),
    "failed": replace(until(TUTORIAL, 0), status="error", error="Out of memory."),
    "long": telling(
        TUTORIAL, LONG, LONG.replace(" ", ""), "海" * 300, "🌊" * 300, prompts=(LONG,) * 4
    ),
    "long names": replace(
        TUTORIAL, model=replace(INFO, name="a/" + "b" * 90, device="NVIDIA " * 9)
    ),
    "fast": replace(
        HUGE,
        steps=tuple(
            replace(s, started=s.started / 1e4, seconds=s.seconds / 1e4) for s in HUGE.steps
        ),
    ),
}


@pytest.fixture(params=RUNS, ids=lambda name: name)
def run(request):
    return RUNS[request.param]


def slide(run, **look):
    return parse(slide_svg(run, **look))


def said(run, **look):
    return [line.said for line in lines(slide(run, **look))]


def test_it_is_vector_and_stands_alone(run):
    svg = slide_svg(run)
    root = parse(svg)
    assert root.get("viewBox") == "0 0 1920 1080"
    assert root.get("role") == "img"
    assert names(root) <= {"svg", "title", "desc", "g", "rect", "path", "text"}
    assert "href" not in svg
    assert "url(" not in svg
    assert all(name in root.get("font-family") for name in FONT)


def test_all_type_is_at_least_24_points(run):
    sizes = [line.size for line in lines(slide(run))]
    assert len(sizes) > 15
    # 13.33 inches are 960 points and 1920 pixels.
    assert min(sizes) >= 48


@pytest.mark.parametrize("recorded", [False, True])
def test_every_line_is_on_the_slide(run, recorded):
    for line in lines(slide(run, recorded=recorded)):
        assert line.left >= 24, line
        assert line.right <= 1920 - 24, line
        assert 0.75 * line.size <= line.baseline <= 1080 - 0.25 * line.size, line


@pytest.mark.parametrize("recorded", [False, True])
def test_no_two_lines_overlap(run, recorded):
    placed = sorted(lines(slide(run, recorded=recorded)), key=lambda line: line.left)
    for place, one in enumerate(placed):
        for other in placed[place + 1 :]:
            apart = abs(one.baseline - other.baseline)
            assert one.right <= other.left or apart >= 0.8 * min(one.size, other.size), (one, other)


def test_the_same_run_gives_the_same_bytes(run):
    assert slide_svg(run) == slide_svg(run)


def test_it_tells_the_figures_of_the_tutorial():
    told = said(TUTORIAL)
    assert told[0] == "Done after 20 steps"
    for label, value, unit, note in (
        ("Padding", "45.8", "%", "55 of 120"),
        ("Idle", "28.8", "%", "23 of 80"),
    ):
        at = told.index(label, told.index("Output"))
        assert told[at : at + 4] == [label, value, unit, note]
    assert {"Output", "First token", "Per token", "KV cache", "tok/s"} <= set(told)
    assert {"working", "padding", "idle: ended, still in the batch"} <= set(told)


def test_a_step_of_a_run_says_where_it_is():
    told = said(until(TUTORIAL, 12))
    assert told[:2] == ["Step 12 of 20", "2 of 4 rows still working"]
    assert bars(slide(until(TUTORIAL, 12)), "planned")


def test_the_caption_says_what_ran():
    info = replace(INFO, name="HuggingFaceTB/SmolLM2-135M-Instruct", dtype="bfloat16")
    run = replace(TUTORIAL, model=info)
    told = said(run, recorded=True)[-1]
    assert told == "SmolLM2-135M-Instruct · bfloat16 · CPU · batch of 4 · 1 Jan 2025 · recorded"
    assert "recorded" not in " ".join(said(run))


def test_a_serial_run_is_captioned_like_on_the_page():
    run = RUNS["serial"]
    serial = replace(run, settings=replace(run.settings, engine="serial"))
    assert said(serial)[-2:] == ["paper · float32 · CPU · one by one · 1 Jan 2025", "Batchscope"]


def test_a_very_long_text_is_cut_before_it_is_measured():
    run = telling(TUTORIAL, "x" * 3_000_000, prompts=("y" * 3_000_000,))
    short = telling(TUTORIAL, "x" * 3_000, prompts=("y" * 3_000,))
    assert slide_svg(run) == slide_svg(short)


def test_names_give_way_to_facts():
    told = said(RUNS["long names"], recorded=True)[-1]
    assert told.endswith("· batch of 4 · 1 Jan 2025 · recorded")
    assert told.count("…") == 2
    assert " · float32 · NVIDIA" in told


def test_large_counts_are_rounded_where_there_is_no_room():
    told = said(HUGE)
    slots = sum(512 - 13 * slot for slot in range(32))
    idle = 32 * 512 - slots
    assert f"{idle / 1000:.1f}k of 16.4k" in told


def test_few_requests_show_their_prompts_and_answers():
    run = telling(TUTORIAL, "Paris.", "Tokyo.", prompts=("France?", "Japan?"))
    told = said(run)
    for expected in (["1", "France?", "Paris."], ["2", "Japan?", "Tokyo."]):
        at = len(told) - 1 - told[::-1].index(expected[1]) - 1
        assert told[at : at + 3] == expected


def test_more_requests_show_their_answers_and_many_are_counted():
    eight = telling(RUNS["eight rows"], *(f"answer {k}" for k in range(8)))
    assert {f"answer {k}" for k in range(8)} <= set(said(eight))
    assert not any("more" in line for line in said(eight))
    huge = telling(HUGE, *(f"answer {k}" for k in range(32)))
    assert [line for line in said(huge) if line.startswith("answer")] == [
        "answer 0",
        "answer 1",
        "answer 2",
    ]
    assert "+ 29 more" in said(huge)


def test_a_request_without_text_says_how_it_stands():
    assert said(until(TUTORIAL, 0)).count("waiting") == 4
    failed = telling(RUNS["failed"], *[""] * 4)
    assert said(failed).count("failed") == 4


def test_prompts_and_answers_are_data():
    nasty = "</text><script>alert(1)</script>&amp;\x00\x1b"
    root = slide(telling(TUTORIAL, nasty, prompts=(nasty,)))
    assert "script" not in names(root)
    shown = [line.said for line in lines(root) if line.said.startswith("</text><script>")]
    assert len(shown) == 2
    assert "\ufffd\ufffd" in slide_svg(telling(TUTORIAL, "a\x00\x1b"))


def test_right_to_left_texts_start_at_the_right():
    root = slide(telling(TUTORIAL, "عن البحر", "sea"))
    placed = {line.said: line for line in lines(root)}
    (arabic,) = [e for e in root.iter(f"{SVG}text") if e.text == "عن البحر"]
    assert arabic.get("direction") == "rtl"
    middle = 960
    assert placed["عن البحر"].right == pytest.approx(middle - 6 - 24)
    assert placed["sea"].left > middle


def test_each_theme_has_its_own_colours():
    light, dark = slide_svg(WORKED), slide_svg(WORKED, theme="dark")
    assert LIGHT["ground"] in light
    assert DARK["ground"] in dark
    only_light = set(LIGHT.values()) - set(DARK.values())
    assert not any(colour in dark for colour in only_light)


def test_it_has_a_name_and_a_description_for_screen_readers():
    title, description = list(slide(TUTORIAL))[:2]
    assert title.text == "Batchscope · Done after 20 steps"
    assert "55 of 120 prompt slots were padding" in description.text


def test_a_large_run_is_a_small_file():
    assert len(slide_svg(HUGE)) < 150_000


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=9),
        min_size=1,
        max_size=3,
    ).map(make_run),
    st.text(max_size=90),
    st.data(),
)
def test_any_run_makes_a_slide(run, text, data):
    run = until(run, data.draw(st.integers(0, len(run.steps))))
    root = slide(telling(run, text, prompts=(text,)))
    for line in lines(root):
        assert line.size >= 48
        assert line.left >= 0
        assert line.right <= 1920

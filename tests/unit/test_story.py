"""The "How it works" tab: its figures come out of its runs, and nothing in it is ever run."""

import ast
import inspect
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from engine.metrics import measure
from engine.presets import PRESETS
from tests.unit.paper import make_run
from viz import theme
from viz.recorded import SIZES
from viz.story import chapters as chapters_module
from viz.story import telling
from viz.story.chapters import Runs, chapters, continuous, idle, limits, queue, recorded_runs
from viz.story.curve import ticks
from viz.story.pictures import NARROW, WIDE, limits_picture, next_picture, time_picture
from viz.story.story import Story, as_template, story_html
from viz.story.telling import NANO_LLM_SERVE, idle_formula, padding_formula
from viz.story.timetable import Span, continuous_timetable, recorded_timetable


def sized(rows, **times):
    return make_run([[(5, 16)] * rows], **times)


PAPER = Runs(
    tutorial=make_run([[(2, 3), (4, 1)]]),
    serial=make_run([[(2, 3)], [(4, 1)]]),
    straggler=make_run([[(2, 1), (2, 1), (2, 9)]]),
    waves=make_run([[(2, 2), (2, 6)], [(3, 4), (3, 1)]]),
    sizes=(sized(1), sized(2), sized(4)),
)


class Page(HTMLParser):
    """Tags with their attributes, in order; entities are read as a browser reads them."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def all(self, *names):
        return [(tag, attributes) for tag, attributes in self.tags if tag in names]


@pytest.fixture(scope="module")
def recorded_page():
    return story_html(recorded_runs())


def shown(html):
    """All text of a page, pictures included."""
    told = []
    parser = HTMLParser()
    parser.handle_data = told.append
    parser.feed(html)
    return "\n".join(told)


def prose(chapter):
    return " ".join(chapter.text)


def test_the_recorded_tutorial_gives_the_tutorials_figures():
    run = recorded_runs().tutorial
    assert padding_formula(run).endswith("= (20 + 0 + 25 + 10) / (4 · 30) = 55 / 120 = 46 %")
    assert idle_formula(run).endswith("= (5 + 10 + 0 + 8) / (4 · 20) = 23 / 80 = 29 %")


def test_the_page_says_so_too(recorded_page):
    assert "55 of 120 prompt slots were padding: 46 %" in recorded_page
    assert "23 of 80 decode slots, 29 %" in recorded_page


def test_formulas_add_up_over_batches():
    run = make_run([[(1, 1), (4, 3)], [(2, 2)]])
    assert padding_formula(run).endswith("= (3 + 0 + 0) / (2 · 4 + 1 · 2) = 3 / 10 = 30 %")
    assert idle_formula(run).endswith("= (2 + 0 + 0) / (2 · 3 + 1 · 2) = 2 / 8 = 25 %")


def test_other_runs_make_another_story():
    told = [prose(chapter) for chapter in chapters(PAPER)]
    assert "took 4 forwards and 1.3 s" in told[0]  # 2 prefills of 0.5 s, 2 decodes of 1.5 / 9 s
    assert "took 3 forwards instead of 4, and 833 ms instead of 1.3 s" in told[1]
    assert "2 of 8 prompt slots were padding: 25 %" in told[2]
    assert "2 of 6 decode slots, 33 %" in told[3]
    assert "makes it 16 of 27, 59 %" in told[3]
    assert "2 requests, 4 slots" not in told[4]
    assert "4 requests, 2 slots: that makes 2 batches" in told[4]
    assert "held 8 B: 3 B of rows still running, 2 B of their pads, and 3 B" in told[5]


def typed_in(source):
    """Strings with digits in a Python source, without docstrings and number formats."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec:
            skipped |= {id(part) for part in ast.walk(node.format_spec)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [
        node.value
        for node in strings
        if isinstance(node.value, str) and id(node) not in skipped and re.search(r"\d", node.value)
    ]


def test_no_figure_is_typed_in():
    names = re.compile("Qwen3-8B|bf16|A100|Request 1 alone")
    told = typed_in(inspect.getsource(chapters_module)) + typed_in(inspect.getsource(telling))
    assert [text for text in told if re.search(r"\d", names.sub("", text))] == []


def test_a_figure_that_is_typed_in_is_found():
    assert typed_in("def f(x):\n    'in 9 s'\n    return f'{x:.1f} of 120'") == [" of 120"]


def test_other_runs_are_named_as_what_ran(recorded_page):
    assert "smollm2-135m" in shown(recorded_page)
    assert "smollm2" not in shown(story_html(PAPER))


def test_a_wait_is_told_in_seconds_of_the_run():
    run = make_run([[(2, 1), (2, 4)], [(3, 1)]], prefill=1.0, decode=0.5)
    told = prose(queue(run))
    assert (
        "The last batch **waited** 2.5 s, while 3 of 8 decode slots of the first were idle" in told
    )
    assert "Request 1 had its first token 1.0 s" in told
    assert "request 3 after 3.5 s" in told


def test_idle_slots_and_time_are_two_things():
    """Medians of the decode steps by how many rows worked; the prefill is in none."""
    run = make_run([[(2, 3), (2, 6)]])
    seconds = [9.0, 0.1, 0.3, 0.5, 0.7, 0.6]
    steps = [replace(step, seconds=s) for step, s in zip(run.steps, seconds, strict=True)]
    told = prose(idle(run, replace(run, steps=tuple(steps))))
    assert "took 200 ms while 2 rows worked, and 600 ms with 1 left" in told


def test_the_limits_have_one_point_per_size():
    runs = recorded_runs()
    assert [len(run.requests) for run in runs.sizes] == list(SIZES)
    for sheet in (WIDE, NARROW):
        points = re.findall(r'data-x="(\d+)"', limits_picture(runs.sizes, sheet, title="t"))
        assert points == [str(size) for size in SIZES] * 2  # output, and time per token
    measured, _ = limits(runs.sizes).tables
    assert [line[0] for line in measured.lines] == [str(size) for size in SIZES]


def test_points_stand_where_their_values_are():
    """Perfect scaling: the points of the output lie on one line through the origin."""
    sizes = [sized(rows) for rows in (1, 2, 4)]
    drawn = limits_picture(sizes, WIDE, title="t")
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)[:3]
    (x1, y1), (x2, y2), (x4, y4) = [(float(x), float(y)) for x, y in circles]
    assert (x4 - x2) == pytest.approx(2 * (x2 - x1), abs=0.05)
    assert (y4 - y2) == pytest.approx(2 * (y2 - y1), abs=0.05)
    assert y4 < y2 < y1
    assert "4.0 times as much for 4 times the rows" in prose(limits(sizes))


def test_published_figures_are_called_published():
    chapter = limits(PAPER.sizes)
    assert "33.1, 64.3, 131.5 and 257.3 tok/s for 1, 2, 4 and 8 rows" in prose(chapter)
    assert "published figures, not measured here" in prose(chapter)
    _, published = chapter.tables
    assert "not measured here" in published.title
    assert len(published.lines) == len(NANO_LLM_SERVE)


def test_what_was_computed_is_called_computed(recorded_page):
    chapter = continuous(PAPER.waves)
    assert "**computed**, not measured" in prose(chapter)
    assert "computed" in chapter.figures[0].caption
    for sheet in (WIDE, NARROW):
        drawn = next_picture(PAPER.waves, sheet, title="t")
        assert "Static, recorded: 10 columns" in drawn
        assert "Continuous, computed: 7 columns" in drawn


def test_every_picture_says_what_ran_and_when():
    for chapter in chapters(recorded_runs()):
        for figure in chapter.figures:
            for part in ("smollm2-135m", "bfloat16", "CPU, ", "recorded "):
                assert part in figure.source


def test_a_timetable_as_recorded():
    table = recorded_timetable(PAPER.waves)
    assert table.columns == 10
    assert table.idle == measure(PAPER.waves).idle
    assert Span(slot=0, start=6, width=4, request=2) in table.spans


def test_a_freed_slot_goes_to_the_next_request_at_once():
    table = continuous_timetable(PAPER.waves)  # 2, 6, 4 and 1 tokens through two slots
    assert set(table.spans) == {
        Span(0, 0, 2, 0),
        Span(1, 0, 6, 1),
        Span(0, 2, 4, 2),
        Span(0, 6, 1, 3),
        Span(1, 6, 1, None),
    }
    assert table.columns == 7
    assert table.idle == (1, 14)


def test_more_slots_than_a_timetable_needs_stay_idle():
    table = continuous_timetable(make_run([[(1, 3), (1, 1)]]))
    assert table.columns == 3
    assert table.idle == (2, 6)


def test_blocks_are_as_long_as_their_forwards():
    run = make_run([[(2, 3)]], prefill=2.0, decode=1.0)
    drawn = time_picture([run], WIDE, title="t")
    (path,) = re.findall(r'<path d="(M[^"]*Z)" fill="[^"]*" data-state="active"', drawn)
    starts = [float(x) for x in re.findall(r"M([\d.]+)", path)]
    assert len(starts) == 3
    assert starts[1] - starts[0] == pytest.approx(2 * (starts[2] - starts[1]), abs=0.05)


@pytest.mark.parametrize(
    ("highest", "most", "expected"),
    [(300, 4, [0, 100, 200, 300]), (2.1, 5, [0, 0.5, 1, 1.5, 2]), (0.05, 4, [0, 0.02, 0.04])],
)
def test_round_ticks(highest, most, expected):
    assert ticks(highest, most=most) == pytest.approx(expected)


def test_prompts_are_text_and_never_markup():
    evil = "</td><script>alert(1)</script> ${alert(2)} {{x}} `y` \\u0041 **b**"
    run = replace(
        PAPER.serial,
        requests=(replace(PAPER.serial.requests[0], prompt=evil), PAPER.serial.requests[1]),
    )
    evil_model = replace(run.model, name='"><img src=x onerror=alert(3)>')
    page = story_html(PAPER._replace(serial=replace(run, model=evil_model)))
    assert Page(page).all("script", "img") == []
    assert evil in shown(as_template(page))


def test_nothing_in_the_template_is_run():
    story = Story()
    assert not set("`$\\{}") & set(story.html_template)
    assert "bs-chapter" in story.html_template
    assert "<!--" not in story.html_template
    assert story.get_config()["html_template"] == story.html_template


def test_a_template_reads_as_what_it_was():
    assert shown(as_template("<p>`$\\{}</p>")) == "`$\\{}"


def test_a_story_has_the_event_chosen():
    assert callable(Story().chosen)
    with pytest.raises(AttributeError):
        _ = Story().chosen_by_no_one


def test_buttons_name_presets_that_exist(recorded_page):
    buttons = Page(recorded_page).all("button")
    keys = [attributes["data-preset"] for _, attributes in buttons]
    assert set(keys) <= {preset.key for preset in PRESETS}
    assert {"tutorial", "straggler"} <= set(keys)
    assert {attributes["type"] for _, attributes in buttons} == {"button"}


def test_headings_are_in_order(recorded_page):
    levels = [tag for tag, _ in Page(recorded_page).all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels == ["h2"] + ["h3"] * len(chapters(PAPER))


def test_ids_are_unique(recorded_page):
    ids = [attributes["id"] for _, attributes in Page(recorded_page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "url(#" not in recorded_page


def test_pictures_have_names_and_captions(recorded_page):
    page = Page(recorded_page)
    pictures = [attributes for _, attributes in page.all("svg") if "aria-hidden" not in attributes]
    assert {attributes["role"] for attributes in pictures} == {"img"}
    assert len(pictures) == len(page.all("title")) == 2 * len(page.all("figure"))
    assert len(page.all("figure")) == len(page.all("figcaption")) >= len(page.all("section"))


def test_colours_follow_the_theme(recorded_page):
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', recorded_page)) - {"none"}
    assert colours <= {f"var(--bs-{name})" for name in theme.LIGHT}
    assert "var(--bs-active)" in colours

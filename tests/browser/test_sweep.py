"""The "Batch size" tab as a reader sees it: it fills in, keeps still, can be saved and opened."""

import json
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from engine import bench, sweepfile
from engine.sweep import Rates
from tests.browser.test_access import violations
from tests.serving import served
from tests.tiny import scripted_lm, token_ids
from tests.unit.sweeps import WHOLE, sized

HELLO = token_ids("hello brave new world")


@pytest.fixture(autouse=True, scope="module")
def quick_rates():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "measure_rates", lambda *_: Rates(1e6, 1e9, "float32"))
        yield


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([HELLO], seconds=0.01)) as url:
        yield url


class Tab:
    """What a reader of the tab sees and does, in words."""

    def __init__(self, page):
        self.page = page
        page.get_by_role("tab", name="Batch size").click()
        self.wait("shown.points.length > 0")
        self.before = self.evaluate("shown.key")

    def choose(self, *sizes, tokens=8, runs=2):
        for chip in self.page.locator(".bs-sweep-chip input").all():
            chip.set_checked(int(chip.get_attribute("value")) in sizes, force=True)
        self.page.get_by_label("New tokens per row").fill(str(tokens))
        self.page.get_by_label("Timed runs per size").fill(str(runs))

    def measure(self):
        self.before = self.evaluate("shown.key")
        self.page.get_by_role("button", name="Measure").click()

    def wait(self, condition):
        """`condition` is JavaScript over `shown`, what the tab shows."""
        self.page.wait_for_function(
            """condition => {
              const shown = document.querySelector('.bs-sweep')?.batchscope;
              return shown && new Function('shown', 'return ' + condition)(shown);
            }""",
            arg=condition,
        )

    def wait_for_end(self, status="done"):
        self.wait(f"shown.key !== '{self.before}' && shown.status === '{status}'")
        expect(self.page.get_by_role("button", name="Measure")).to_be_enabled()

    def evaluate(self, expression):
        return self.page.evaluate(
            """expression => {
              const sweep = document.querySelector('.bs-sweep');
              const chart = (name) => sweep.querySelector(`.bs-sweep-${name}`);
              return new Function('shown', 'rate', 'tpot', 'return ' + expression)(
                sweep.batchscope, chart('rate'), chart('tpot'));
            }""",
            expression,
        )

    def table(self):
        rows = self.page.locator(".bs-sweep-table tbody tr").all()
        return [row.locator("th, td").all_text_contents() for row in rows]


def test_it_begins_with_a_sweep_that_says_that_it_was_recorded(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        expect(page.locator(".bs-sweep-badge")).to_have_text("recorded")
        expect(page.locator(".bs-sweep-strip")).to_contain_text("smollm2-135m")
        assert len(tab.table()) == len(tab.evaluate("shown.planned"))
        assert "not measured here" in page.locator(".bs-sweep-note").text_content()


def test_sizes_fill_in_one_by_one_and_the_axis_of_sizes_keeps_still(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.choose(1, 2, 8, tokens=20, runs=3)
        tab.measure()
        ranges, headings = [], set()
        for count in (1, 2, 3):
            tab.wait(f"shown.planned.at(-1) === 8 && shown.points.length >= {count}")
            ranges.append(tab.evaluate("rate.layout.xaxis.range"))
            headings.add(page.locator(".bs-sweep-heading").text_content())
            assert [line[0] for line in tab.table()] == ["1", "2", "8"]
        tab.wait_for_end()
        assert ranges == [ranges[0]] * 3
        assert any(heading.startswith("Batch size 8: ") for heading in headings)
        assert tab.evaluate("rate.data[2].x") == [1, 2, 8]
        expect(page.locator(".bs-sweep-badge")).to_be_hidden()


def test_the_perfect_line_is_straight_on_both_kinds_of_axes(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        for name, first in (("Linear", 0), ("Log", 0)):
            page.get_by_role("button", name=name).click()
            line = tab.evaluate("rate.data[0]")
            assert len(line["x"]) == len(line["y"]) == 2
            assert line["x"][0] == first
        slope = (line["y"][1] - line["y"][0]) / (line["x"][1] - line["x"][0])
        assert slope == pytest.approx(1)  # a doubling for a doubling


def test_published_figures_can_be_taken_away(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        times = tab.evaluate("rate.data[1].y.map(y => y / rate.data[2].y[0])")
        assert times == pytest.approx([1, 64.3 / 33.1, 131.5 / 33.1, 257.3 / 33.1])
        page.get_by_label("published").uncheck()
        assert tab.evaluate("rate.data[1].x.length") == 0
        page.get_by_label("published").check()
        assert tab.evaluate("rate.data[1].x.length") == 4


def test_a_saved_sweep_opens_again_as_it_was(url, open_page, tmp_path):
    with open_page(url) as page:
        tab = Tab(page)
        tab.choose(1, 2)
        tab.measure()
        tab.wait_for_end()
        table = tab.table()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save JSON").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
    assert path.name.startswith("batchscope-scripted-")
    assert sweepfile.loads(path.read_bytes()).batch_sizes == (1, 2)
    with open_page(url) as page:
        tab = Tab(page)
        page.get_by_label("A saved sweep").set_input_files(path)
        tab.wait("shown.opened")
        assert tab.table() == table
        expect(page.locator(".bs-sweep-badge")).to_have_text("from a file")


def test_b8_a_file_that_is_no_sweep_is_told_as_text(url, open_page, tmp_path):
    record = {"schema_version": 1, "<img src=x onerror=alert(1)>": 1}
    path = tmp_path / "no.json"
    path.write_text(json.dumps({"record": record}))
    with open_page(url) as page:
        Tab(page)
        page.get_by_label("A saved sweep").set_input_files(path)
        expect(page.locator(".bs-sweep-remark")).to_contain_text("Not a saved sweep: ")
        assert page.locator(".bs-sweep img").count() == 0


def test_b8_a_saved_sweep_of_any_kind_is_drawn_and_its_words_are_text(url, open_page, tmp_path):
    name = "<img src=x onerror=alert(1)> ${alert(1)} {{value}}"
    sizes = [replace(sized(rows), floor=None) for rows in (8, 1, 4)]
    sweep = replace(
        WHOLE,
        model=replace(WHOLE.model, name=name),
        rates=None,
        batch_sizes=(8, 1, 4),
        sizes=tuple(sizes),
    )
    path = tmp_path / "sweep.json"
    path.write_text(sweepfile.dumps(sweep), encoding="utf-8")
    with open_page(url) as page:
        tab = Tab(page)
        page.get_by_label("A saved sweep").set_input_files(path)
        tab.wait("shown.opened")
        expect(page.locator(".bs-sweep-strip")).to_contain_text(name)
        assert page.locator(".bs-sweep img").count() == 0
        assert tab.evaluate("rate.data[2].x") == [1, 4, 8]
        assert [line[0] for line in tab.table()] == ["1", "4", "8"]
        assert {line[7] for line in tab.table()} == {"n/a"}


def test_b8_a_prompt_is_never_markup(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.choose(1)
        page.get_by_label("Prompt, the same in every row").fill(
            "${alert(1)} {{value}} <img src=x onerror=alert(1)>"
        )
        tab.measure()
        tab.wait_for_end()
        assert page.locator(".bs-sweep img").count() == 0


def test_stop_ends_it_and_an_error_is_said_beside_the_button(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.choose(1, 2, 4, tokens=100)
        tab.measure()
        tab.wait("shown.status === 'running'")
        page.get_by_role("button", name="Stop").click()
        tab.wait_for_end("stopped")
        tab.choose()
        table = tab.table()
        page.get_by_role("button", name="Measure").click()
        expect(page.locator(".bs-sweep-notice")).to_have_text(
            "There are no batch sizes: choose at least one."
        )
        expect(page.locator(".bs-sweep-notice")).to_have_attribute("role", "alert")
        assert tab.table() == table


def test_present_shows_the_charts_alone_in_large_type(url, open_page):
    with open_page(url, width=1920, height=1080) as page:
        tab = Tab(page)
        page.locator(".bs-sweep-heading").click()
        page.keyboard.press("p")
        expect(page.locator(".bs-sweep-table")).to_be_hidden()
        small = page.evaluate(
            """() => {
              const walker = document.createTreeWalker(
                document.querySelector('.bs-sweep-shown'), NodeFilter.SHOW_TEXT);
              const small = [];
              while (walker.nextNode()) {
                const node = walker.currentNode.parentElement;
                const text = walker.currentNode.textContent.trim();
                const unseen = node.closest('.bs-sweep-head, .bs-sweep-said');
                if (!text || unseen || !node.checkVisibility()) continue;
                if (parseFloat(getComputedStyle(node).fontSize) < 48) small.push(text);
              }
              return small;
            }"""
        )
        assert small == []
        for chart in page.locator(".bs-sweep-chart").all():
            box = chart.bounding_box()
            assert box["x"] + box["width"] <= 1920
            assert box["y"] + box["height"] <= 1080
        assert tab.evaluate("rate.layout.font.size") == 48
        page.keyboard.press("Escape")
        expect(page.locator(".bs-sweep-table")).to_be_visible()


def test_e16_on_a_phone_nothing_scrolls_sideways_and_charts_fill_their_column(url, open_page):
    with open_page(url, width=375, height=812) as page:
        tab = Tab(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        first, second = (chart.bounding_box() for chart in page.locator(".bs-sweep-chart").all())
        assert second["y"] >= first["y"] + first["height"]
        assert 0 < tab.evaluate("rate.layout.width") <= first["width"]


def test_e16_charts_that_were_drawn_behind_another_tab_fill_their_column(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.choose(1, 2, 4, tokens=20)
        tab.measure()
        tab.wait("shown.status === 'running'")
        page.get_by_role("tab", name="How it works").click()
        page.set_viewport_size({"width": 1100, "height": 810})
        page.get_by_role("tab", name="Batch size").click()
        tab.wait_for_end()
        column = page.locator(".bs-sweep-chart").first.bounding_box()["width"]
        page.wait_for_function(
            """column => {
              const { width } = document.querySelector('.bs-sweep-rate').layout;
              return Math.abs(width - column) < 40;
            }""",
            arg=column,
        )


def test_screen_readers_hear_the_start_and_the_end(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        page.evaluate(
            """() => {
              const said = document.querySelector('.bs-sweep-said');
              window.heard = [];
              new MutationObserver(() => window.heard.push(said.textContent)).observe(
                said, {childList: true, characterData: true, subtree: true});
            }"""
        )
        tab.choose(1, 2)
        tab.measure()
        tab.wait_for_end()
        first, last = page.evaluate("window.heard")
        assert first == "Measuring."
        assert last.startswith("Done: 2 batch sizes. ")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_on_the_batch_size_tab(url, open_page, theme):
    with open_page(url, theme=theme) as page:
        tab = Tab(page)
        assert violations(page) == []
        tab.choose(1, 2, 4, tokens=40)
        tab.measure()
        tab.wait("shown.status === 'running' && shown.points.length > 1")
        assert violations(page) == []
        tab.wait_for_end()
        tab.choose()
        page.get_by_role("button", name="Measure").click()
        expect(page.locator(".bs-sweep-notice")).not_to_be_empty()
        assert violations(page) == []
        page.get_by_role("button", name="Present").click()
        assert violations(page) == []


def test_axe_on_the_batch_size_tab_of_a_phone(url, open_page):
    with open_page(url, width=375, height=812) as page:
        Tab(page)
        assert violations(page) == []

"""The "Compare" tab as a reader sees it: lanes fill in, sliders answer, files come and go."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from engine import comparison as comparisons
from engine.comparison import Entry
from tests.browser.test_access import violations
from tests.serving import served
from tests.tiny import scripted_lm, tiny_lm, token_ids
from tests.unit.comparisons import WHOLE
from viz.compare.computed import basis_of, computed

HELLO = token_ids("hello brave new world")
HOSTILE = "<img src=x onerror=alert(1)> ${alert(1)} {{value}}"


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([HELLO], seconds=0.003)) as url:
        yield url


class Tab:
    """What a reader of the tab sees and does, in words."""

    def __init__(self, page):
        self.page = page
        page.get_by_role("tab", name="Compare").click()
        self.wait("shown.lanes.length === 3 && plot.data")
        self.before = self.evaluate("shown.key")

    def compare(self):
        self.before = self.evaluate("shown.key")
        self.page.get_by_role("button", name="Compare").click()

    def wait(self, condition):
        """`condition` is JavaScript over `shown`, what the tab shows, and `plot`, its picture."""
        self.page.wait_for_function(
            """condition => {
              const shown = document.querySelector('.bs-compare')?.batchscope;
              const plot = document.querySelector('.bs-compare-plot');
              return shown && new Function('shown', 'plot', 'return ' + condition)(shown, plot);
            }""",
            arg=condition,
        )

    def wait_for_end(self, status="done"):
        self.wait(f"shown.key !== '{self.before}' && shown.status === '{status}'")
        expect(self.page.get_by_role("button", name="Compare")).to_be_enabled()

    def evaluate(self, expression):
        return self.page.evaluate(
            """expression => {
              const shown = document.querySelector('.bs-compare').batchscope;
              const plot = document.querySelector('.bs-compare-plot');
              return new Function('shown', 'plot', 'return ' + expression)(shown, plot);
            }""",
            expression,
        )

    def open(self, path):
        self.page.get_by_label("A saved comparison").set_input_files(path)

    def rows(self, kind):
        """The lines of the table, "measured" or "computed", without their heading."""
        lines = self.page.locator(f".bs-compare-rows-{kind} tr:not(.bs-compare-group)").all()
        return [line.locator("th, td").all_text_contents() for line in lines]

    def titles(self):
        return self.page.locator(".bs-compare-titles p").all_text_contents()

    def drawn(self):
        """From where to where the rectangles go of what is drawn as computed and active."""
        corners = self.evaluate("plot.data[5].x")  # five of each, and but for one a way back
        corners = corners[: 5 * (len(corners) + 1) // 6]
        return list(zip(corners[::5], corners[1::5], strict=True))

    def export(self, kind, folder):
        self.page.locator(".bs-compare-export summary").click()
        with self.page.expect_download() as download:
            choices = self.page.locator(".bs-compare-export li button")
            choices.filter(has_text=re.compile(f"^{re.escape(kind)}")).click()
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path


def saved(comparison, folder):
    path = folder / "comparison.json"
    path.write_text(comparisons.dumps(comparison), encoding="utf-8")
    return path


def test_it_begins_with_a_comparison_that_says_that_it_was_recorded(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        expect(page.locator(".bs-compare-badge")).to_have_text("recorded")
        expect(page.locator(".bs-compare-remark")).to_contain_text("Same ids in all three. ")
        assert [line[0] for line in tab.rows("measured")] == ["Serial", "Static", "Continuous"]
        assert [title.count("computed") for title in tab.titles() if "computed" in title]
        assert len(tab.titles()) == 6


def test_lanes_fill_in_live_on_one_axis_and_the_static_one_keeps_its_place(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.compare()
        tops = []
        for lane, spans in ((0, 3), (1, 3), (1, 9)):
            tab.wait(f"shown.status === 'running' && shown.lanes[{lane}].spans.length >= {spans}")
            tops.append(page.locator(".bs-compare-titles p").nth(1).evaluate("p => p.style.top"))
            assert len(tab.titles()) == 3
        tab.wait_for_end()
        assert len(set(tops)) == 1
        expect(page.locator(".bs-compare-badge")).to_be_hidden()
        assert len(tab.titles()) == 6
        last = tab.evaluate("Math.max(...shown.lanes.map(lane => lane.wall))")
        assert tab.evaluate("plot.layout.xaxis.range") == [0, pytest.approx(last)]


def test_three_engines_give_the_same_ids_and_the_page_says_so(open_page):
    lm = tiny_lm()
    with served(lm) as url, open_page(url) as page:
        tab = Tab(page)
        page.get_by_label("the prompts and settings of the Run tab").check()
        tab.compare()
        tab.wait_for_end()
        expect(page.locator(".bs-compare-remark")).to_contain_text("Same ids in all three. ")
        assert tab.evaluate("shown.lanes.map(lane => lane.slots)") == [1, 4, 4]
        assert comparisons.same_ids(comparisons.loads(tab.evaluate("shown.record")))


def test_where_an_engine_cant_run_its_lane_says_why(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        tab.compare()
        tab.wait_for_end()
        assert "scripted" in tab.titles()[2]
        reason = page.locator(".bs-compare-titles p").nth(2).bounding_box()
        below = page.locator(".bs-compare-titles p").nth(3).bounding_box()
        assert reason["y"] + reason["height"] <= below["y"]


def test_sliders_answer_with_the_picture_of_their_settings(url, open_page, tmp_path):
    with open_page(url) as page:
        tab = Tab(page)
        tab.open(saved(WHOLE, tmp_path))
        tab.wait("shown.opened")
        basis = basis_of(WHOLE)
        for slots, order in ((4, "as given"), (1, "as given"), (2, "by generated length")):
            page.get_by_role("slider", name="Slots").fill(str(slots))
            page.get_by_label("Order of the requests").select_option(order)
            expected = computed(basis, slots=slots, order=order)
            static = expected["lanes"][0]
            said = f"{static['told'][0]} · {static['told'][1]}"
            expect(page.locator(".bs-compare-titles p").nth(3)).to_contain_text(said)
            expect(page.locator(".bs-compare-titles p").nth(3)).to_contain_text(static["note"])
            active = [span for lane in expected["lanes"] for span in lane["spans"] if span[2] == 1]
            pixel = 0.1  # in seconds
            for (left, right), (*_, start, end) in zip(tab.drawn(), active, strict=True):
                assert left == start
                assert end - pixel < right <= end
            assert tab.rows("computed") == expected["rows"]
        assert [line[1] for line in tab.rows("measured")] == ["57.0 s", "35.0 s", "30.0 s"]


def test_computed_lanes_are_told_from_measured_ones_by_word_and_by_pattern(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        assert ["computed" in title for title in tab.titles()] == [False] * 3 + [True] * 3
        patterns = tab.evaluate("plot.data.slice(1).map(trace => trace.fillpattern?.shape ?? '')")
        assert patterns == ["", "", "", "/", "/", "/"]
        hidden = page.locator(".bs-compare-titles p").first.locator(".bs-compare-computed")
        expect(hidden).to_be_hidden()


def test_a_saved_comparison_opens_again_as_it_was(url, open_page, tmp_path):
    with open_page(url) as page:
        tab = Tab(page)
        tab.compare()
        tab.wait_for_end()
        before = tab.rows("measured"), tab.rows("computed"), tab.titles()
        lanes = tab.evaluate("shown.lanes")
        path = tab.export("The comparison", tmp_path)
    assert path.name.startswith("batchscope-scripted-")
    with open_page(url) as page:
        tab = Tab(page)
        tab.open(path)
        tab.wait("shown.opened")
        assert (tab.rows("measured"), tab.rows("computed"), tab.titles()) == before
        assert tab.evaluate("shown.lanes") == lanes
        expect(page.locator(".bs-compare-badge")).to_have_text("from a file")


def test_the_picture_and_the_table_can_be_taken_away_also_of_the_recorded_one(
    url, open_page, tmp_path
):
    with open_page(url) as page:
        tab = Tab(page)
        page.get_by_role("slider", name="Slots").fill("2")
        expect(page.locator(".bs-compare-titles p").nth(3)).to_contain_text("batches of 2")
        svg = tab.export("Vector picture", tmp_path).read_text()
        assert "batches of 2" in svg
        table = tab.export("Table", tmp_path).read_text().splitlines()
        assert len(table) == 7
        png = tab.export("Picture", tmp_path).read_bytes()
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(png[16:20]) == 1920
        record = tab.export("The comparison", tmp_path).read_text()
        assert comparisons.loads(record).status == "done"


def test_b8_texts_of_a_saved_comparison_are_text(url, open_page, tmp_path):
    runs = [
        replace(
            entry.run,
            model=replace(entry.run.model, name=HOSTILE),
            requests=tuple(replace(each, prompt=HOSTILE) for each in entry.run.requests),
        )
        for entry in WHOLE.entries[:2]
    ]
    entries = (
        Entry("serial", runs[0]),
        Entry("static", runs[1]),
        Entry("continuous", reason=HOSTILE),
    )
    with open_page(url) as page:
        tab = Tab(page)
        tab.open(saved(replace(WHOLE, entries=entries), tmp_path))
        tab.wait("shown.opened")
        expect(page.locator(".bs-compare-strip")).to_contain_text(HOSTILE)
        assert HOSTILE in tab.titles()[2]
        page.locator(".bs-compare-plot").hover(position={"x": 60, "y": 30})
        expect(page.locator(".bs-compare-detail")).to_contain_text(HOSTILE)
        assert page.locator(".bs-compare img").count() == 0
        tab.export("Picture", tmp_path)


def test_b8_a_file_that_is_no_comparison_is_told_as_text(url, open_page, tmp_path):
    path = tmp_path / "no.json"
    path.write_text('{"schema_version": 1, "<img src=x onerror=alert(1)>": 1}')
    with open_page(url) as page:
        tab = Tab(page)
        rows = tab.rows("measured")
        tab.open(path)
        expect(page.locator(".bs-compare-remark")).to_contain_text("Not a saved comparison: ")
        assert page.locator(".bs-compare img").count() == 0
        assert tab.rows("measured") == rows


def test_who_is_pointed_at_is_named_and_marked_in_every_lane(url, open_page, tmp_path):
    with open_page(url) as page:
        tab = Tab(page)
        tab.open(saved(WHOLE, tmp_path))
        tab.wait("shown.opened")
        page.locator(".bs-compare-plot").hover(position={"x": 60, "y": 30})
        expect(page.locator(".bs-compare-detail")).to_have_text(
            "Serial: request 1 generates from 1.00 s to 15.00 s. prompt 1"
        )
        assert page.locator(".bs-compare-chosen i").count() == 6
        page.mouse.move(2, 2)
        assert page.locator(".bs-compare-chosen i").count() == 0


def test_stop_ends_it_and_an_error_is_said_beside_the_button(url, open_page):
    with open_page(url) as page:
        page.get_by_label("Batch size (slots)").fill("99")
        tab = Tab(page)
        tab.compare()
        tab.wait("shown.status === 'running' && shown.lanes[0].spans.length > 2")
        page.locator(".bs-compare-stop").click()
        tab.wait_for_end("stopped")
        expect(page.locator(".bs-compare-settings")).to_be_hidden()
        expect(page.locator(".bs-compare-why")).to_contain_text("Other schedules can be computed")
        rows = tab.rows("measured")
        page.get_by_label("the prompts and settings of the Run tab").check()
        page.get_by_role("button", name="Compare").click()
        notice = page.locator(".bs-compare-notice")
        expect(notice).to_have_text("The batch size is 99, the limit is 32.")
        expect(notice).to_have_attribute("role", "alert")
        assert tab.rows("measured") == rows


def test_the_planner_marks_its_limits_and_answers_to_them(url, open_page):
    with open_page(url) as page:
        Tab(page)
        told = page.locator(".bs-compare-plan-told")
        expect(told).to_contain_text("Batch size ")
        keys = page.locator(".bs-compare-limits li").all_text_contents()
        assert [key.split(":")[0].strip() for key in keys] == ["memory", "latency", "saturation"]
        page.get_by_label("at most, ms").fill("1")
        expect(told).to_have_text("No batch size that was measured keeps to these limits.")
        page.get_by_label("at most, ms").fill("-3")
        expect(told).to_have_text("The limit on the latency must be a number above 0, not -3.")
        page.get_by_label("at most, ms").fill("")
        page.get_by_label("KV cache, MB").fill("")
        expect(told).to_contain_text("No larger batch was measured.")


def test_arrivals_answer_to_their_fields_and_to_a_file_of_times(url, open_page, tmp_path):
    path = tmp_path / "times.txt"
    path.write_text("0\n1.5\n2.5\n")
    with open_page(url) as page:
        Tab(page)
        about = page.locator(".bs-compare-arrivals-about")
        told = page.locator(".bs-compare-arrivals-told")
        expect(about).to_contain_text("Computed: 5,000 requests at random")
        page.get_by_label("Requests per s").fill("1000")
        expect(told).to_contain_text("waits grow on.")
        page.get_by_label("A file of arrival times").set_input_files(path)
        expect(about).to_contain_text("3 requests from a file")
        expect(page.get_by_label("Requests per s")).to_be_disabled()
        page.get_by_role("button", name="At random again").click()
        expect(about).to_contain_text("Computed: 5,000 requests at random")


def test_screen_readers_hear_the_start_and_the_end(url, open_page):
    with open_page(url) as page:
        tab = Tab(page)
        page.evaluate(
            """() => {
              const said = document.querySelector('.bs-compare-said');
              window.heard = [];
              new MutationObserver(() => window.heard.push(said.textContent)).observe(
                said, {childList: true, characterData: true, subtree: true});
            }"""
        )
        tab.compare()
        tab.wait_for_end()
        first, last = page.evaluate("window.heard")
        assert first == "Comparing."
        assert last.startswith("Static ")


def test_the_settings_stay_in_sight_beside_the_lanes(url, open_page):
    with open_page(url) as page:
        Tab(page)
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator(".bs-compare-slots")).to_be_in_viewport()


def test_present_shows_the_lanes_alone_in_large_type(url, open_page):
    with open_page(url, width=1920, height=1080) as page:
        tab = Tab(page)
        page.locator(".bs-compare-heading").click()
        page.keyboard.press("p")
        expect(page.locator(".bs-compare-rows-measured")).to_be_hidden()
        small = page.evaluate(
            """() => {
              const shown = document.querySelector('.bs-compare-shown');
              const walker = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT);
              const small = [];
              while (walker.nextNode()) {
                const node = walker.currentNode.parentElement;
                const text = walker.currentNode.textContent.trim();
                const unseen = node.closest('.bs-compare-files, .bs-compare-said, svg');
                if (!text || unseen || !node.checkVisibility()) continue;
                if (parseFloat(getComputedStyle(node).fontSize) < 48) small.push(text);
              }
              return small;
            }"""
        )
        assert small == []
        assert tab.evaluate("plot.layout.font.size") == 48
        picture = page.locator(".bs-compare-plot svg").first.bounding_box()
        strip = page.locator(".bs-compare-strip").bounding_box()
        assert picture["y"] + picture["height"] <= strip["y"]
        assert strip["y"] + strip["height"] <= 1080
        page.keyboard.press("Escape")
        expect(page.locator(".bs-compare-rows-measured")).to_be_visible()


def test_e16_on_a_phone_nothing_scrolls_sideways_and_the_lanes_fill_their_column(url, open_page):
    with open_page(url, width=375, height=812) as page:
        tab = Tab(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        column = page.locator(".bs-compare-lanes").bounding_box()
        assert tab.evaluate("plot.layout.width") == pytest.approx(column["width"], abs=1)
        assert column["x"] + column["width"] <= 375


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_on_the_compare_tab(url, open_page, theme):
    with open_page(url, theme=theme) as page:
        tab = Tab(page)
        expect(page.locator(".bs-compare-arrivals-told")).not_to_be_empty()
        assert violations(page) == []
        page.locator(".bs-compare-export summary").click()
        assert violations(page) == []
        page.keyboard.press("Escape")
        tab.compare()
        tab.wait("shown.status === 'running' && shown.lanes[0].spans.length > 2")
        assert violations(page) == []
        tab.wait_for_end()
        assert violations(page) == []


def test_axe_on_the_compare_tab_of_a_phone(url, open_page):
    with open_page(url, width=375, height=812) as page:
        Tab(page)
        assert violations(page) == []

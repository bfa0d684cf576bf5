"""The page in a browser: the editor, Stop, leaving, markup, small screens, both themes."""

import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from engine import memory
from engine.requests import DEFAULT_BUDGET
from engine.turns import turns_on
from tests.browser.conftest import ROWS, leaving
from tests.browser.wire import Wire
from tests.serving import served, wait_for
from tests.tiny import EOS, scripted_lm, token_ids
from viz import theme as colours

TEXT = token_ids("the quick brown fox jumps over the lazy dog " * 20)


def slow_lm():
    return scripted_lm([TEXT, [*TEXT[:6], EOS]], seconds=0.05)


@pytest.fixture(scope="module")
def url():
    with served(slow_lm()) as url:
        yield url


@pytest.fixture
def slow():
    """Of one test, which looks at its calls."""
    return slow_lm()


@pytest.fixture
def slow_url(slow):
    with served(slow) as url:
        yield url


def centre_colour(page, selector, left, top):
    """The colour of the pixel at a fraction of an element's width and height."""
    image = Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")
    return "#{:02x}{:02x}{:02x}".format(
        *image.getpixel((int(image.width * left), int(image.height * top)))
    )


def test_the_prompt_list_by_keyboard(url, open_page):
    with open_page(url) as page:
        page.get_by_label("Prompt 1", exact=True).focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("typed")
        page.keyboard.press("Tab")
        page.keyboard.press("Control+A")
        page.keyboard.type("7")
        page.get_by_role("button", name="+ Add a prompt").focus()
        page.keyboard.press("Enter")
        page.keyboard.type("fifth")
        for _ in range(4):
            page.get_by_label("Remove prompt 2").focus()
            page.keyboard.press("Enter")
        page.get_by_role("button", name="Paste or open").focus()
        page.keyboard.press("Enter")
        page.keyboard.insert_text("one\n\n  \ntwo\n")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        prompts = page.locator(".bs-rows textarea")
        budgets = page.locator(".bs-rows input")
        assert [prompts.nth(i).input_value() for i in range(3)] == ["typed", "one", "two"]
        assert [budgets.nth(i).input_value() for i in range(3)] == ["7", "7", "7"]
        page.get_by_label("Prompt 1", exact=True).focus()
        page.keyboard.press("Control+Enter")
        page.wait_for_function(
            "document.querySelector('.bs-stage').batchscope.value.prompts.length === 3"
        )
        assert page.evaluate("document.querySelector('.bs-stage').batchscope.value.prompts") == [
            "typed",
            "one",
            "two",
        ]


def test_a_click_is_not_lost_when_the_field_above_shrinks(url, open_page):
    with open_page(url) as page:
        for name in ("+ Add a prompt", "One straggler"):
            page.get_by_label("Prompt 2", exact=True).click()
            page.wait_for_function("document.activeElement.offsetHeight > 100")
            box = page.get_by_role("button", name=name).bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.mouse.down()
            page.wait_for_timeout(300)  # how long a person holds the button, not a condition
            page.mouse.up()
            page.get_by_label("Prompt 5", exact=True).wait_for()
        page.get_by_label("Prompt 6", exact=True).wait_for()


def test_a_reload_keeps_prompts_and_the_settings_that_belong_to_them(url, open_page):
    with open_page(url) as page:
        page.get_by_role("button", name="Same prompt × 8").click()
        page.get_by_label("Prompt 8", exact=True).wait_for()
        with leaving(page):
            page.reload()
        page.get_by_label("Prompt 8", exact=True).wait_for()
        expect(page.get_by_label("Batch size (slots)")).to_have_value("8")
        expect(page.get_by_label("Chat template")).to_be_checked()
        expect(page.get_by_label("Ignore EOS")).not_to_be_checked()


def test_a_reload_keeps_what_was_edited_and_the_settings(url, open_page):
    with open_page(url) as page:
        page.get_by_label("Prompt 1", exact=True).fill("edited")
        page.get_by_label("Batch size (slots)").fill("2")
        page.get_by_label("Batch size (slots)").press("Tab")
        page.get_by_label("Chat template").check()
        page.get_by_label("Ignore EOS").uncheck()
        page.wait_for_function(
            """() => {
              const text = sessionStorage.getItem('batchscope-settings');
              return text && JSON.parse(atob(text)).ignore_eos === false;
            }"""
        )
        with leaving(page):
            page.reload()
        expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("edited")
        expect(page.get_by_label("Batch size (slots)")).to_have_value("2")
        expect(page.get_by_label("Chat template")).to_be_checked()
        expect(page.get_by_label("Ignore EOS")).not_to_be_checked()


def test_bad_input_keeps_what_was_typed_and_the_next_run_works(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["fine", "also fine"], [3, 3])
        page.get_by_label("Prompt 2", exact=True).fill("   ")
        stage.run()
        page.get_by_role("alert").get_by_text("Prompt 2 is empty.").wait_for()
        assert page.get_by_label("Prompt 1", exact=True).input_value() == "fine"
        page.get_by_label("Prompt 2", exact=True).fill("better")
        page.get_by_label("Token budget of prompt 2").fill("")
        stage.run()
        asked = "Prompt 2: the token budget must be a whole number, not empty."
        page.get_by_role("alert").get_by_text(asked).wait_for()  # the hint may say it too
        page.get_by_label("Token budget of prompt 2").fill("4")
        stage.run()
        stage.wait_for_end()


def test_e1_stop(slow_url, slow, open_page, stage_of):
    with open_page(slow_url) as page:
        stage = stage_of(page)
        stage.set_prompts(["long", "short"], [400, 400])
        stage.run()
        stage.wait("view.batches[0].times.length >= 5")
        page.get_by_role("button", name="Stop", exact=True).click()
        stage.wait_for_end("stopped")
        assert len(slow.model.calls) < 60
        states = page.locator(".bs-state").all_inner_texts()
        assert states[0].startswith("stopped · ")
        assert states[1] == "ended · EOS · 7/400"
        assert page.locator(".bs-summary").inner_text().startswith("Stopped: 2 requests, ")
        assert page.get_by_role("button", name="Run", exact=True).is_enabled()


def test_e2_closing_the_tab_stops_the_engine(slow_url, slow, open_page, stage_of):
    with open_page(slow_url) as page:
        stage = stage_of(page)
        stage.set_prompts(["long"], [400])
        stage.run()
        stage.wait("view.batches[0].times.length >= 5")
        page.close()
        left_at = len(slow.model.calls)
    wait_for(lambda: len(turns_on("cpu")) == 0)
    assert len(slow.model.calls) <= left_at + 2


def test_e2_a_short_drop_ends_the_run_and_says_so(slow_url, slow, chromium, stage_of):
    wire = Wire(("127.0.0.1", int(slow_url.rsplit(":", 1)[1])))
    page = chromium.new_page()
    try:
        page.goto(f"http://127.0.0.1:{wire.port}")
        page.wait_for_function("window.Plotly !== undefined")
        stage = stage_of(page)
        stage.set_prompts(["long"], [400])
        stage.run()
        stage.wait("view.batches[0].times.length >= 5")
        wire.cut()
        page.get_by_text("Connection to the server was lost.").wait_for()
        wire.mend()
        page.get_by_text("The connection was lost, and the run with it.").wait_for()
        assert len(turns_on("cpu")) == 0
        assert page.get_by_label("Prompt 1", exact=True).input_value() == "long"
        stage.set_prompts(["short"], [3])
        stage.run()
        stage.wait_for_end()
    finally:
        page.close()
        wire.close()


def test_e5_a_failure_is_said_in_red_and_the_picture_stays(slow_url, slow, open_page, stage_of):
    def fail_once(column):
        if column == 4 and not failed:
            failed.append(column)
            raise RuntimeError("the kernel gave up")

    failed = []
    slow.model.before_forward = fail_once
    with open_page(slow_url) as page:
        stage = stage_of(page)
        stage.set_prompts(["a", "b"], [9, 9])
        stage.run()
        stage.wait_for_end("error")
        summary = page.locator(".bs-summary")
        assert "the kernel gave up" in summary.inner_text()
        assert summary.evaluate("node => getComputedStyle(node).color") == "rgb(179, 38, 30)"
        assert stage.evaluate("plot.data[0].z.flat().filter((c) => c === 1).length") == 8
        stage.run()
        stage.wait_for_end()


def test_b7_b8_markup_is_shown_as_text(open_page, stage_of):
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    said = f"use <div>, List<int>, <think>x</think>, 1 < 2 & 3 > 2, **b**, $x$ ${{x}} {markup}"
    with served(scripted_lm([[*token_ids(said), EOS]])) as url, open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts([markup], [300])
        stage.run()
        stage.wait_for_end()
        assert page.locator(".bs-text").evaluate("node => node.textContent") == said
        assert page.locator(".bs-text").evaluate("node => node.childElementCount") == 0
        assert page.locator(".bs-prompt").inner_text() == markup
        assert page.locator(".bs-stage img, .bs-stage script").count() == 0
        box = page.locator(ROWS).bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
        page.locator(".bs-hover").get_by_text("Request 1, slot 1").wait_for()


def test_hover_names_request_step_token_and_milliseconds(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "a longer prompt"], [10, 10])
        stage.run()
        stage.wait_for_end()
        box = page.locator(ROWS).bounding_box()

        def expect_hover(slot, column, text):
            page.mouse.move(
                box["x"] + box["width"] * (column + 0.5) / columns,
                box["y"] + box["height"] * (slot + 0.5) / 2,
            )
            panel = page.locator(".bs-hover")
            panel.get_by_text(text).wait_for()
            assert panel.locator("div").first.inner_text() == f"Request {slot + 1}, slot {slot + 1}"

        columns, start = stage.evaluate("[plot.data[0].z[0].length, view.places[0].start]")
        expect_hover(0, start + 4, 'token "q" (id ')
        expect_hover(0, start + 5, "Step 6, decode")
        expect_hover(0, start + 6, " ms for all rows")
        expect_hover(1, start + 6, "token end of text (id 256)")
        expect_hover(1, start + 8, "Step 9, decode: idle, the row has ended")
        expect_hover(0, 0, "Step 1, prefill: padding")
        expect_hover(1, 0, "Step 1, prefill: prompt token 1 of 15")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("budget", [1, 6])
def test_e9_e11_e13_one_row_or_one_column_has_its_usual_colour(open_page, stage_of, theme, budget):
    with served(scripted_lm([TEXT])) as url, open_page(url, theme=theme) as page:
        stage = stage_of(page)
        stage.set_prompts(["abcdef"], [budget])
        stage.run()
        stage.wait_for_end()
        assert stage.evaluate("Array.isArray(plot.data[0].z[0]) && plot.data[0].z.length") == 1
        plotted = ROWS
        active = {"light": colours.LIGHT, "dark": colours.DARK}[theme]["active"]
        columns = stage.evaluate("plot.data[0].z[0].length")
        start = stage.evaluate("view.places[0].start")
        for column in (0, start):
            assert centre_colour(page, plotted, (column + 0.5) / columns, 0.5) == active
        assert page.locator(plotted).bounding_box()["height"] >= 40


def test_e10_equal_prompts_are_rows_of_their_own(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["Hello", "Hello", "Hello"], [3, 3, 3])
        stage.run()
        stage.wait_for_end()
        assert page.locator(".bs-plot .ytick text").all_text_contents() == ["1", "2", "3"]


def test_e16_a_phone_has_no_sideways_scroll_and_the_plot_fills_it(url, open_page, stage_of):
    with open_page(url, width=375, height=800) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "hello there"], [10, 10])
        stage.run()
        stage.wait_for_end()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        picture = page.locator(".bs-picture").bounding_box()["width"]
        assert page.locator(".bs-plot .main-svg").first.bounding_box()["width"] > picture - 40
        page.set_viewport_size({"width": 700, "height": 800})
        stage.wait("plot._fullLayout.width > 500")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_one_screen_without_scrolling(url, open_page, stage_of, theme):
    with open_page(url, theme=theme) as page:
        stage = stage_of(page)
        stage.set_prompts([f"prompt {i}" for i in range(8)], [10] * 8)
        stage.run()
        stage.wait_for_end()
        assert page.evaluate("document.documentElement.scrollHeight") <= 810
        for part in (".bs-tiles", ".bs-picture", ".bs-texts", ".bs-summary", "#bs-run"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= 810


def test_e18_nothing_blanks_flickers_or_piles_up(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "hello there"], [150, 150])
        stage.run()
        stage.wait("view.batches[0].times.length >= 4")
        page.evaluate(
            """() => {
              window.first = document.querySelector('.bs-plot .main-svg');
              window.nodes = document.querySelectorAll('*').length;
              window.blanks = 0;
              new MutationObserver(() => {
                if (!document.querySelector('.bs-plot .main-svg')) window.blanks++;
              }).observe(document.querySelector('.bs-stage'), {childList: true, subtree: true});
            }"""
        )
        frames = int(page.locator(".bs-stage").get_attribute("data-frames"))
        more = f"Number(document.querySelector('.bs-stage').dataset.frames) > {frames + 8}"
        stage.wait(f"view.batches[0].times.length >= 50 && {more}")
        assert page.evaluate("document.querySelector('.bs-plot .main-svg') === window.first")
        assert page.evaluate("window.blanks") == 0
        assert page.evaluate("document.querySelectorAll('*').length - window.nodes") <= 4
        trackers = page.locator("[data-testid=status-tracker]")
        assert trackers.count() > 0
        assert trackers.evaluate_all(
            "nodes => nodes.every((node) => getComputedStyle(node).opacity === '0')"
        )
        stage.wait_for_end()


def test_a_table_tells_screen_readers_the_same(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "a longer prompt"], [10, 10])
        stage.run()
        stage.wait_for_end()
        rows = page.locator(".bs-table tbody tr")
        cells = [rows.nth(i).locator("td").all_text_contents() for i in range(2)]
        assert cells == [
            ["1", "1", "5", "10", "10", "0", "ended · length · 10/10"],
            ["2", "1", "15", "0", "7", "3", "ended · EOS · 7/10"],
        ]


def open_settings(page):
    """Before any of them changes: what changed while they were closed is filled in a moment after
    they open, and may undo what is typed at once."""
    page.get_by_text("Sampling, stops, padding side").click()


def prompts_of(page):
    return [area.input_value() for area in page.locator(".bs-rows textarea").all()]


def budgets_of(page):
    return [field.input_value() for field in page.locator(".bs-rows input").all()]


def test_a10_a21_stop_strings_and_the_least_length_reach_the_run(open_page, stage_of):
    said = [token_ids("one END two END three"), token_ids("never so"), [EOS]]
    with served(scripted_lm(said)) as url, open_page(url) as page:
        stage = stage_of(page)
        open_settings(page)
        stage.set_prompts(["a", "b", "c"], [20, 8, 9])
        page.get_by_label("Min new tokens (0: off)").fill("8")
        page.get_by_label("Min-p (0: off)").fill("0.1")
        page.get_by_label("Repetition penalty (1: off)").fill("1.2")
        page.get_by_label("Stop strings").fill("END\n\nnot\\nthere")
        stage.run()
        stage.wait_for_end()
        requests = stage.evaluate("JSON.parse(value.record).requests")
        for request in requests:
            assert (request["min_new_tokens"], request["stop"]) == (8, ["END", "not\nthere"])
            assert request["sampling"]["min_p"] == 0.1
            assert request["sampling"]["repetition_penalty"] == 1.2
        states = page.locator(".bs-state").all_inner_texts()
        assert states[0].startswith("ended · stop string · ")
        assert states[1] == "ended · length · 8/8"
        assert int(states[2].split("· ")[-1].split("/")[0]) >= 8


def test_what_is_wrong_with_a_new_setting_is_one_sentence(url, open_page, stage_of):
    with open_page(url) as page:
        open_settings(page)
        stage_of(page).set_prompts(["fine"], [3])
        for label, typed, sentence in (
            (
                "Min new tokens (0: off)",
                "4",
                "at least 4 new tokens do not fit its token budget of 3.",
            ),
            ("Min-p (0: off)", "7", "Min-p must be from 0 (off) to 1, not 7."),
            ("Repetition penalty (1: off)", "0", "The repetition penalty must be from 0.1 to 10"),
            ("Stop strings", "\n".join("123456789"), "9 stop strings: the limit is 8."),
        ):
            field = page.get_by_label(label)
            before = field.input_value()
            field.fill(typed)
            page.get_by_role("button", name="Run", exact=True).click()
            page.get_by_role("alert").get_by_text(sentence).wait_for()
            field.fill(before)


def test_prompts_are_opened_from_a_file(url, open_page, stage_of, tmp_path):
    files = {
        "prompts.txt": ("one, 1\n\n<b>two</b>\n", [str(DEFAULT_BUDGET)] * 2),
        "prompts.csv": (
            'prompt,max_new_tokens\n"one, 1",7\n<b>two</b>,\n',
            ["7", str(DEFAULT_BUDGET)],
        ),
        "P.JSONL": (
            '{"prompt": "one, 1", "max_new_tokens": 7}\n"<b>two</b>"',
            ["7", str(DEFAULT_BUDGET)],
        ),
    }
    with open_page(url) as page:
        page.get_by_label("Token budget of prompt 4").fill("9")  # no file's business
        for name, (content, budgets) in files.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
            page.get_by_role("button", name="Paste or open").click()
            with page.expect_file_chooser() as chooser:
                page.get_by_role("button", name="From a file…").click()
            chooser.value.set_files(tmp_path / name)
            page.get_by_role("status").get_by_text(f"2 prompts from {name}; ").wait_for()
            assert prompts_of(page) == ["one, 1", "<b>two</b>"]
            assert budgets_of(page) == budgets
            expect(page.get_by_label("Batch size (slots)")).to_have_value("2")
            expect(page.get_by_label("Prompts, one per line")).to_be_hidden()
            expect(page.get_by_label("Prompt 1", exact=True)).to_be_focused()
        stage = stage_of(page)
        stage.run()
        stage.wait_for_end()
        assert stage.evaluate("value.prompts") == ["one, 1", "<b>two</b>"]


DROP = """([selector, files]) => {
  const carried = new DataTransfer();
  for (const [name, content] of files) carried.items.add(new File([content], name));
  const target = document.querySelector(selector);
  for (const type of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(type, {
      dataTransfer: carried, bubbles: true, cancelable: true,
    }));
  }
}"""


def drop(page, name, content, *, on=".bs-rows textarea"):
    page.evaluate(DROP, [on, [[name, content]]])


def test_a_file_is_dropped_on_the_list_and_the_stage_leaves_it_alone(url, open_page):
    with open_page(url) as page:
        shown = page.evaluate("document.querySelector('.bs-stage').batchscope.value.key")
        drop(page, "dropped.txt", "one\ntwo\nthree")
        page.get_by_text("3 prompts from dropped.txt; ").wait_for()
        assert prompts_of(page) == ["one", "two", "three"]
        assert page.evaluate("document.querySelector('.bs-stage').batchscope.value.key") == shown
        assert page.locator(".bs-said").inner_text() == ""
        assert page.locator(".bs-dropping").count() == 0
        expect(page.locator(".bs-drop")).to_be_hidden()


def test_a_file_that_can_not_be_read_is_said_and_the_list_stays(url, open_page):
    refused = [
        ("p.csv", "prompt,max_new_tokens\nHi,7\n\nHo,x\n", "p.csv, line 4: the token budget must"),
        ("p.jsonl", '"Hi"\n"Ho', "p.jsonl, line 2: not JSON: "),
        ("p.txt", "x\n" + "y" * 8001, "p.txt, line 2: the prompt has 8,001 characters: the limit"),
        ("p.txt", "x" * 2**21, "p.txt is larger than 1 MiB."),
        ("run.json", "{}", "If it is a saved run, open it beside the picture"),
        ("<img src=x onerror=alert(1)>.png", "x", "<img src=x onerror=alert(1)>.png: files of"),
    ]
    with open_page(url) as page:
        before = prompts_of(page)
        for name, content, sentence in refused:
            drop(page, name, content)
            page.get_by_role("alert").get_by_text(sentence).wait_for()
            assert prompts_of(page) == before
        assert page.locator(".bs-editor img").count() == 0


def test_a_file_without_an_answer_is_said(url, chromium):
    page = chromium.new_page()
    page.goto(url)
    page.wait_for_selector(".bs-rows")
    page.route("**/component_server**", lambda route: route.abort())
    drop(page, "p.txt", "x")
    page.get_by_role("alert").get_by_text("The server did not answer: try the file").wait_for()
    page.close()


def test_what_a_run_needs_is_said_before_it(url, open_page, stage_of):
    with open_page(url) as page:
        line = page.locator("#bs-forecast")
        needs = "Needs at most {} of KV cache ({} of up to {} tokens); "
        largest = "3.6 kB of KV cache (1 row of up to 14 tokens in the largest of 2 batches); "
        stage_of(page).set_prompts(["ten tokens", "two"], [5, 7])
        expect(line).to_contain_text(needs.format("8.2 kB", "2 rows", 10 + 7 - 1))
        expect(line).to_contain_text("B of memory are free.")
        assert line.locator("[role=alert], [role=status]").count() == 0
        page.get_by_label("Batch size (slots)").fill("1")
        expect(line).to_contain_text(largest)
        page.get_by_label("Prompt 1", exact=True).fill(" ")
        expect(line).to_have_text("")
        page.get_by_label("Prompt 1", exact=True).fill("x" * 5000)
        expect(line.get_by_role("alert")).to_contain_text("does not fit the model's context")
        page.get_by_label("Prompt 1", exact=True).fill("x")
        expect(line).to_contain_text("(1 row of up to 9 tokens in the largest of 2 batches)")


def test_a_run_that_does_not_fit_is_refused_in_red_before_it(
    slow_url, slow, monkeypatch, open_page, stage_of
):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 50_000)
    with open_page(slow_url) as page:
        stage = stage_of(page)
        stage.set_prompts(["a", "b"], [400, 400])
        refused = page.locator("#bs-forecast").get_by_role("alert")
        expect(refused).to_contain_text("for 2 rows of up to 400 tokens")
        expect(refused).to_contain_text("and 50.0 kB are free.")
        assert refused.evaluate("node => getComputedStyle(node).color") == "rgb(179, 38, 30)"
        said = refused.inner_text()
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_text(said)).to_have_count(2)
        assert slow.model.calls == []


def test_an_error_goes_when_the_form_is_mended_and_hints_are_not_red(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["fine", "also fine"], [3, 3])
        page.get_by_label("Prompt 2", exact=True).fill("")
        stage.run()
        red = page.get_by_role("alert")
        red.get_by_text("Prompt 2 is empty.").wait_for()
        page.get_by_label("Token budget of prompt 1").fill("99999999")
        page.get_by_label("Prompt 2", exact=True).fill("mended")
        hint = page.locator("#bs-forecast").get_by_text("Prompt 1: the token budget is 99,999,999")
        hint.wait_for()
        assert hint.evaluate("node => getComputedStyle(node).color") == "rgb(89, 96, 108)"
        expect(red.get_by_text("Prompt 2 is empty.")).to_be_visible()
        page.get_by_label("Token budget of prompt 1").fill("3")
        expect(page.locator("#bs-forecast")).to_contain_text("Needs at most")
        expect(page.locator("#bs-notice")).to_have_text("")


def test_on_a_phone_what_is_said_stands_by_run(url, open_page, stage_of):
    with open_page(url, width=375, height=812) as page:
        stage = stage_of(page)
        stage.set_prompts(["fine", "also fine"], [3, 3])
        expect(page.locator("#bs-forecast")).to_contain_text("Needs at most")
        page.get_by_label("Prompt 2", exact=True).fill("")
        stage.run()
        page.get_by_text("Prompt 2 is empty.").wait_for()
        page.evaluate("scrollTo(0, 0)")
        expect(page.get_by_text("Prompt 2 is empty.")).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_in_viewport(ratio=1)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        foot = page.locator("#bs-foot").bounding_box()
        last = page.get_by_text("Sampling, stops, padding side").bounding_box()
        assert last["y"] + last["height"] <= foot["y"]


def test_run_stays_where_it_is_whatever_is_said(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["a", "b"], [9, 9])
        expect(page.locator("#bs-forecast")).to_contain_text("Needs at most")
        before = page.locator("#bs-run").bounding_box()
        stage.run()
        stage.wait_for_end()
        expect(page.locator("#bs-notice")).to_contain_text("Note: ")
        assert page.locator("#bs-run").bounding_box() == before


def test_further_settings_come_into_sight_when_they_are_opened(url, open_page):
    with open_page(url) as page:
        expect(page.get_by_label("Temperature (0: greedy)")).to_be_hidden()
        open_settings(page)
        expect(page.get_by_label("Temperature (0: greedy)")).to_be_in_viewport(ratio=1)
        order = page.locator("#bs-more label, #bs-more [data-testid=block-info]")
        said = [text for text in order.all_inner_texts() if text.strip()]
        assert "Padding side" in said[-3]


def test_a_file_of_prompts_that_is_dropped_on_the_picture_is_told_where_to_go(url, open_page):
    with open_page(url) as page:
        drop(page, "P.CSV", "prompt\nHi\n", on=".bs-stage")
        said = "P.CSV is a file of prompts: drop it on the list of prompts."
        expect(page.locator(".bs-summary")).to_have_text(said)


def test_typing_asks_for_a_forecast_once_it_pauses(url, open_page):
    asked = []
    with open_page(url) as page:
        page.locator("#bs-forecast").get_by_text("Needs at most").wait_for()
        page.on("request", lambda request: asked.append(request.url))
        page.get_by_label("Prompt 1", exact=True).press_sequentially("and so on, and so on")
        expect(page.locator("#bs-forecast")).to_contain_text("free.")
        page.wait_for_timeout(1000)  # two pauses
    assert len(asked) < 5

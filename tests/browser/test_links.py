"""Links that carry prompts and settings: copied, opened, edited, damaged."""

import base64
import json
import threading

import pytest
from playwright.sync_api import expect

from engine.orders import DAMAGED, read_link
from engine.requests import Limits
from tests.browser.conftest import leaving
from tests.serving import served
from tests.tiny import scripted_lm, token_ids

MARKUP = "<img src=x onerror=alert(1)>"
STOPS = f"END\n two\\n\\nlines \nback\\\\slash\n{MARKUP}"


@pytest.fixture(scope="module")
def lm():
    return scripted_lm([token_ids("hello brave new world")])


@pytest.fixture(scope="module")
def url(lm):
    with served(lm, type(lm)(lm.model, lm.tokenizer, name="other")) as url:
        yield url


@pytest.fixture
def go_on():
    """Set at the end at the latest, so that no run stays on the device."""
    event = threading.Event()
    yield event
    event.set()


def prompts_of(page):
    return [area.input_value() for area in page.locator(".bs-rows textarea").all()]


def budgets_of(page):
    return [field.input_value() for field in page.locator(".bs-rows input").all()]


def copy_link(page):
    """Press Copy link -> the clipboard's text."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("status").get_by_text("Link copied, with these").wait_for()
    return page.evaluate("navigator.clipboard.readText()")


def follow(page, link):
    """Open a link as in a tab of its own."""
    page.evaluate("sessionStorage.clear()")
    with leaving(page):
        page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(".bs-rows")


def change_settings(page):
    page.get_by_label("Batch size (slots)").fill("3")
    page.get_by_label("Model").click()
    page.get_by_role("option", name="other").click()
    page.get_by_label("Chat template").check()
    page.get_by_label("Ignore EOS").uncheck()
    page.get_by_role("radio", name="right").check()
    page.get_by_label("Temperature (0: greedy)").fill("0.7")
    page.get_by_label("Top-p (1: off)").fill("0.9")
    page.get_by_label("Top-k (0: off)").fill("40")
    page.get_by_label("Min-p (0: off)").fill("0.05")
    page.get_by_label("Repetition penalty (1: off)").fill("1.1")
    page.get_by_label("Seed").fill("123")
    page.get_by_label("Min new tokens (0: off)").fill("1")
    page.get_by_label("Stop strings").fill(STOPS)
    page.get_by_label("Stop strings").blur()


def expect_settings(page):
    expect(page.get_by_label("Batch size (slots)")).to_have_value("3")
    expect(page.get_by_label("Model")).to_have_value("other")
    expect(page.get_by_label("Chat template")).to_be_checked()
    expect(page.get_by_label("Ignore EOS")).not_to_be_checked()
    page.get_by_text("Sampling, stops, padding side").click()
    expect(page.get_by_role("radio", name="right")).to_be_checked()
    expect(page.get_by_label("Temperature (0: greedy)")).to_have_value("0.7")
    expect(page.get_by_label("Top-p (1: off)")).to_have_value("0.9")
    expect(page.get_by_label("Top-k (0: off)")).to_have_value("40")
    expect(page.get_by_label("Min-p (0: off)")).to_have_value("0.05")
    expect(page.get_by_label("Repetition penalty (1: off)")).to_have_value("1.1")
    expect(page.get_by_label("Seed")).to_have_value("123")
    expect(page.get_by_label("Min new tokens (0: off)")).to_have_value("1")
    expect(page.get_by_label("Stop strings")).to_have_value(STOPS)


def test_a_copied_link_opens_the_page_filled_in_and_runs_nothing(url, lm, open_page, stage_of):
    typed = ["long " * 60, MARKUP, "中文, العربية & 🌊 ${x} {{y}}", *["word " * 60] * 5]
    with open_page(url) as page:
        page.get_by_text("Sampling, stops, padding side").click()
        stage_of(page).set_prompts(typed, range(1, 9))
        change_settings(page)
        link = copy_link(page)
        assert link.startswith(f"{url}/#run=")
        follow(page, link)
        page.get_by_text("Filled in: press Run.").wait_for()
        assert prompts_of(page) == typed
        assert budgets_of(page) == [str(budget) for budget in range(1, 9)]
        expect_settings(page)
        assert page.url == f"{url}/"
        assert page.locator(".bs-editor img").count() == 0
        assert lm.model.calls == []
        page.get_by_role("button", name="Run", exact=True).click()
        stage_of(page).wait("value.prompts.length === 8 && value.status === 'done'")
        request = stage_of(page).evaluate("JSON.parse(value.record).requests[0]")
        assert request["stop"] == ["END", " two\n\nlines ", "back\\slash", MARKUP]


def test_a_link_from_before_there_were_stop_strings_opens(url, open_page):
    order = {"prompts": ["Hello"], "max_new_tokens": [5], "model": "scripted", "batch_size": 1}
    text = base64.urlsafe_b64encode(json.dumps(order).encode()).decode().rstrip("=")
    with open_page(url) as page:
        page.get_by_text("Sampling, stops, padding side").click()
        page.get_by_label("Stop strings").fill("END")
        page.get_by_label("Repetition penalty (1: off)").fill("2")
        page.evaluate("text => { location.hash = `#run=${text}` }", text)
        page.get_by_text("Filled in: press Run.").wait_for()
        expect(page.get_by_label("Stop strings")).to_have_value("")
        expect(page.get_by_label("Repetition penalty (1: off)")).to_have_value("1")


def test_prompts_never_stand_in_a_request_for_the_page(url, open_page):
    asked = []
    with open_page(url) as page:
        link = copy_link(page)
        page.on("request", lambda request: asked.append(request.url))
        follow(page, link)
        page.get_by_text("Filled in: press Run.").wait_for()
    assert len(asked) > 5
    assert not any("run=" in address for address in asked)


def test_what_is_edited_after_opening_outlives_a_reload(url, open_page, stage_of):
    with open_page(url) as page:
        stage_of(page).set_prompts(["from the link"], [5])
        link = copy_link(page)
        follow(page, link)
        page.get_by_text("Filled in: press Run.").wait_for()
        page.get_by_label("Prompt 1", exact=True).fill("edited since")
        expect(page.get_by_text("Filled in:")).to_have_count(0)
        with leaving(page):
            page.reload()
        expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("edited since")


def test_a_link_wins_over_what_was_there_in_a_new_page_and_in_an_open_one(url, open_page, stage_of):
    with open_page(url) as page:
        stage_of(page).set_prompts(["from the link"], [5])
        link = copy_link(page)
        stage_of(page).set_prompts(["kept", "by this tab"], [6, 6])
        with leaving(page):
            page.goto(link)
        expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("from the link")
        expect(page.get_by_label("Batch size (slots)")).to_have_value("1")
        assert prompts_of(page) == ["from the link"]
        stage_of(page).set_prompts(["typed", "since"], [6, 6])
        page.evaluate("link => { location.href = link }", link)
        expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("from the link")
        expect(page.get_by_label("Batch size (slots)")).to_have_value("1")
        assert prompts_of(page) == ["from the link"]
        assert page.url == f"{url}/"
        said = page.get_by_text("Filled in: press Run.")
        expect(said).to_be_visible()
        page.get_by_role("button", name="One straggler").click()
        expect(said).to_have_count(0)
        expect(page.get_by_label("Prompt 6", exact=True)).to_be_visible()


def test_a_link_that_is_opened_during_a_run_leaves_it_alone(go_on, open_page, stage_of):
    slow = scripted_lm(
        [token_ids("hello brave new world")],
        before_forward=lambda column: column <= 5 or go_on.wait(60),
    )
    with served(slow) as url, open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["from the link"], [5])
        link = copy_link(page)
        follow(page, link)
        stage.set_prompts(["under way", "too"], [21, 21])
        stage.run()
        stage.wait("value.status === 'running'")
        page.evaluate("link => { location.href = link }", link)
        expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("from the link")
        page.get_by_text("Filled in: press Run.").wait_for()
        expect(page.get_by_label("Batch size (slots)")).to_have_value("1")
        assert stage.evaluate("value.status") == "running"
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_enabled()
        go_on.set()
        stage.wait_for_end()
        assert stage.evaluate("value.prompts") == ["under way", "too"]
        assert stage.evaluate("value.ends") == ["length", "length"]
        assert prompts_of(page) == ["from the link"]
        stage.run()
        stage.wait("value.prompts[0] === 'from the link' && value.status === 'done'")


def test_an_editor_that_is_gone_opens_no_link(url, open_page):
    with open_page(url) as page:
        page.evaluate(
            """() => new Promise(opened => {
              document.querySelector("#bs-left").remove();
              addEventListener("hashchange", opened, { once: true });
              location.hash = "#run=AAAA";
            })"""
        )
        assert page.url == f"{url}/?__theme=light#run=AAAA"


@pytest.mark.parametrize("text", ["", "AAAA", "%3Cimg%20src=x%20onerror=alert(1)%3E"])
def test_a_damaged_link_is_said_and_the_page_works(url, open_page, stage_of, text):
    with open_page(url) as page:
        before = prompts_of(page)
        follow(page, f"{url}/#run={text}")
        page.get_by_role("alert").get_by_text(DAMAGED).wait_for()
        assert prompts_of(page) == before
        stage_of(page).set_prompts(["fine"], [3])
        page.get_by_role("button", name="Run", exact=True).click()
        stage_of(page).wait("value.prompts[0] === 'fine' && value.status === 'done'")


def test_a_link_to_a_model_and_to_limits_of_another_host(open_page, stage_of):
    with served(scripted_lm([[65]])) as here, open_page(here) as page:
        stage_of(page).set_prompts(["hello"], [20])
        link = copy_link(page).removeprefix(here)
    one = scripted_lm([[65]])
    elsewhere = type(one)(one.model, one.tokenizer, name="elsewhere")
    with served(elsewhere) as there, open_page(there) as page:
        follow(page, there + link)
        page.get_by_role("alert").get_by_text("names the model 'scripted'").wait_for()
        assert prompts_of(page) == ["hello"]
        expect(page.get_by_label("Model")).to_have_value("elsewhere")
    with served(one, limits=Limits(new_tokens=9)) as small, open_page(small) as page:
        follow(page, small + link)
        page.get_by_role("alert").get_by_text("the token budget is 20, the limit is 9.").wait_for()


def test_where_the_clipboard_is_refused_the_link_is_shown_selected(url, open_page, stage_of):
    with open_page(url) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        stage_of(page).set_prompts(["hello", "there"], [5, 6])
        page.get_by_role("button", name="+ Add a prompt").click()
        page.get_by_role("button", name="Copy link").focus()
        page.keyboard.press("Enter")
        page.get_by_role("status").get_by_text("copy the link by hand").wait_for()
        field = page.get_by_label("Link with these prompts and settings")
        expect(field).to_be_focused()
        selected = page.evaluate("document.getSelection().toString()")
        assert selected == field.input_value()
        order = read_link(selected.partition("#run=")[2], Limits())
        assert [request.prompt for request in order.requests] == ["hello", "there"]
        page.get_by_label("Prompt 1", exact=True).fill("another")
        expect(field).to_be_hidden()

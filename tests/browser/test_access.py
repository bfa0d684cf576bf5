"""For everyone: axe-core, the keyboard alone, zoom, small screens, words for screen readers."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from tests.serving import served
from tests.tiny import EOS, scripted_lm, token_ids

TEXT = token_ids("the quick brown fox jumps over the lazy dog " * 8)
GRAVE = {"serious", "critical"}


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([TEXT, [*TEXT[:6], EOS]], seconds=0.01)) as url:
        yield url


def violations(page):
    """What axe-core finds grave, as (rule, element)."""
    return [
        (found["id"], node["html"][:200])
        for found in Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]


def test_axe_finds_what_is_wrong(url, open_page):
    with open_page(url) as page:
        page.evaluate(
            "document.querySelector('.bs-stage').append(document.createElement('button'))"
        )
        assert ("button-name", "<button></button>") in violations(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_on_the_run_tab(url, open_page, stage_of, theme):
    with open_page(url, theme=theme) as page:
        stage = stage_of(page)
        assert violations(page) == []
        page.locator(".bs-tile").first.click()
        assert violations(page) == []
        page.keyboard.press("Escape")
        page.locator(".bs-export summary").click()
        assert violations(page) == []
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Paste or open").click()
        page.get_by_role("button", name="Sampling, stops, padding side").click()
        assert violations(page) == []
        page.get_by_role("button", name="Paste or open").click()
        stage.set_prompts([f"prompt {i}" for i in range(9)], [200] * 9)
        stage.run()
        stage.wait("view.steps > 3")
        assert violations(page) == []
        stage.wait_for_end()
        assert violations(page) == []
        page.get_by_role("button", name="Present").click()
        assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_on_how_it_works(url, open_page, theme):
    with open_page(url, theme=theme) as page:
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("heading", name="How it works").wait_for()
        for details in page.locator(".bs-story details").all():
            details.locator("summary").click()
        assert violations(page) == []


def test_axe_on_a_phone(url, open_page):
    with open_page(url, width=375, height=812) as page:
        assert violations(page) == []
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("heading", name="How it works").wait_for()
        assert violations(page) == []


def tab_to(page, selector):
    """Press Tab until the focus is on an element; it must show that it has it."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{selector} does not show its focus"
            return
    raise AssertionError(f"Tab never came to {selector}")


def test_from_load_to_an_exported_png_by_keyboard_alone(url, open_page, stage_of, tmp_path):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.expect_another()
        tab_to(page, ".bs-rows textarea")
        page.keyboard.press("Control+A")
        page.keyboard.type("typed by keyboard")
        tab_to(page, "#bs-run")
        page.keyboard.press("Enter")
        stage.wait_for_end()
        tab_to(page, ".bs-picture")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("Request 1, slot 1")
        page.keyboard.press("Escape")
        expect(page.locator(".bs-picture")).to_be_focused()
        page.keyboard.press("End")
        tab_to(page, ".bs-axis button")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        tab_to(page, ".bs-export summary")
        page.keyboard.press("Enter")
        with page.expect_download() as download:
            tab_to(page, ".bs-export li button")
            page.keyboard.press("Enter")
        path = tmp_path / "slide.png"
        download.value.save_as(path)
        assert Image.open(path).size == (1920, 1080)
        assert stage.evaluate("value.prompts[0]") == "typed by keyboard"


def test_screen_readers_hear_the_start_and_the_end_and_no_step(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        page.evaluate(
            """() => {
              const said = document.querySelector('.bs-said');
              window.heard = [];
              new MutationObserver(() => window.heard.push(said.textContent)).observe(
                said, {childList: true, characterData: true, subtree: true});
            }"""
        )
        stage.set_prompts(["hello", "a longer prompt"], [40, 40])
        stage.run()
        stage.wait_for_end()
        heard = page.evaluate("window.heard")
        assert heard[0] == "Running 2 prompts."
        assert heard[-1] == stage.evaluate("value.summary")
        assert len(heard) == 2
        assert page.locator(".bs-said").get_attribute("role") == "status"


@pytest.mark.parametrize("width", [375, 720])  # 720 is a 1440 screen at 200 % zoom
def test_e16_no_sideways_scrolling(url, open_page, stage_of, width):
    with open_page(url, width=width, height=810 * width // 1440 + 400) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "hello there"], [10, 10])
        stage.run()
        stage.wait_for_end()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("heading", name="How it works").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_right_to_left_and_wide_texts_read_right(open_page, stage_of):
    arabic, chinese = "اكتب جملة قصيرة عن البحر.", "用一句话介绍你自己。"
    lm = scripted_lm([[*token_ids(arabic), EOS], [*token_ids(chinese), EOS]])
    with served(lm) as url, open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts([arabic, chinese], [100, 100])
        stage.run()
        stage.wait_for_end()
        texts = page.locator(".bs-text")
        assert texts.all_text_contents() == [arabic, chinese]
        directions = texts.evaluate_all(
            "all => all.map((node) => getComputedStyle(node).direction)"
        )
        assert directions == ["rtl", "ltr"]


def test_presenter_mode(url, open_page, stage_of):
    with open_page(url, width=1920, height=1080) as page:
        stage = stage_of(page)
        page.locator(".bs-picture").focus()
        page.keyboard.press("p")
        expect(page.locator("#bs-left")).to_be_hidden()
        letters = page.evaluate(
            """() => {
              const stage = document.querySelector('.bs-stage');
              const walker = document.createTreeWalker(stage, NodeFilter.SHOW_TEXT);
              const sizes = [];
              while (walker.nextNode()) {
                const node = walker.currentNode.parentElement;
                const text = walker.currentNode.textContent.trim();
                const unseen = node.closest('.bs-controls, .bs-unseen, .bs-said');
                if (!text || unseen || !node.checkVisibility()) continue;
                sizes.push([parseFloat(getComputedStyle(node).fontSize), text]);
              }
              return sizes;
            }"""
        )
        assert len(letters) > 25
        assert [text for size, text in letters if size < 48] == []
        for part in (".bs-tile", ".bs-card"):
            for box in (node.bounding_box() for node in page.locator(part).all()):
                assert box["x"] >= 0
                assert box["y"] >= 0
                assert box["x"] + box["width"] <= 1920
                assert box["y"] + box["height"] <= 1080
        strip = page.locator(".bs-strip")
        assert strip.evaluate("node => node.scrollWidth <= node.clientWidth")
        page.keyboard.press("ArrowLeft")
        assert stage.evaluate("view.steps - view.step") == 1
        page.keyboard.press("Escape")
        expect(page.locator("#bs-left")).to_be_visible()


@pytest.mark.parametrize("rows", [8, 12])
def test_a_slide_cuts_no_card_in_two(url, open_page, stage_of, rows):
    with open_page(url, width=1920, height=1080) as page:
        stage = stage_of(page)
        stage.set_prompts([f"prompt {i}" for i in range(rows)], [20] * rows)
        stage.run()
        stage.wait_for_end()
        page.get_by_role("button", name="Present").click()
        bottom = page.locator(".bs-texts").evaluate("box => box.getBoundingClientRect().bottom")
        boxes = [card.bounding_box() for card in page.locator(".bs-card").all()]
        whole = [box for box in boxes if box["y"] + box["height"] <= bottom + 1]
        assert len(whole) == min(rows, 8 if rows <= 8 else 6)
        assert all(box["y"] >= bottom - 1 for box in boxes if box not in whole)


def test_keys_are_for_the_stage_only_where_it_is_in_sight(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        page.get_by_label("Prompt 1", exact=True).focus()
        page.keyboard.type("p")
        expect(page.locator("#bs-left")).to_be_visible()
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("heading", name="How it works").click()
        page.keyboard.press("p")
        page.keyboard.press("Home")
        expect(page.get_by_role("tab", name="How it works")).to_be_visible()
        assert stage.evaluate("view.step === view.steps")

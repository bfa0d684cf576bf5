"""The Watch tab as a reader sees it: batches as they run, who left, what is hidden."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.browser.test_access import violations
from tests.serving import served, wait_for
from tests.tiny import EOS, scripted_lm, token_ids
from tests.watched import watched

MODEL, OTHER = "scripted", "it's another"
PROMPTS = ["Where do rivers begin?", "Hi", "x", "Tell me a story"]
TEXT = token_ids("the quick brown fox jumps over the lazy dog " * 4)


class Model:
    """A model that stops before a forward of every batch until it may go on."""

    def __init__(self):
        self.may_go = threading.Event()
        self.may_go.set()
        self.stops_at = 12
        script = [TEXT, [*TEXT[:5], EOS], TEXT, [*TEXT[:9], EOS]]
        self.lm = scripted_lm(script, before_forward=self, seconds=0.005)

    def __call__(self, column):
        assert column < self.stops_at or self.may_go.wait(30)

    @contextmanager
    def held(self):
        self.may_go.clear()
        try:
            yield
        finally:
            self.may_go.set()


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.fixture(scope="module")
def here(model):
    with watched(model.lm, texts=True, batch_size=4, window=5) as here:
        yield here


@pytest.fixture(scope="module")
def hiding(model):
    with watched(model.lm, replace(model.lm, name=OTHER), batch_size=4) as here:
        yield here


def call(here, prompts=PROMPTS, **asked):
    """One call, whose rows are a batch; its stream."""
    asked = {"model": MODEL, "max_tokens": 24, "temperature": 0, "stream": True} | asked
    return here.client().completions.create(prompt=prompts, **asked)


class Tab:
    """What a reader of the tab sees and does, in words."""

    def __init__(self, page):
        self.page = page
        page.get_by_role("tab", name="Watch").click()
        self.stage = page.locator(".bs-watch .bs-stage")
        self.cards = page.locator(".bs-watch .bs-card")
        self.batches = page.locator(".bs-watch-batch")
        self.wait("true")

    def wait(self, condition):
        """`condition` is JavaScript over `told`, what the server has told, and `view` and `value`,
        what the stage shows."""
        self.page.wait_for_function(
            """condition => {
              const told = document.querySelector('.bs-watch')?.batchscope;
              const view = document.querySelector('.bs-watch .bs-stage')?.batchscope;
              return told && new Function('told', 'view', 'value', 'return ' + condition)(
                told, view, view?.value);
            }""",
            arg=condition,
        )

    def line_through(self):
        """The path of the line through rows whose client has left."""
        return self.page.evaluate(
            """() => {
              const { shapes } = document.querySelector('.bs-watch .bs-plot').layout;
              return shapes.at(-1).path;
            }"""
        )


def test_a_page_without_clients_has_no_such_tab(open_page):
    with served(scripted_lm([TEXT])) as url, open_page(url) as page:
        expect(page.get_by_role("tab", name="Run", exact=True)).to_be_visible()
        assert page.get_by_role("tab", name="Watch").count() == 0
        assert "bs-watch" not in page.content()


def test_nothing_has_come_yet_and_the_page_says_how_to_send_something(hiding, open_page):
    with open_page(hiding.url) as page:
        tab = Tab(page)
        expect(page.get_by_role("heading", name="Nothing has come yet")).to_be_visible()
        expect(tab.stage).to_be_hidden()
        line = page.locator(".bs-watch-line")
        expect(line).to_contain_text(f"curl {hiding.url}/v1/completions")
        expect(line).to_contain_text(f'"model":"{MODEL}"')
        expect(page.locator(".bs-watch-base")).to_have_text(f"{hiding.url}/v1")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == line.text_content()
        page.get_by_label("Model").last.select_option(OTHER)
        expect(line).to_contain_text("it'\\''s another")  # as a shell takes it
        assert violations(page) == []


def test_a_batch_grows_and_a_client_that_leaves_is_marked(here, model, open_page):
    with model.held(), open_page(here.url) as page:
        tab = Tab(page)
        with ThreadPoolExecutor(2) as pool:
            leaving, staying = pool.map(lambda prompts: call(here, prompts), [PROMPTS[:2]] * 2)
        tab.wait("view?.step === 11 && value.status === 'running'")
        expect(tab.cards).to_have_count(4)
        assert tab.line_through() == "M0,0"
        leaving.close()
        # Of the two rows of a call one has ended by then, and its client had all of it.
        expect(page.locator(".bs-watch .bs-card .bs-gone", has_text="client gone")).to_have_count(1)
        expect(tab.batches.first).to_contain_text("✕ 1 gone")
        expect(tab.cards.first).to_contain_text(re.compile(r"waited [\d.]+ m?s"))
        expect(tab.cards.first).to_contain_text("the quick")
        expect(page.locator(".bs-watch-lesson").first).to_contain_text("frees nothing")
        assert violations(page) == []
        model.may_go.set()
        list(staying)
        tab.wait("value.status === 'done' && value.moments")
        assert re.fullmatch(r"(M[\d.]+,\d+L[\d.]+,\d+)+", tab.line_through())
        rows = page.locator(".bs-watch .bs-table tbody tr")
        expect(rows.filter(has_text="client gone")).to_have_count(1)


def test_a_batch_that_is_over_is_replayed_and_stays_when_the_next_one_begins(
    here, model, open_page
):
    list(call(here))
    with open_page(here.url) as page:
        tab = Tab(page)
        tab.wait("value?.status === 'done' && value.moments && told.batches[0].running === false")
        last = tab.batches.count()
        page.get_by_role("slider", name="Step").last.click(position={"x": 30, "y": 10})
        tab.wait("view.step < view.steps")
        with model.held():
            following = call(here)
            tab.wait("told.batches[0].running")
            expect(tab.batches).to_have_count(min(last + 1, 9))
            expect(tab.batches.nth(1)).to_have_attribute("aria-pressed", "true")
            tab.wait("view.step < view.steps")
            page.get_by_role("button", name="Follow the newest").click()
            tab.wait("value.status === 'running' && value.key === told.batches[0].key")
        list(following)


def test_hidden_texts_are_nowhere_on_the_page(hiding, model, open_page):
    """And each model is watched by itself; on a phone nothing scrolls sideways."""
    with open_page(hiding.url, theme="dark", width=375, height=812) as page:
        tab = Tab(page)
        with model.held():
            stream = call(hiding)
            tab.wait("view?.step === 11")
            expect(tab.cards).to_have_count(4)
            expect(page.locator(".bs-watch .bs-text").first).to_be_hidden()
            expect(page.locator(".bs-watch-hidden")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
            assert violations(page) == []
        list(stream)
        tab.wait("value.moments")
        shown = page.locator(".bs-watch").evaluate("node => node.innerText + node.outerHTML")
        assert "quick" not in shown
        assert PROMPTS[0] not in shown
        expect(page.locator(".bs-watch .bs-export")).to_be_hidden()
        page.get_by_label("Model").last.select_option(OTHER)
        expect(page.get_by_role("heading", name="Nothing has come yet")).to_be_visible()


def test_another_model_can_be_chosen_just_when_there_is_news(hiding, open_page):
    with open_page(hiding.url) as page:
        Tab(page)
        page.evaluate(
            """other => {
              const model = document.querySelector('.bs-watch-model');
              document.querySelector('.bs-watch-live').click(); // draws with the next frame
              model.value = other;
              model.dispatchEvent(new Event('change'));
            }""",
            OTHER,
        )
        expect(page.locator(".bs-watch-line")).to_contain_text("another")
        expect(page.get_by_role("heading", name="Nothing has come yet")).to_be_visible()


def test_a_tab_that_nobody_sees_watches_nothing(here, open_page):
    watching = here.watch.feeds[MODEL]
    with open_page(here.url) as page:
        Tab(page)
        wait_for(lambda: watching.watchers == 1)
        page.get_by_role("tab", name="Run", exact=True).click()
        wait_for(lambda: watching.watchers == 0)
        page.get_by_role("tab", name="Watch").click()
        wait_for(lambda: watching.watchers == 1)
    wait_for(lambda: watching.watchers == 0)

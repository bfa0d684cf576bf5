"""Chromium for the browser tests: the system's own, driven by Playwright."""

import os
import re
import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ROWS = '.bs-plot .nsewdrag[data-subplot="xy"]'
"""The rows of the picture, without its labels and the strip of memory."""
CUT_STREAMS = ("AbortError: signal is aborted", "Connection errored out")
_LEFT: set[Page] = set()
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        hint = "no Chromium found: install it, e.g. apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(hint)
        pytest.skip(hint)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def warm(chromium):
    """A context whose visits share one process, kept by an empty page, so that it compiles Plotly
    and Gradio once."""
    context = chromium.new_context()
    keeper = context.new_page()
    keeper.route("**/*", lambda route: route.fulfill(body=""))
    keeper.goto("http://127.0.0.1/")
    yield context
    context.close()


@pytest.fixture
def open_page(chromium, warm):
    """Open the page at an address; at the end there were no console errors, no dialogs, and no
    request to another host. A visit with `alone` shares no process, cache or permission."""
    visits = []

    @contextmanager
    def visit(url, *, theme="light", width=1440, height=810, motion="reduce", alone=False):
        context = chromium.new_context() if alone else warm
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(reduced_motion=motion)
        page.set_default_timeout(30_000)
        heard = {"errors": [], "requests": [], "dialogs": []}

        def hear(error):
            if not (page in _LEFT and any(cut in error for cut in CUT_STREAMS)):
                heard["errors"].append(error)

        page.on("console", lambda message: message.type == "error" and hear(_told(message)))
        page.on("pageerror", lambda error: hear(str(error)))
        page.on("request", lambda request: heard["requests"].append(request.url))
        page.on(
            "dialog", lambda dialog: (heard["dialogs"].append(dialog.message), dialog.dismiss())
        )
        page.goto(f"{url}/?__theme={theme}")
        page.wait_for_selector(".bs-rows")
        page.wait_for_function("window.Plotly !== undefined")
        visits.append((url, heard))
        try:
            yield page
        finally:
            context.close() if alone else page.close()

    yield visit
    for url, heard in visits:
        assert heard["errors"] == []
        assert heard["dialogs"] == []
        foreign = [
            request
            for request in heard["requests"]
            if not request.startswith((url, "data:", "blob:"))
        ]
        assert foreign == []


@contextmanager
def leaving(page):
    """While the page is left: what Gradio's client then tells of its streams is no error."""
    _LEFT.add(page)
    yield
    _LEFT.remove(page)


def _told(message):
    return f"{message.text} ({message.location.get('url')})"


class Stage:
    """What a reader of the page sees and does, in words."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._before = None

    def set_prompts(self, prompts, budgets):
        """Replace the prompt list, which also sets template on, EOS ends rows, one batch."""
        self.page.get_by_role("button", name="Paste or open").click()
        self.page.get_by_label("Prompts, one per line").fill("\n".join(prompts))
        with self.page.expect_response(lambda response: "/gradio_api/run/" in response.url):
            self.page.get_by_role("button", name="Replace all").click()
        expect(self.page.get_by_label("Batch size (slots)")).to_have_value(str(len(prompts)))
        for index, budget in enumerate(budgets):
            label = f"Token budget of prompt {index + 1}"
            self.page.get_by_label(label, exact=True).fill(str(budget))

    def run(self):
        self.expect_another()
        self.page.get_by_role("button", name="Run", exact=True).click()

    def expect_another(self):
        """From now on `wait` is about another run than the one that is shown."""
        self._before = self.evaluate("value.key")

    def wait(self, condition):
        """`condition` is JavaScript over `value` (the state drawn), `view` and `plot`."""
        self.page.wait_for_function(
            """([condition, before]) => {
              const stage = document.querySelector('.bs-stage');
              const view = stage.batchscope, plot = document.querySelector('.bs-plot');
              if (!view || !plot.data || view.value.key === before) return false;
              return new Function('view', 'value', 'plot', 'return ' + condition)(
                view, view.value, plot);
            }""",
            arg=[condition, self._before],
        )

    def wait_for_end(self, status="done"):
        self.wait(f"value.status === '{status}'")

    def evaluate(self, expression):
        return self.page.evaluate(
            """expression => {
              const stage = document.querySelector('.bs-stage');
              const plot = document.querySelector('.bs-plot');
              return new Function('view', 'value', 'plot', 'return ' + expression)(
                stage.batchscope, stage.batchscope.value, plot);
            }""",
            expression,
        )

    def export(self, kind, folder):
        """Choose from the Export menu -> the path of the file that the browser received."""
        self.page.locator(".bs-export summary").click()
        with self.page.expect_download() as download:
            choices = self.page.locator(".bs-export li button")
            choices.filter(has_text=re.compile(f"^{re.escape(kind)}")).click()
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def save(self, folder):
        """Save the run."""
        return self.export("The run, to open here again", folder)


@pytest.fixture
def stage_of():
    return Stage

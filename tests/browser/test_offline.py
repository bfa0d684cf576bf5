"""The exported HTML file: opened from disk with the network off, it replays the run."""

from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from engine.metrics import rows
from engine.run import until
from tests.unit.paper import WORKED, make_run
from viz.offline.offline import offline_html

TWO_BATCHES = make_run([[(3, 4), (5, 2)], [(7, 3)]], pause=0.25)


@pytest.fixture
def open_run(chromium, tmp_path):
    """Export a run and open the file offline; at the end it asked for nothing but itself, and
    there were no console errors and no dialogs."""
    visits = []

    @contextmanager
    def visit(run, *, theme="light", width=1440, height=810):
        path = tmp_path / "run.html"
        path.write_bytes(offline_html(run, theme=theme).encode())
        context = chromium.new_context(viewport={"width": width, "height": height})
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(30_000)
        heard = {"errors": [], "requests": [], "dialogs": []}
        page.on(
            "console", lambda message: message.type == "error" and heard["errors"].append(message)
        )
        page.on("pageerror", lambda error: heard["errors"].append(str(error)))
        page.on("request", lambda request: heard["requests"].append(request.url))
        page.on(
            "dialog", lambda dialog: (heard["dialogs"].append(dialog.message), dialog.dismiss())
        )
        page.goto(path.as_uri())
        page.wait_for_selector(".bs-plot .heatmaplayer")
        visits.append((path.as_uri(), heard))
        try:
            yield page
        finally:
            context.close()

    yield visit
    assert visits
    for url, heard in visits:
        assert [str(error) for error in heard["errors"]] == []
        assert heard["dialogs"] == []
        assert heard["requests"] == [url]


def shown(page):
    """What the stage draws: its step, the tokens of each request, and their texts on the page."""
    return page.evaluate(
        """() => {
          const view = document.querySelector('.bs-stage').batchscope;
          return {
            status: view.value.status,
            step: view.step,
            tokens: view.rows.map((row) => row.tokens.length),
            texts: [...document.querySelectorAll('.bs-text')].map((node) => node.textContent),
          };
        }"""
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_file_shows_the_run_with_the_network_off(open_run, theme):
    with open_run(WORKED, theme=theme) as page:
        assert shown(page) == {
            "status": "done",
            "step": len(WORKED.steps),
            "tokens": [4, 10, 10],
            "texts": list(WORKED.texts),
        }
        assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
        assert page.title() == "paper, 2025-01-01 · Batchscope"
        expect(page.get_by_role("banner")).to_contain_text("paper · float32 · CPU, 1 thread")


@pytest.mark.parametrize("run", [WORKED, TWO_BATCHES], ids=["one batch", "two batches"])
def test_the_file_replays_to_any_step(open_run, run):
    with open_run(run) as page:
        for step in (0, 1, 5, len(run.steps) - 1, 2, len(run.steps)):
            page.get_by_label("Step", exact=True).fill(str(step))
            then = until(run, step)
            seen = shown(page)
            assert seen["step"] == step
            assert seen["tokens"] == [row.generated for row in rows(then)]
            assert seen["texts"] == list(then.texts)


def test_it_plays_when_asked(open_run):
    with open_run(WORKED) as page:
        speed = page.get_by_label("Speed of the replay")
        heading = page.locator(".bs-heading")
        speed.select_option("0.25")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(heading).to_contain_text("of 10")
        speed.select_option("4")
        expect(heading).to_have_text("Done after 10 steps")
        assert shown(page)["step"] == 10


def test_the_button_switches_the_theme_and_the_picture_with_it(open_run):
    def colours(page):
        return page.evaluate(
            """() => [
              getComputedStyle(document.body).backgroundColor,
              document.querySelector('.bs-plot').data[0].colorscale.flat().join(),
            ]"""
        )

    with open_run(WORKED) as page:
        light = colours(page)
        page.get_by_role("button", name="Switch between light and dark").click()
        dark = colours(page)
        assert light[0] != dark[0]
        assert light[1] != dark[1]


def test_what_needs_a_server_is_not_offered(open_run):
    with open_run(WORKED) as page:
        assert page.get_by_role("button", name="Play", exact=True).is_visible()
        assert not page.get_by_text("Export", exact=True).is_visible()
        assert not page.get_by_text("Open", exact=True).is_visible()


def test_a_phone_scrolls_in_one_direction_only(open_run):
    with open_run(WORKED, width=375, height=700) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 375

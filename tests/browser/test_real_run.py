"""Four real prompts on the real model: the picture, the texts and the figures are the Run's."""

import pytest

from engine import runfile
from engine.presets import PRESETS
from tests.browser.cells import picture_after
from tests.browser.conftest import ROWS
from tests.serving import served

PROMPTS = (
    "What is the capital of France?",
    "Name three fruits.",
    "Why is the sky blue?",
    "Say hello in Italian.",
)


@pytest.fixture(scope="module")
def url(default_lm):
    with served(default_lm) as url:
        yield url


def check_against_record(stage, run):
    z, places = stage.evaluate("[plot.data[0].z, view.places]")
    assert z == picture_after(run, len(run.steps), places)
    cards = stage.page.locator(".bs-text")
    assert [cards.nth(i).evaluate("node => node.textContent") for i in range(cards.count())] == [
        *run.texts
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_four_real_prompts(url, open_page, stage_of, tmp_path, theme):
    with open_page(url, theme=theme) as page:
        stage = stage_of(page)
        stage.set_prompts(PROMPTS, [24, 12, 40, 16])
        stage.run()
        stage.wait("plot.on !== undefined && view.batches[0].times.length >= 2")
        page.evaluate(
            """() => {
              const plot = document.querySelector('.bs-plot');
              const count = () => plot.data[0].z.flat().filter((cell) => cell === 1).length;
              window.pictures = [count()];
              const changed = () => window.pictures.push(count());
              const all = {subtree: true, childList: true, attributes: true};
              new MutationObserver(changed).observe(plot, all);
            }"""
        )
        stage.wait_for_end()
        pictures = page.evaluate("window.pictures")
        assert len({count for count in pictures if count < pictures[-1]}) >= 3
        assert pictures == sorted(pictures)
        run = runfile.load(stage.save(tmp_path))
        assert run.status == "done"
        check_against_record(stage, run)
        assert page.locator(".bs-summary").inner_text().startswith("4 requests, ")
        assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")


def test_the_tutorial_preset_shows_46_and_29_percent(url, open_page, stage_of, tmp_path):
    preset = PRESETS[0]
    with open_page(url) as page:
        stage = stage_of(page)
        page.get_by_role("button", name="One straggler").click()
        page.get_by_label("Prompt 6", exact=True).wait_for()
        page.get_by_role("button", name=preset.label).click()
        page.get_by_label("Prompt 5", exact=True).wait_for(state="detached")
        stage.run()
        stage.wait_for_end()
        tiles = page.locator(".bs-tile").all_inner_texts()
        assert any("45.8" in tile and "55 of 120 slots" in tile for tile in tiles)
        assert any("28.8" in tile and "23 of 80 slots" in tile for tile in tiles)
        assert "55 of 120 prompt slots were padding (46 %), 23 of 80 decode slots idle (29 %)." in (
            page.locator(".bs-summary").inner_text()
        )
        run = runfile.load(stage.save(tmp_path))
        assert [len(ids) for ids in run.batches[0].prompt_ids] == [10, 30, 5, 20]
        check_against_record(stage, run)


def test_e18_zoom_set_during_the_run_survives_the_next_updates(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(PROMPTS[:2], [60, 60])
        page.get_by_label("Ignore EOS").check()
        stage.run()
        stage.wait("view.batches[0].times.length >= 3")
        box = page.locator(ROWS).bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.25, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
        page.mouse.up()
        stage.wait("plot.layout.xaxis.range[1] < plot.data[0].z[0].length - 10")
        zoomed = stage.evaluate(
            "({range: plot.layout.xaxis.range, t: view.batches[0].times.length})"
        )
        stage.wait(f"view.batches[0].times.length >= {zoomed['t'] + 4}")
        assert stage.evaluate("value.status") == "running"
        assert stage.evaluate("plot.layout.xaxis.range") == zoomed["range"]
        stage.wait_for_end()
        assert stage.evaluate("plot.layout.xaxis.range") == zoomed["range"]
        page.mouse.dblclick(box["x"] + 200, y)
        stage.wait("plot.layout.xaxis.range[0] === -0.5")


def test_e4_two_browsers_see_their_own_runs(url, open_page, stage_of):
    with open_page(url) as first_page, open_page(url) as second_page:
        first, second = stage_of(first_page), stage_of(second_page)
        first.set_prompts(["Say AAA."], [60])
        second.set_prompts(["Say BBB."], [5])
        first_page.get_by_label("Ignore EOS").check()
        first.run()
        first.wait("view.batches[0].times.length >= 2")
        second.run()
        second_page.get_by_text("Waiting: 1 run before yours;").wait_for()
        first.wait_for_end()
        second.wait_for_end()
        assert first.evaluate("value.prompts") == ["Say AAA."]
        assert second.evaluate("value.prompts") == ["Say BBB."]

"""A run whose tab is left and come back to."""

import pytest

from engine.turns import turns_on
from tests.serving import served, wait_for
from tests.tiny import scripted_lm, token_ids


@pytest.mark.parametrize("width", [375, 1440])
def test_e16_the_picture_fills_its_column_after_another_tab_was_shown_during_the_run(
    open_page, stage_of, width
):
    lm = scripted_lm([token_ids("the quick brown fox " * 20)], seconds=0.02)
    with served(lm) as url, open_page(url, width=width) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "hello there"], [60, 60])
        stage.run()
        stage.wait("view.batches[0].times.length >= 4")
        page.get_by_role("tab", name="How it works").click()
        page.set_viewport_size({"width": width + 200, "height": 810})
        wait_for(lambda: not len(turns_on("cpu")))
        page.get_by_role("tab", name="Run", exact=True).click()
        stage.wait_for_end()
        page.wait_for_function(
            """() => {
              const [picture, plot] = ['.bs-picture', '.bs-plot .main-svg'].map(
                (name) => document.querySelector(name).getBoundingClientRect().width);
              return picture > 0 && plot <= picture && plot > picture - 40;
            }"""
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width + 200

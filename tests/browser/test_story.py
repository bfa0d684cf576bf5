"""The story's buttons in a browser: a chapter's preset is filled in, shown and run."""

from playwright.sync_api import expect

from engine.presets import find_preset
from tests.serving import served
from tests.tiny import scripted_lm, token_ids


def test_a_chapters_button_goes_to_the_run_tab_and_runs_its_preset(open_page, stage_of):
    straggler = find_preset("straggler")
    lm = scripted_lm([token_ids("hello brave new world")])
    with served(lm) as url, open_page(url) as page:
        stage = stage_of(page)
        stage.expect_another()
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("button", name="Run one straggler").click()
        expect(page.get_by_role("tab", name="Run", exact=True)).to_have_attribute(
            "aria-selected", "true"
        )
        stage.wait_for_end()
        assert stage.evaluate("value.prompts") == list(straggler.prompts)
        assert stage.evaluate("value.budgets") == list(straggler.budgets)
        for number, prompt in enumerate(straggler.prompts, 1):
            expect(page.get_by_label(f"Prompt {number}", exact=True)).to_have_value(prompt)
        expect(page.get_by_label("Batch size (slots)")).to_have_value("6")
        expect(page.get_by_label("Chat template")).to_be_checked()
        expect(page.get_by_label("Ignore EOS")).not_to_be_checked()
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
        page.get_by_role("tab", name="How it works").click()
        page.get_by_role("button", name="Run this batch").click()
        stage.wait("value.prompts.length === 4 && value.status === 'done'")

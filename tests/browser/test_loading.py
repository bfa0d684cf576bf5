"""What the page says in a browser while models load."""

from playwright.sync_api import expect

from tests.serving import served_while_loading


def test_another_model_is_chosen_and_a_run_refused_while_one_loads(
    monkeypatch, open_page, stage_of
):
    held = served_while_loading(monkeypatch, seconds=60)
    with held as (url, go_on), open_page(url) as page:
        notice = page.locator(".bs-notice").last
        expect(notice).to_have_text("Downloading one")
        for name in ("two", "one", "two"):
            page.get_by_label("Model").click()
            page.get_by_role("option", name=name).click()
            expect(notice).to_have_text(f"Downloading {name}")
        page.get_by_label("Prompt 1", exact=True).fill("")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(notice).to_have_text("Prompt 1 is empty.")
        stage_of(page).set_prompts(["Hi"], [3])
        expect(notice).to_have_text("Prompt 1 is empty.")
        stage_of(page).run()
        expect(notice).to_have_text("Downloading two")
        go_on.set()
        stage_of(page).wait("value.prompts[0] === 'Hi' && value.status === 'done'")

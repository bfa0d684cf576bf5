"""Remake the pictures of the page in tests/screenshots, on the default model.

python -m tests.screenshot [FOLDER]
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from engine.models import load_model
from tests.browser.conftest import NAMES, QUIET, Stage
from tests.serving import served

FOLDER = Path(__file__).with_name("screenshots")
SCREEN, SLIDE, PHONE = (1440, 810), (1920, 1080), (375, 812)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, NAMES)))
    with served(load_model()) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        for theme in ("light", "dark"):
            with open_page(browser, url, theme, SCREEN) as stage:
                for _ in range(2):  # the first run warms the model up
                    stage.run()
                    stage.wait_for_end()
                stage.run()
                stage.wait("value.status === 'running' && view.steps >= 14")
                stage.page.screenshot(path=folder / f"page-{theme}.png")
                stage.wait_for_end()
                stage.page.set_viewport_size({"width": SLIDE[0], "height": SLIDE[1]})
                stage.page.get_by_role("button", name="Present").click()
                stage.page.mouse.move(2, 2)
                stage.wait("plot._fullLayout.width > 1700")
                stage.page.screenshot(path=folder / f"present-{theme}.png")
            with open_page(browser, url, theme, SCREEN) as stage:
                stage.page.get_by_role("tab", name="Compare").click()
                stage.page.locator(".bs-compare-lanes .plot-container").wait_for()
                stage.page.screenshot(path=folder / f"compare-{theme}.png")
            with open_page(browser, url, theme, SCREEN) as stage:
                stage.page.get_by_role("tab", name="How it works").click()
                stage.page.get_by_role("heading", name="How it works").wait_for()
                stage.page.screenshot(path=folder / f"how-it-works-{theme}.png")
        with open_page(browser, url, "light", PHONE) as stage:
            stage.page.locator(".bs-stage").evaluate("node => node.scrollIntoView()")
            stage.page.screenshot(path=folder / "phone-light.png")
        browser.close()


@contextmanager
def open_page(browser: Browser, url: str, theme: str, size: tuple[int, int]) -> Iterator[Stage]:
    """The page at rest: nothing moves by itself."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce")
    page.goto(f"{url}/?__theme={theme}")
    page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
    yield Stage(page)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

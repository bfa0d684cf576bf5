"""Remake tests/screenshot.png: the Tutorial preset on the default model, at step 14.

python -m tests.screenshot
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from engine.models import load_model
from tests.browser.conftest import NAMES, QUIET, Stage
from tests.serving import served

TARGET = Path(__file__).with_name("screenshot.png")


def main() -> None:
    path = next(filter(None, map(shutil.which, NAMES)))
    lm = load_model()
    with served(lm) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        page = browser.new_page(viewport={"width": 1440, "height": 810})
        page.goto(f"{url}/?__theme=light")
        page.wait_for_function("window.Plotly !== undefined")
        stage = Stage(page)
        for _ in range(2):  # the first run warms the model up
            stage.run()
            stage.wait_for_end()
        stage.run()
        stage.wait("value.status === 'running' && view.batches[0].times.length >= 14")
        page.screenshot(path=TARGET)
        browser.close()


if __name__ == "__main__":
    main()

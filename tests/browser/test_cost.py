"""What hundreds of updates leave behind in a browser, and what a second visit loads again."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import leaving
from tests.serving import served, wait_for
from tests.tiny import scripted_lm, token_ids

PICTURES = 25
"""Drawn while many times as many updates come."""


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setattr("engine.live.FRAME_SECONDS", 0.01)
    with served(scripted_lm([token_ids("slot by slot ")], seconds=0.002)) as url:
        yield url


def held(devtools):
    devtools.send("HeapProfiler.collectGarbage")
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    counts = {metric["name"]: metric["value"] for metric in metrics}
    return counts["Nodes"], counts["JSEventListeners"]


def settled(devtools):
    """What is held when Gradio has tidied up behind the last message."""
    looks = [held(devtools)]
    wait_for(lambda: looks.append(held(devtools)) or looks[-1] == looks[-2])
    return looks[-1]


def test_many_updates_leave_no_node_and_no_listener(url, open_page, stage_of):
    with open_page(url, alone=True) as page:
        stage = stage_of(page)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        stage.set_prompts(["One row", "Another row", "A third"], [500] * 3)
        frames = "() => Number(document.querySelector('.bs-stage').dataset.frames)"
        stage.run()
        stage.wait_for_end()
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
        before, drawn = settled(devtools), page.evaluate(frames)
        while page.evaluate(frames) < drawn + PICTURES:
            stage.run()
            stage.wait_for_end()
        nodes, listeners = settled(devtools)
        assert nodes <= before[0]
        assert listeners <= before[1]


ASKED_FOR = """async () => {
  const number = () => requestAnimationFrame(() => {});
  const before = number();
  await new Promise((then) => setTimeout(then, 1000));
  return number() - before - 1;
}"""
"""Frames of the browser within a second: they are numbered as they are asked for."""


def test_a_page_at_rest_asks_for_no_frames(url, open_page):
    with open_page(url, alone=True) as page:
        wait_for(lambda: page.evaluate(ASKED_FOR) == 0)


def test_a_run_under_way_asks_for_those_of_its_pictures(open_page, stage_of):
    slow = scripted_lm([token_ids("slot by slot ")], seconds=0.05)
    with served(slow) as url, open_page(url, alone=True, motion="no-preference") as page:
        stage = stage_of(page)
        stage.set_prompts(["One row"], [200])
        stage.run()
        stage.wait("view.steps > 0")
        wait_for(lambda: page.evaluate(ASKED_FOR) < 30)
        assert stage.evaluate("value.status") == "running"


def test_a_second_visit_loads_no_script_again(url, open_page):
    with open_page(url, alone=True) as page:
        devtools = page.context.new_cdp_session(page)
        devtools.send("Network.enable")
        address, size = {}, {}
        devtools.on(
            "Network.responseReceived",
            lambda event: address.update({event["requestId"]: event["response"]["url"]}),
        )
        devtools.on(
            "Network.loadingFinished",
            lambda event: size.update({event["requestId"]: event["encodedDataLength"]}),
        )
        with leaving(page):
            page.goto(url)
        page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
        scripts = {key for key, at in address.items() if re.search(r"\.(js|css)(\?|$)", at)}
        assert any("plotly.min.js" in address[key] for key in scripts)
        assert sum(size.get(key, 0) for key in scripts) < 10_000

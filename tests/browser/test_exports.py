"""What people take away from the page: every file opens, and says what the Run says."""

import csv
import io
import json
from xml.etree import ElementTree

import pytest
from PIL import Image

from engine import runfile
from engine.metrics import measure
from engine.requests import make_requests
from engine.run import until
from engine.static import StaticBatchEngine
from tests.serving import served
from tests.tiny import EOS, scripted_lm, token_ids
from tests.unit.traces import events_of, problems, span_of
from viz.explain import TILES, facts
from viz.export import export_text
from viz.theme import DARK, LIGHT

TEXT = token_ids("the quick brown fox jumps over the lazy dog")


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([TEXT, [*TEXT[:6], EOS]])) as url:
        yield url


@pytest.fixture(scope="module")
def run():
    lm = scripted_lm([TEXT, [*TEXT[:6], EOS]])
    return StaticBatchEngine(lm).run(make_requests(["hello", "a longer one"], max_new_tokens=20))


@pytest.fixture
def stage(url, run, open_page, stage_of, tmp_path):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.expect_another()
        path = tmp_path / "run.json"
        runfile.save(run, path)
        page.locator(".bs-file").set_input_files(path)
        stage.wait_for_end()
        yield stage


@pytest.mark.parametrize(("kind", "scale"), [("Picture", 1), ("Large picture", 2)])
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_png_of_a_slide(stage, tmp_path, kind, scale, theme):
    if theme is DARK:
        stage.page.get_by_role("button", name="Switch between light and dark").click()
    path = stage.export(kind, tmp_path)
    assert path.suffix == ".png"
    image = Image.open(path).convert("RGB")
    assert image.size == (1920 * scale, 1080 * scale)
    counted = {colour: count for count, colour in image.getcolors(maxcolors=2**24)}
    for name in ("ground", "panel", "active", "padded", "idle"):
        rgb = tuple(int(theme[name][i : i + 2], 16) for i in (1, 3, 5))
        assert counted.get(rgb, 0) > 1000 * scale, name


def test_svg_is_vector_and_shows_the_step_of_the_cursor(stage, run, tmp_path):
    whole = stage.export("Vector picture", tmp_path).read_text(encoding="utf-8")
    root = ElementTree.fromstring(whole)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags.isdisjoint({"image", "foreignObject", "script"})
    assert whole == export_text(run, "svg")
    stage.page.locator(".bs-cursor").fill("4")
    paused = stage.export("Vector picture", tmp_path).read_text(encoding="utf-8")
    assert "Step 4 of 20" in paused
    assert "Done after 20 steps" in whole


def test_html_replays_with_the_network_off(stage, run, chromium, tmp_path):
    path = stage.export("Replay that works offline", tmp_path)
    context = chromium.new_context(offline=True)
    page = context.new_page()
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.locator(".bs-cursor").fill("7")
    view = "document.querySelector('.bs-stage').batchscope"
    assert page.evaluate(f"[{view}.step, {view}.rows.map((row) => row.text)]") == [
        7,
        ["the qui", "the qu"],
    ]
    page.locator(".bs-tile").first.click()
    told = page.locator(".bs-about tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent).join('\\t'))"
    )
    now = until(run, 7)
    heads, lines = TILES["output"].rows, facts(now, measure(now))["output"].split("\n")
    assert told == [f"{head}\t{line}" for head, line in zip(heads, lines, strict=True) if line]
    assert errors == []
    assert requests == [path.as_uri()]
    context.close()


def test_json_csv_and_trace_say_what_the_run_says(stage, run, tmp_path):
    assert runfile.load(stage.save(tmp_path)) == run
    table = stage.export("Table of steps", tmp_path).read_bytes().decode()
    lines = list(csv.DictReader(io.StringIO(table)))
    assert len(lines) == 2 * len(run.steps)
    assert sum(float(line["seconds"]) for line in lines[::2]) == sum(s.seconds for s in run.steps)
    trace = stage.export("Trace for Perfetto", tmp_path).read_text(encoding="utf-8")
    assert trace == export_text(run, "trace")
    events = events_of(run)
    assert json.loads(trace)["traceEvents"] == events
    assert list(problems(events)) == []
    assert span_of(events) == pytest.approx(1e6 * run.steps[-1].finished, abs=1)

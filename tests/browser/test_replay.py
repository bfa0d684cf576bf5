"""The replay: one cursor, and at every step exactly what the Run was then."""

import random
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from engine import runfile
from engine.metrics import measure
from engine.requests import make_requests
from engine.run import until
from engine.static import StaticBatchEngine
from tests.browser.cells import picture_after
from tests.browser.conftest import ROWS
from tests.figures import Size, made_up_run
from tests.serving import served
from tests.tiny import EOS, scripted_lm, token_ids
from tests.unit.pictures import places
from viz import words
from viz.explain import TILES, facts
from viz.recorded import RECORDINGS, recorded
from viz.stage.state import moment, stride

TEXT = token_ids("the quick brown fox jumps over the lazy dog")
SHOWN = """(() => {
  const text = (name) => [...document.querySelectorAll(name)].map((node) => node.textContent);
  const [heatmap, live, padding, dead, working] = plot.data;
  const newest = working.y.findLastIndex((rows) => rows !== null);
  return {
    z: heatmap.z,
    places: view.places,
    kv: [live, padding, dead].map((area) => area.y[newest] ?? 0),
    working: working.y[newest] ?? 0,
    texts: text('.bs-text'),
    values: text('.bs-value'),
    notes: text('.bs-note'),
    heading: [...text('.bs-heading'), ...text('.bs-subheading')],
    summary: text('.bs-summary')[0],
    reached: text('.bs-reached')[0],
    states: text('.bs-state'),
  };
})()"""


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([TEXT, [*TEXT[:6], EOS]], seconds=0.02)) as url:
        yield url


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run of two batches whose rows end at many moments, and its file."""
    emoji = token_ids("héllo 🤗 wörld")
    lm = scripted_lm([TEXT[:20], [*TEXT[:6], EOS], emoji, [*TEXT[:3], EOS]])
    run = StaticBatchEngine(lm, batch_size=4).run(
        make_requests(["one", "second", "a third prompt", "4", "five", "sixth"], max_new_tokens=20)
    )
    path = tmp_path_factory.mktemp("runs") / "run.json"
    runfile.save(run, path)
    return run, path


def open_file(stage, path):
    stage.expect_another()
    stage.page.locator(".bs-file").set_input_files(path)
    stage.wait("true")


def test_replay_to_step_k_shows_the_run_as_of_k(url, open_page, stage_of, saved):
    run, path = saved
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        assert [
            {
                "batch": place["batch"]["index"],
                "promptStart": place["promptStart"],
                "start": place["start"],
                "width": place["batch"]["width"],
            }
            for place in stage.evaluate("view.places")
        ] == places(run)
        steps = random.Random(0).sample(range(1, len(run.steps)), 10)
        for k in [*steps, 0, len(run.steps)]:
            page.locator(".bs-cursor").fill(str(k))
            shown, now = stage.evaluate(SHOWN), until(run, k)
            figures = measure(now)
            said = moment(now, figures)
            assert shown["reached"].startswith(f"{k} / {len(run.steps)} · ")
            assert shown["z"] == picture_after(run, k, shown["places"])
            assert shown["texts"] == list(now.texts)
            assert shown["values"] == [tile["value"] for tile in said["tiles"]]
            assert shown["notes"] == [tile["note"] for tile in said["tiles"]]
            assert [*shown["heading"], shown["summary"]] == [*said["heading"], said["summary"]]
            kv = figures.kv_bytes
            assert shown["kv"] == [kv.live, kv.padding, kv.dead]
            emitted = now.steps[-1].tokens if k else ()
            assert shown["working"] == sum(token is not None for token in emitted)
            for state, row, request in zip(
                shown["states"], figures.rows, run.requests, strict=True
            ):
                assert state.endswith(f" · {row.generated}/{request.max_new_tokens}")
                assert state.startswith("ended") == (row.end is not None)


def test_first_sight_is_a_recorded_run_that_plays_once_and_rests(url, open_page, stage_of):
    run = recorded(RECORDINGS[0].name)
    with open_page(url, motion="no-preference") as page:
        stage = stage_of(page)
        stage.wait("view.step < 15")
        stage.wait(f"view.step === {len(run.steps)}")
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        expect(page.locator(".bs-badge")).to_have_text("recorded")
        strip = page.locator(".bs-strip").inner_text()
        for part in (run.model.name, run.model.dtype, run.model.device, "2026"):
            assert part in strip
        stage.set_prompts(["mine"], [5])
        stage.run()
        stage.wait_for_end()
        expect(page.locator(".bs-badge")).to_be_hidden()


def test_with_reduced_motion_nothing_plays_by_itself(url, open_page, stage_of):
    with open_page(url) as page:
        run = recorded(RECORDINGS[0].name)
        assert stage_of(page).evaluate("[view.step, view.steps]") == [len(run.steps)] * 2


def test_play_pause_speed_and_keys(url, open_page, stage_of, saved):
    run, path = saved
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        page.locator(".bs-picture").focus()
        for key, step in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
            page.keyboard.press(key)
            assert stage.evaluate("view.step") == step
        page.keyboard.press("End")
        assert stage.evaluate("view.step") == len(run.steps)
        page.get_by_label("Step", exact=True).focus()
        page.keyboard.press("ArrowLeft")
        assert stage.evaluate("view.step") == len(run.steps) - 1
    with open_page(url) as page:
        stage = stage_of(page)
        page.get_by_label("Speed of the replay").select_option("0.25")
        page.get_by_role("button", name="Play", exact=True).click()
        stage.wait("view.step >= 2")
        page.get_by_role("button", name="Pause", exact=True).click()
        paused = stage.evaluate("view.step")
        assert paused < stage.evaluate("view.steps")
        page.get_by_label("Speed of the replay").select_option("4")
        page.get_by_role("button", name="Play", exact=True).click()
        stage.wait("view.step === view.steps")


def test_a_run_under_way_can_not_be_replayed_or_replaced(url, open_page, stage_of, saved):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["long"], [400])
        stage.run()
        stage.wait("value.status === 'running' && view.steps > 2")
        assert page.locator(".bs-cursor").is_disabled()
        for menu in (".bs-open", ".bs-export"):
            assert page.locator(menu).evaluate("node => node.inert")
        key = stage.evaluate("value.key")
        page.locator(".bs-file").set_input_files(saved[1])
        expect(page.locator(".bs-said")).to_have_text(
            "A run is under way: stop it, or wait for its end."
        )
        steps = stage.evaluate("view.steps")
        stage.wait(f"view.steps > {steps}")
        page.get_by_role("button", name="Stop", exact=True).click()
        stage.wait_for_end("stopped")
        assert stage.evaluate("value.key") == key
        page.locator(".bs-cursor").fill("2")
        assert page.locator(".bs-state").inner_text() == "running · 2/400"


def test_a_click_on_a_cell_says_what_it_is(url, open_page, stage_of, saved):
    run, path = saved
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        box = page.locator(ROWS).bounding_box()
        columns, start = stage.evaluate("[plot.data[0].z[0].length, view.places[0].start]")
        across, down = box["width"] / columns, box["height"] / 4
        page.mouse.click(box["x"] + (start + 4.5) * across, box["y"] + 1.5 * down)
        about = page.get_by_role("dialog")
        step = run.steps[4]
        lines = about.inner_text().split("\n")
        assert lines[0] == "Request 2, slot 2"
        told = [line for line in lines[1:] if line.strip()]
        assert told[0] == "Step 5, decode"
        assert told[1] == f'token "{step.pieces[1]}" (id {step.tokens[1]})'
        assert told[2] == f"{1000 * step.seconds:.1f}".removesuffix(".0") + " ms for all rows"
        assert told[3].startswith("KV cache then: ")
        page.keyboard.press("Escape")
        expect(about).to_be_hidden()


def test_tiles_and_colours_explain_themselves_with_the_runs_numbers(url, open_page):
    with open_page(url) as page:
        page.locator(".bs-tile").nth(3).click()
        about = page.get_by_role("dialog")
        assert "Σ (S − Lᵢ) / (B · S)" in about.inner_text()
        assert "55 / 120 = 45.8 %" in about.inner_text()
        page.locator(".bs-legend button").nth(2).click()
        assert "23 of 80 decode slots" in about.inner_text()
        page.mouse.click(5, 5)
        expect(about).to_be_hidden()


TABLE = """(() => [...document.querySelectorAll('.bs-about tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent)))()"""


def test_an_open_panel_tells_the_figures_of_the_step_that_is_shown(
    url, open_page, stage_of, saved, tmp_path
):
    told_all = replace(saved[0], queued_seconds=1.25, kv_estimate=98_765)
    path = tmp_path / "run.json"
    runfile.save(told_all, path)
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        for number, key in enumerate(TILES):
            page.locator(".bs-tile").nth(number).click()
            for k in (len(told_all.steps), 1, 5, 25, 0):
                page.locator(".bs-cursor").fill(str(k))
                now = until(told_all, k)
                lines = facts(now, measure(now)).get(key, "").split("\n")
                assert stage.evaluate(TABLE) == [
                    [name, *filter(None, line.split("\t"))]
                    for name, line in zip(TILES[key].rows, lines, strict=False)
                    if line
                ]


def test_a10_a_row_that_ended_at_a_stop_string_says_so(url, open_page, stage_of, tmp_path):
    lm = scripted_lm([token_ids("one END two"), token_ids("something else")])
    requests = make_requests(["first", "second"], max_new_tokens=10, stop="END")
    run = StaticBatchEngine(lm).run(requests)
    runfile.save(run, tmp_path / "run.json")
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, tmp_path / "run.json")
        assert page.locator(".bs-state").all_inner_texts() == [
            "ended · stop string · 7/10",
            "ended · length · 10/10",
        ]
        assert page.locator(".bs-text").first.inner_text() == "one "
        assert stage.evaluate("plot.data[0].z[0].slice(-10)") == [1] * 7 + [3] * 3
        said = {}
        for k in (3, 5, 7, 8):
            page.locator(".bs-cursor").fill(str(k))
            page.locator(".bs-picture").press("Enter")
            said[k] = page.locator(".bs-about-lines p").all_inner_texts()[:2]
            page.keyboard.press("Escape")
        shown, held, last = token_ids("eED")
        assert said == {
            3: ["Step 3, decode", f'token "e" (id {shown})'],
            5: ["Step 5, decode", f"token without text yet (id {held})"],
            7: ["Step 7, decode", f"token that completes the stop string (id {last})"],
            8: ["Step 8, decode: idle, the row has ended", said[8][1]],
        }


def test_on_the_axis_of_time_a_column_is_as_wide_as_its_forward_took(
    url, open_page, stage_of, saved
):
    run, path = saved
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        page.get_by_role("button", name="Time", exact=True).click()
        edges, places = stage.evaluate("[plot.data[0].x, view.places]")
        assert edges[-1] == pytest.approx(run.steps[-1].finished, abs=2e-4)
        for place in places:
            steps = [step for step in run.steps if step.batch == place["batch"]["index"]]
            for (left, right), step in zip(place["spans"], steps, strict=True):
                assert left == pytest.approx(step.started, abs=1e-4)
                assert right - left >= step.seconds - 2e-4
        assert stage.evaluate("plot.data[1].x[1]") == places[0]["spans"][0][0]
        page.get_by_role("button", name="Steps", exact=True).click()
        assert stage.evaluate("plot.data[0].x[0]") == -0.5


def test_a_saved_run_opened_again_is_the_same_to_the_byte(url, open_page, stage_of, tmp_path):
    with open_page(url) as page:
        stage = stage_of(page)
        stage.set_prompts(["hello", "a longer prompt"], [12, 12])
        stage.run()
        stage.wait_for_end()
        before, path = stage.evaluate(SHOWN), stage.save(tmp_path)
        slide = stage.export("Vector picture", tmp_path).read_bytes()
    with open_page(url) as page:
        stage = stage_of(page)
        stage.expect_another()
        page.evaluate(
            """text => {
              const data = new DataTransfer();
              data.items.add(new File([text], 'run.json', {type: 'application/json'}));
              for (const kind of ['dragover', 'drop']) {
                document.body.dispatchEvent(
                  new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
              }
            }""",
            path.read_text(encoding="utf-8"),
        )
        stage.wait_for_end()
        assert stage.evaluate(SHOWN) == before
        assert stage.export("Vector picture", tmp_path / "again").read_bytes() == slide
        assert stage.save(tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "Not a saved run: "),
        ('{"schema_version": 99}', "Not a saved run: schema version 99"),
        ('{"schema_version": NaN}', "Not a saved run: NaN is not a number."),
    ],
)
def test_a_file_that_is_no_run_is_refused_in_one_sentence(
    url, open_page, stage_of, tmp_path, content, sentence
):
    with open_page(url) as page:
        stage = stage_of(page)
        key = stage.evaluate("value.key")
        path = tmp_path / "bad.json"
        path.write_text(content)
        page.locator(".bs-file").set_input_files(path)
        expect(page.locator(".bs-summary")).to_contain_text(sentence)
        assert stage.evaluate("value.key") == key


def test_a_server_that_does_not_answer_is_said(url, chromium):
    page = chromium.new_page(reduced_motion="reduce")
    page.goto(url)
    page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
    page.route("**/component_server**", lambda route: route.abort())
    for menu in (".bs-open", ".bs-export"):
        page.locator(".bs-said").evaluate("node => { node.textContent = ''; }")
        page.locator(f"{menu} summary").click()
        page.locator(f"{menu} li button").first.click()
        expect(page.locator(".bs-said")).to_have_text("The server did not answer.")
    page.close()


def test_at_step_0_memory_is_labelled_in_the_unit_of_its_peak(url, open_page, stage_of):
    run = recorded(RECORDINGS[0].name)
    peak = max(step.kv_bytes.total for step in run.steps)
    with open_page(url) as page:
        stage = stage_of(page)
        page.locator(".bs-cursor").fill("0")
        label = stage.evaluate("plot.layout.yaxis2.ticktext[0]")
        assert label == f"KV cache<br>{words.size(peak)}"


def test_the_prompts_of_an_opened_run_go_into_the_form(url, open_page, stage_of, saved):
    run, path = saved
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        page.locator(".bs-open summary").click()
        page.get_by_role("button", name="These prompts in the form").click()
        page.get_by_text("Filled in: press Run.").wait_for()
        prompts = page.locator(".bs-rows textarea")
        expect(page.locator(".bs-badge")).to_have_text("from a file")
        expect(prompts).to_have_count(len(run.requests))
        values = prompts.evaluate_all("all => all.map((field) => field.value)")
        assert values == [request.prompt for request in run.requests]
        expect(page.get_by_label("Batch size (slots)")).to_have_value("4")
        expect(page.get_by_label("Token budget of prompt 1")).to_have_value("20")


def test_all_settings_of_an_opened_run_go_into_the_form(url, open_page, stage_of, tmp_path):
    requests = make_requests(
        ["one", "two"],
        max_new_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.05,
        repetition_penalty=1.2,
        seed=11,
        min_new_tokens=3,
        stop=["END", "a\nb"],
    )
    run = StaticBatchEngine(scripted_lm([TEXT]), padding_side="right").run(requests)
    runfile.save(run, tmp_path / "run.json")
    with open_page(url) as page:
        open_file(stage_of(page), tmp_path / "run.json")
        page.locator(".bs-open summary").click()
        page.get_by_role("button", name="These prompts in the form").click()
        page.get_by_text("Filled in: press Run.").wait_for()
        page.get_by_role("button", name="Sampling, stops, padding side").click()
        for label, value in (
            ("Temperature", "0.5"),
            ("Top-p", "0.9"),
            ("Top-k", "7"),
            ("Min-p", "0.05"),
            ("Repetition penalty", "1.2"),
            ("Seed", "11"),
            ("Min new tokens (0: off)", "3"),
            ("Stop strings", "END\na\\nb"),
        ):
            expect(page.get_by_label(label)).to_have_value(value)
        expect(page.get_by_label("right", exact=True)).to_be_checked()


def test_the_recorded_runs_can_be_opened(url, open_page, stage_of):
    with open_page(url) as page:
        stage = stage_of(page)
        for recording in RECORDINGS[1:]:
            stage.expect_another()
            page.locator(".bs-open summary").click()
            page.get_by_role("button", name=recording.label).click()
            stage.wait_for_end()
            assert stage.evaluate("view.steps") == len(recorded(recording.name).steps)


def test_a_long_run_rests_only_where_its_figures_are_told(url, open_page, stage_of, tmp_path):
    run = made_up_run(Size(16, 1100))
    every = stride(run)
    assert every > 1
    assert len(run.steps) % every
    path = tmp_path / "run.json"
    runfile.save(run, path)
    with open_page(url) as page:
        stage = stage_of(page)
        open_file(stage, path)
        page.locator(".bs-picture").focus()
        page.keyboard.press("ArrowLeft")
        last = len(run.steps) - len(run.steps) % every
        assert stage.evaluate("view.step") == last
        page.keyboard.press("ArrowRight")
        assert stage.evaluate("view.step") == len(run.steps)
        for k in (0, every, 100 * every, last, len(run.steps)):
            page.locator(".bs-cursor").fill(str(-(-k // every) * every))
            shown, now = stage.evaluate(SHOWN), until(run, k)
            said = moment(now, measure(now))
            assert shown["reached"].startswith(f"{k} / {len(run.steps)} · ")
            assert shown["values"] == [tile["value"] for tile in said["tiles"]]
            assert shown["notes"] == [tile["note"] for tile in said["tiles"]]
            assert [*shown["heading"], shown["summary"]] == [*said["heading"], said["summary"]]
            assert shown["texts"] == list(now.texts)
            assert shown["z"] == picture_after(run, k, shown["places"])

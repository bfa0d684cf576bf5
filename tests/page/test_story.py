"""The story's buttons over HTTP: they fill in a preset and run it."""

import pytest

from engine.presets import PRESETS, find_preset
from engine.requests import Limits
from tests.serving import Visitor, rows_of, served
from tests.tiny import scripted_lm, token_ids


@pytest.fixture(scope="module")
def page():
    with served(scripted_lm([token_ids("hello brave new world")])) as url:
        yield url


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.key)
def test_a_button_fills_in_its_preset_on_the_run_tab_and_runs_it(page, preset):
    visitor = Visitor(page)
    tabs, editor, *settings, notice = visitor.call("choose", preset.key).json()["data"]
    assert tabs["selected"] == "run"
    assert editor == rows_of(list(preset.prompts), list(preset.budgets))
    assert notice["kind"] == "info"
    visitor.send("run_chosen", editor, "scripted", *settings)
    run = list(visitor.frames())[-1].record
    assert [request.prompt for request in run.requests] == list(preset.prompts)
    assert [request.max_new_tokens for request in run.requests] == list(preset.budgets)
    assert run.settings.batch_size == preset.batch_size
    assert {request.ignore_eos for request in run.requests} == {preset.ignore_eos}
    assert {request.sampling.temperature for request in run.requests} == {preset.temperature}


@pytest.mark.parametrize("key", ["nowhere", None, ["tutorial"], {"a": 1}, "<img src=x>"])
def test_a_key_that_was_made_up_is_refused_quietly(page, caplog, capfd, key):
    answer = Visitor(page).call("choose", key)
    assert answer.is_error  # so that no run follows
    assert answer.json()["error"] == f"There is no preset {key!r}."
    assert answer.json()["visible"] is False  # no toast, which would render markup
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())


def test_a_preset_is_cut_to_what_the_host_allows():
    limits = Limits(prompts=3, new_tokens=10, batch_size=2)
    with served(scripted_lm([[65]]), limits=limits) as url:
        visitor = Visitor(url)
        _, editor, *settings, _ = visitor.call("choose", "waves").json()["data"]
        assert editor == rows_of(list(find_preset("waves").prompts[:3]), 10)
        visitor.send("run_chosen", editor, "scripted", *settings)
        assert list(visitor.frames())[-1].record.settings.batch_size == 2

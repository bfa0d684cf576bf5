"""The form over HTTP: what a run will need, and files of prompts, whatever a visitor sends."""

import base64

import pytest

from engine import memory
from engine.presets import find_preset
from engine.turns import turns_on
from tests.serving import DEFAULTS, Visitor, rows_of, served, served_while_loading, wait_for
from tests.tiny import scripted_lm, token_ids
from viz.page.forecast import forecast_sentence


@pytest.fixture(scope="module")
def lm():
    return scripted_lm([token_ids("hello brave new world")])


@pytest.fixture(scope="module")
def page(lm):
    with served(lm) as url:
        yield url


@pytest.fixture
def visitor(page):
    return Visitor(page)


def forecast(visitor, prompts, model="scripted", **settings):
    values = [(DEFAULTS | settings)[name] for name in DEFAULTS]
    return visitor.call("forecast", prompts, model, *values).raise_for_status().json()["data"][0]


def test_a_forecast_is_for_the_largest_batch_and_runs_nothing(visitor, lm):
    said = forecast(visitor, rows_of(["four", "1234567", "x"], [3, 6, 9]), batch_size=2)
    assert said["kind"] == "info"
    assert said["text"].startswith(
        "Needs at most 6.1 kB of KV cache (2 rows of up to 12 tokens in the largest of 2 batches); "
    )
    assert said["text"].endswith(" of memory are free.")
    assert lm.model.calls == []


@pytest.mark.parametrize(
    ("prompts", "model", "settings"),
    [
        (rows_of([" "], 3), "scripted", {}),
        (rows_of(["x", ""], 3), "scripted", {"batch_size": 0}),
        (rows_of(["x"], 3), "another", {}),
        (rows_of(["x"], 3), ["scripted"], {}),
    ],
)
def test_there_is_none_before_every_prompt_and_the_model_are_there(
    visitor, prompts, model, settings
):
    assert forecast(visitor, prompts, model, **settings) == {"text": "", "kind": "info"}


@pytest.mark.parametrize(
    ("prompts", "settings", "sentence"),
    [
        ([], {}, "There are no prompts: enter at least one."),
        ("<img src=x>", {}, "There are no prompts: enter at least one."),
        ([{"prompt": 7}], {}, 'Prompts must be a list of {"prompt": text, "max_new_tokens": n}.'),
        (rows_of(["x"], [None]), {}, "Prompt 1: the token budget must be a whole number"),
        (rows_of(["x"], 99999999), {}, "Prompt 1: the token budget is 99,999,999"),
        (rows_of(["x"], 3), {"batch_size": 0}, "The batch size must be at least 1"),
        (rows_of(["x"], 3), {"temperature": "hot"}, "The temperature must be a number"),
        (rows_of(["x"], 3), {"stop": {"a": 1}}, ""),
    ],
)
def test_what_is_to_be_mended_in_a_form_is_a_hint(visitor, prompts, settings, sentence):
    said = forecast(visitor, prompts, **settings)
    assert said["kind"] == "hint"
    assert said["text"]
    assert said["text"].startswith(sentence)


@pytest.mark.parametrize(
    ("free_bytes", "shown"),
    [(9_949_000_000, "9.9 GB"), (10_000_000_000, "10 GB"), (20_449_000_000, "20 GB")],
)
def test_what_is_free_is_said_without_the_digits_that_flicker(free_bytes, shown):
    said = forecast_sentence(kv_bytes=10, rows=1, columns=2, batches=1, free_bytes=free_bytes)
    assert said == (
        f"Needs at most 10 B of KV cache (1 row of up to 2 tokens); {shown} of memory are free."
    )


def test_a_run_that_can_not_be_is_refused_before_it(visitor, monkeypatch):
    said = forecast(visitor, rows_of(["x" * 4000], 200))
    assert said["kind"] == "error"
    assert said["text"].startswith("Prompt 1 does not fit the model's context: ")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10)
    said = forecast(visitor, rows_of(["x"], 5))
    assert said["kind"] == "error"
    assert "10 B are free. Not even one row" in said["text"]
    with_other = turns_on("cpu").join()
    try:
        said = forecast(visitor, rows_of(["x"], 5))
    finally:
        with_other.leave()
    assert said == {
        "text": "Needs at most 1.3 kB of KV cache (1 row of up to 5 tokens).",
        "kind": "info",
    }


def test_nothing_is_said_before_the_model_is_there(monkeypatch):
    with served_while_loading(monkeypatch, seconds=60) as (url, go_on):
        visitor, prompts = Visitor(url), rows_of(["x"], 5)
        visitor.send("load", "one")
        assert forecast(visitor, prompts, "one")["text"] == ""
        go_on.set()
        wait_for(lambda: forecast(visitor, prompts, "one")["text"].startswith("Needs at most "))
        assert forecast(visitor, prompts, "two")["text"] == ""


def open_prompts(page, data):
    visitor = Visitor(page)
    components = visitor.http.get("/config").json()["components"]
    [editor] = [one for one in components if "open_prompts" in str(one["props"].get("server_fns"))]
    body = {
        "session_hash": visitor.session,
        "component_id": editor["id"],
        "fn_name": "open_prompts",
        "data": data,
    }
    answer = visitor.http.post("/gradio_api/component_server", json=body)
    return answer.raise_for_status().json()


def test_a_file_of_prompts_becomes_rows(page):
    content = base64.b64encode(b"prompt,max_new_tokens\nHi,7\nHo,\n").decode()
    assert open_prompts(page, {"name": "p.csv", "content": content}) == {
        "prompts": [
            {"prompt": "Hi", "max_new_tokens": 7},
            {"prompt": "Ho", "max_new_tokens": None},
        ],
        "text": "2 prompts from p.csv; the settings are those for chat.",
        "kind": "info",
    }


def test_a_file_with_the_prompts_of_a_preset_has_its_settings(page):
    preset = find_preset("tutorial")
    content = base64.b64encode("\n".join(preset.prompts).encode()).decode()
    answer = open_prompts(page, {"name": "p.txt", "content": content})
    assert answer["text"] == f"{len(preset.prompts)} prompts from p.txt."


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "A file must have a name and a content."),
        ({"name": "p.txt"}, "A file must have a name and a content."),
        ({"name": 7, "content": ""}, "A file must have a name and a content."),
        ({"name": "p.txt", "content": "?"}, "The content of a file must be base64."),
        ({"name": "p.txt", "content": "ü"}, "The content of a file must be base64."),
        ({"name": "p.txt", "content": "/w=="}, "p.txt, line 1: not UTF-8 text (byte 0xff)."),
        ({"name": "../../etc/passwd", "content": ""}, "passwd: files of prompts end in .txt, .csv"),
        ({"name": "p\0.txt", "content": ""}, "p\\x00.txt has no prompts."),
    ],
)
def test_whatever_is_sent_as_a_file_is_answered_with_a_sentence(page, data, sentence):
    answer = open_prompts(page, data)
    assert answer["kind"] == "error"
    assert answer["text"].startswith(sentence)
    assert "prompts" not in answer

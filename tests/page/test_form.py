"""The form over HTTP: what a run will need, and files of prompts, whatever a visitor sends."""

import base64

import pytest

from engine import memory
from engine.turns import turns_on
from tests.serving import DEFAULTS, Visitor, rows_of, served, served_while_loading, wait_for
from tests.tiny import scripted_lm, token_ids


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
    assert said["text"].startswith("Needs at most 6.1 kB of KV cache (2 rows of up to 12 tokens); ")
    assert said["text"].endswith(" are free.")
    assert lm.model.calls == []


@pytest.mark.parametrize(
    ("prompts", "model", "settings"),
    [
        ([], "scripted", {}),
        (rows_of([" "], 3), "scripted", {}),
        (rows_of(["x"], [None]), "scripted", {}),
        ("<img src=x>", "scripted", {}),
        ([{"prompt": 7}], "scripted", {}),
        (rows_of(["x"], 3), "scripted", {"temperature": "hot"}),
        (rows_of(["x"], 3), "scripted", {"stop": {"a": 1}}),
        (rows_of(["x"], 3), "another", {}),
        (rows_of(["x"], 3), ["scripted"], {}),
    ],
)
def test_there_is_none_for_a_form_that_is_not_filled_in(visitor, prompts, model, settings):
    assert forecast(visitor, prompts, model, **settings) == {"text": "", "kind": "info"}


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
        "text": "2 prompts from p.csv.",
        "kind": "info",
    }


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

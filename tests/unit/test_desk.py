"""What the stage asks the server for: runs to show and files to take away, from what it brings."""

from contextlib import ExitStack
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from engine import runfile
from tests.unit.paper import WORKED, cut
from viz.export import FORMATS, TEXTS, export_text, file_name
from viz.recorded import RECORDINGS
from viz.slide.sheet import HEIGHT, WIDTH
from viz.stage.desk import EXPORTS, at_most_a_few, export_run, open_run, recorded_run

RECORD = runfile.dumps(WORKED)


def test_an_opened_run_is_the_stages_value():
    state = open_run({"record": RECORD})["state"]
    assert (state["status"], state["record"], state["recorded"]) == ("done", RECORD, False)
    assert state["key"] == open_run({"record": RECORD})["state"]["key"]
    assert state["key"] != open_run({"record": RECORD + " "})["state"]["key"]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recorded_run_is_called_recorded(recording):
    state = recorded_run({"name": recording.name})["state"]
    assert state["recorded"]
    assert state["status"] == "done"


def test_a_picture_shows_the_step_and_the_other_files_the_whole_run():
    asked = {"record": RECORD, "theme": "light", "step": 4}
    assert export_run(asked | {"format": "svg"})["text"] == export_text(cut(WORKED, 4), "svg")
    assert export_run(asked | {"format": "csv"})["text"] == export_text(WORKED, "csv")
    assert export_run(asked | {"format": "json"}) == {
        "name": file_name(WORKED, ".json"),
        "type": "application/json",
        "text": RECORD,
    }


@pytest.mark.parametrize("step", [-1, 11, 10**9, 1.5, True, "4", None])
def test_without_a_step_that_was_the_picture_shows_the_end(step):
    asked = {"record": RECORD, "format": "svg", "theme": "dark", "step": step}
    assert export_run(asked)["text"] == export_text(WORKED, "svg", theme="dark")


@pytest.mark.parametrize(
    ("ask", "question", "sentence"),
    [
        (open_run, None, "Not a saved run: it is not text."),
        (open_run, {"record": 5}, "Not a saved run: it is not text."),
        (
            open_run,
            {"record": "{}"},
            "Not a saved run: schema version None, this program reads 1 to 2.",
        ),
        (recorded_run, {"name": "../x"}, "There is no recorded run '../x'."),
        (recorded_run, {"name": ["tutorial"]}, "There is no recorded run ['tutorial']."),
        (export_run, {"format": "svg"}, "Not a saved run: it is not text."),
        (
            export_run,
            {"record": RECORD, "format": "png", "theme": "light"},
            "The format must be one of svg, html, json, csv, trace, not 'png'.",
        ),
        (
            export_run,
            {"record": RECORD, "format": "svg", "theme": "blue"},
            "The theme must be light or dark, not 'blue'.",
        ),
        (
            export_run,
            {"record": RECORD, "format": "svg", "theme": {}},
            "The theme must be light or dark, not {}.",
        ),
    ],
)
def test_what_can_not_be_answered_is_said_in_one_sentence(ask, question, sentence):
    assert ask(question) == {"error": sentence}


@pytest.mark.parametrize("ask", [open_run, export_run])
def test_a_run_that_was_still_going_is_neither_opened_nor_exported(ask):
    record = runfile.dumps(replace(cut(WORKED, 4)))
    asked = {"record": record, "format": "svg", "theme": "light"}
    assert ask(asked) == {"error": "The run was saved before it ended."}


def test_the_page_offers_the_same_files_as_the_shell():
    assert [each["suffix"] for each in EXPORTS] == [each.suffix for each in FORMATS]
    assert all(each["format"] in TEXTS for each in EXPORTS)
    drawn = [each for each in EXPORTS if "scale" in each]
    assert [each["note"] for each in drawn] == ["PNG, 1920 × 1080", "PNG, 3840 × 2160"]
    svg = ElementTree.fromstring(export_text(WORKED, "svg"))
    assert (svg.get("width"), svg.get("height")) == (str(WIDTH), str(HEIGHT))


def test_the_name_of_a_picture_tells_the_step():
    asked = {"record": RECORD, "format": "svg", "theme": "light"}
    assert export_run(asked | {"step": 4})["name"] == file_name(WORKED, "-step4.svg")
    assert export_run(asked | {"step": 10})["name"] == file_name(WORKED, ".svg")


def test_where_many_ask_at_once_the_rest_is_refused_and_soon_served():
    with ExitStack() as busy:
        for _ in range(4):
            busy.enter_context(at_most_a_few())
        assert open_run({"record": RECORD}) == {
            "error": "The server is busy with other files: try again in a moment."
        }
    assert "state" in open_run({"record": RECORD})


def test_a_failure_that_nobody_foresaw_is_a_sentence(monkeypatch, caplog):
    def fail(*_, **__):
        raise ZeroDivisionError("by <b>zero</b>")

    monkeypatch.setattr("viz.stage.desk.stage_state", fail)
    assert open_run({"record": RECORD}) == {
        "error": "Something went wrong on the server; its log says what."
    }
    assert "ZeroDivisionError" in caplog.text

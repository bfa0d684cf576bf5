"""The page while a model loads, and when it can't be loaded."""

import threading

from engine import models
from engine.errors import ModelError
from engine.shelf import ModelShelf
from tests.serving import Visitor, rows_of, served_shelf
from tests.tiny import scripted_lm, token_ids


def test_a_run_waits_for_the_model_and_says_how_far_it_is(monkeypatch):
    halfway, go_on = threading.Event(), threading.Event()

    def load(name, *, device, dtype, on_progress):
        on_progress("Downloading the default model, 46 MB", 0.5)
        halfway.set()
        assert go_on.wait(20)
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    with served_shelf(ModelShelf(["scripted"])) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["Hi"], 5), "scripted")
        frames = visitor.frames()
        said = next(frame.says for frame in frames if "46 MB" in frame.says)
        assert said == "Downloading the default model, 46 MB (50%)"
        assert halfway.is_set()
        go_on.set()
        assert list(frames)[-1].stage["status"] == "done"


def test_stop_while_the_model_loads(monkeypatch):
    go_on = threading.Event()

    def load(name, *, device, dtype, on_progress):
        assert go_on.wait(20)
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    with served_shelf(ModelShelf(["scripted"])) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["Hi"], 5), "scripted")
        frames = visitor.frames()
        next(frame for frame in frames if frame.says == "Loading scripted")
        visitor.stop()
        last = list(frames)[-1]
        assert last.says == "Stopped."
        assert last.run_button["interactive"]
        go_on.set()


def test_a_model_that_cannot_be_loaded_is_said_and_tried_again(monkeypatch):
    answers = [ModelError("nowhere/model was not found on the hub."), None]

    def load(name, *, device, dtype, on_progress):
        error = answers.pop(0)
        if error:
            raise error
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    with served_shelf(ModelShelf(["nowhere/model"])) as url:
        visitor = Visitor(url)
        refused = visitor.run(rows_of(["Hi"], 5), "nowhere/model")[-1]
        assert refused.notice == {
            "text": "nowhere/model was not found on the hub.",
            "kind": "error",
        }
        assert visitor.run(rows_of(["Hi"], 5), "nowhere/model")[-1].stage["status"] == "done"


def test_all_at_once_loads_here_and_tries_nothing_again(monkeypatch):
    loaded_by = []

    def load(name, *, device, dtype, on_progress):
        loaded_by.append(threading.current_thread())
        if name == "broken":
            raise ModelError("broken was not found.")
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    shelf = ModelShelf(["scripted", "broken"])
    shelf.load_all()
    with served_shelf(shelf) as url:
        visitor = Visitor(url)
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"
        assert visitor.run(rows_of(["Hi"], 5), "broken")[-1].says == "broken was not found."
    assert loaded_by == [threading.current_thread()] * 2

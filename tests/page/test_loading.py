"""The page while a model loads, and when it can't be loaded."""

import threading

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from engine import models
from engine.errors import ModelError
from engine.shelf import ModelShelf
from tests.serving import (
    Visitor,
    apply_update,
    rows_of,
    served_shelf,
    served_while_loading,
    wait_for,
)
from tests.tiny import scripted_lm, token_ids


def test_a_run_waits_for_the_model_and_says_how_far_it_is(monkeypatch):
    halfway, go_on = threading.Event(), threading.Event()

    def load(name, *, on_progress, **_how):
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

    def load(name, *, on_progress, **_how):
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


@pytest.fixture
def stuck(monkeypatch):
    """A page whose models load until the test is over."""
    with served_while_loading(monkeypatch, seconds=20) as (url, go_on):
        yield url
        go_on.set()


def told(messages):
    """What a browser makes of each update: (event, the notice's text if it is set, over or not)."""
    values = {}
    for message, _ in messages:
        event, over = message.get("event_id"), message["msg"] == "process_completed"
        if over:
            assert message["success"], message
            values[event] = message["output"]["data"]  # Gradio sends the last value once more
        elif message["msg"] == "process_generating":
            values[event] = apply_update(values.get(event, []), message["output"]["data"])
        else:
            continue
        texts = [part["text"] for part in values[event] if "text" in part]
        yield event, texts[0] if texts else None, over


def test_what_a_run_says_is_not_overwritten_by_the_loading_model(stuck):
    visitor = Visitor(stuck)
    loading = visitor.send("load", "one")
    with visitor.messages() as messages:
        said = told(messages)
        assert next(said)[0] == loading
        visitor.join(rows_of([""], 5), "one")
        shown, ended = None, set()
        while len(ended) < 2:
            event, text, over = next(said)
            shown = shown if text is None else text
            ended |= {event} if over else set()
    assert loading in ended  # though the model still loads
    assert shown == "Prompt 1 is empty."


def test_the_model_chosen_last_is_the_one_that_is_told_about(stuck):
    visitor = Visitor(stuck)
    first = visitor.send("load", "one")
    with visitor.messages() as messages:
        said = told(messages)
        next(said)
        second = visitor.send("load", "two")
        heard = [next(update for update in said if update[0] == second)]
        while (first, None, True) not in heard:
            heard.append(next(said))
        heard += [next(said), next(said)]  # it is told anew twice a second
    assert {text for _, text, _ in heard} <= {None, "Loading two", "Downloading two"}
    assert heard[-1] == (second, "Downloading two", False)


def test_another_visitor_is_told_on(stuck):
    ann, bob = Visitor(stuck), Visitor(stuck)
    ann.send("load", "one")
    with ann.messages() as messages:
        said = told(messages)
        next(said)
        bob.run(rows_of([""], 5), "one")
        assert [next(said)[1:] for _ in range(3)] == [("Downloading one", False)] * 3


def test_a_script_that_stops_before_the_model_is_there_hears_so(stuck):
    client = Client(stuck, verbose=False)
    job = client.submit(["Hi"], api_name="/run")
    wait_for(lambda: bool(job.outputs()))
    client.predict(api_name="/stop")
    with pytest.raises(AppError, match=r"^Stopped before the model was there.$"):
        job.result()


def test_f1_a_model_that_cannot_be_loaded_leaves_the_one_before_in_place(monkeypatch):
    loaded = []

    def load(name, *, on_progress, **_how):
        loaded.append(name)
        if name == "org/gated":
            raise ModelError("org/gated needs access.")
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    with served_shelf(ModelShelf(["scripted", "org/gated"])) as url:
        visitor = Visitor(url)
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"
        refused = visitor.run(rows_of(["Hi"], 5), "org/gated")[-1]
        assert refused.notice == {"text": "org/gated needs access.", "kind": "error"}
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"
    assert loaded == ["scripted", "org/gated"]


def test_f1_a_model_that_cannot_be_loaded_is_said_and_tried_again(monkeypatch):
    answers = [ModelError("nowhere/model was not found on the hub."), None]

    def load(name, *, on_progress, **_how):
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

    def load(name, *, on_progress, **_how):
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

"""The states of a run under way go past Gradio, to whoever picks up its wire."""

import json
import threading

import pytest
from websockets.sync.client import connect

from tests.serving import Listener, Visitor, rows_of, served, wire_address
from tests.shown import applied, shown_tokens
from tests.tiny import scripted_lm, token_ids
from viz.stage.state import StageWriter

STEPS = 60


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([token_ids("slot by slot ")], seconds=0.03)) as url:
        yield url


@pytest.fixture
def visitor(url):
    visitor = Visitor(url)
    visitor.join(rows_of(["Hi", "Why wait?"], STEPS), "scripted", batch_size=2)
    return visitor


def first_drawn(frames):
    return next(frame for frame in frames if frame.drawn)


def has_tokens(state):
    return bool(shown_tokens(state)[0])


def heard_over(address):
    with connect(address) as socket:
        return list(socket)


def test_with_gradio_come_the_plan_and_the_end_and_over_the_wire_what_is_between(visitor, url):
    frames = visitor.frames()
    plan = first_drawn(frames)
    assert not plan.tokens[0]
    listener = Listener(url, plan.stage["wire"])
    rest = list(frames)
    listener.join(20)
    lengths = [len(shown_tokens(state)[0]) for state in listener.states]
    assert len(lengths) > 10
    assert lengths == sorted(set(lengths))
    before = [frame for frame in rest if frame.stage["status"] == "running"]
    assert all(len(frame.tokens[0]) < lengths[0] for frame in before)
    last, *_ = shown_tokens(listener.states[-1])
    assert last == rest[-1].tokens[0][: len(last)]
    assert rest[-1].record.status == "done"
    assert len(rest[-1].tokens[0]) == STEPS


def test_a_state_over_the_wire_is_what_comes_with_gradio(visitor, url):
    frames = visitor.frames()
    plan = first_drawn(frames).stage
    with connect(wire_address(url, plan["wire"])) as socket:
        state = applied(None, json.loads(socket.recv(20)))
    later = first_drawn(frames).stage
    assert state.keys() | {"wire"} == later.keys() == plan.keys()
    assert {name: state[name] for name in ("key", "prompts", "batches", "budgets")} == {
        name: later[name] for name in ("key", "prompts", "batches", "budgets")
    }


def test_where_nobody_picks_it_up_all_comes_with_gradio(visitor):
    drawn = [frame for frame in visitor.frames() if frame.drawn]
    assert len(drawn) > 10


def test_when_the_wire_breaks_the_rest_comes_with_gradio(visitor, url):
    frames = visitor.frames()
    with connect(wire_address(url, first_drawn(frames).stage["wire"])) as socket:
        socket.recv(20)
    rest = [frame for frame in frames if has_tokens(frame.stage)]
    assert len(rest) > 5
    assert rest[-1].record.status == "done"


def test_a_word_from_the_browser_ends_it(visitor, url):
    frames = visitor.frames()
    with connect(wire_address(url, first_drawn(frames).stage["wire"])) as socket:
        socket.recv(20)
        socket.send("more")
        assert all(json.loads(message) for message in socket), "it is closed"
    rest = [frame for frame in frames if frame.stage["status"] == "running"]
    assert len(rest) > 3


def test_a_wire_is_picked_up_once_and_gone_with_its_run(visitor, url):
    frames = visitor.frames()
    there = wire_address(url, first_drawn(frames).stage["wire"])
    with connect(there) as socket:
        socket.recv(20)
        assert heard_over(there) == []
        for _ in frames:
            pass
        assert all(json.loads(message) for message in socket), "it is closed"
    assert heard_over(there) == []


def test_the_wire_ends_before_the_record_is_written(visitor, url, monkeypatch):
    """What was told last is drawn meanwhile."""
    ended = threading.Event()
    write = StageWriter.write

    def write_at_the_end(writer, run):
        assert run.status == "running" or ended.wait(10)
        return write(writer, run)

    monkeypatch.setattr(StageWriter, "write", write_at_the_end)
    frames = visitor.frames()
    heard_over(wire_address(url, first_drawn(frames).stage["wire"]))
    ended.set()
    assert list(frames)[-1].record.status == "done"


def test_no_other_wire_is_there(url):
    assert heard_over(wire_address(url, "guessed")) == []

"""A fleet whose replicas are made up: what it does when one dies, can't load, or can't be made."""

import threading
from types import SimpleNamespace

import pytest

from engine import cluster, keeper
from engine.cluster import Share
from engine.errors import LostError, ModelError
from engine.fleet import Fleet
from engine.replica import Elsewhere
from engine.visitors import Signal
from tests.serving import wait_for


class Method:
    """One of an actor's."""

    def __init__(self, does):
        self.remote = does

    def options(self, **_):
        return self


class Actor:
    """Stands in for a replica; `loads(actor, name)` is what it says of a model."""

    def __init__(self, loads):
        self.killed = threading.Event()
        self.load = Method(lambda name: loads(self, name))
        self.said = Method(self._until_killed)

    def _until_killed(self):
        assert self.killed.wait(20)
        yield from dies()


def dies(*_):
    raise LostError("killed")
    yield


def loads(_, name):
    yield f"Loading {name}"
    yield Elsewhere(name, ())


def is_busy(*_):
    raise ModelError("The device is busy.")
    yield


def loads_for_long(actor, name):
    yield f"Loading {name}"
    assert actor.killed.wait(20)
    yield from dies()


class Made:
    """Stands in for Ray: each replica that is made takes the next of `each`, the last one for good:
    what it says of a model, or what breaks its making."""

    def __init__(self, monkeypatch, *each):
        self.each = list(each)
        self.actors = []
        monkeypatch.setattr(cluster, "connect", lambda _: None)
        monkeypatch.setattr(cluster, "disconnect", lambda: None)
        monkeypatch.setattr(cluster, "share_of", lambda *_: Share(1, 0))
        monkeypatch.setattr(cluster, "actors", lambda *_: SimpleNamespace(remote=self._make))
        monkeypatch.setattr(cluster, "kill", lambda actor: actor.killed.set())
        monkeypatch.setattr(keeper, "drawn", lambda items: items)
        monkeypatch.setattr(keeper, "pause_after", lambda _: 0.0)
        self.fleet = Fleet(["one", "two"], replicas=1)

    def _make(self, *_, **__):
        does = self.each.pop(0) if len(self.each) > 1 else self.each[0]
        if isinstance(does, Exception):
            wait_for(lambda: self.fleet.line)
            raise does
        self.actors.append(Actor(does))
        return self.actors[-1]

    def has(self, name):
        return bool(self.fleet.keepers) and self.fleet.keepers[0].has(name)

    def result(self, name):
        """The model, once it is there or can't be."""
        loading = self.fleet.start(name)
        wait_for(lambda: loading.over)
        return loading.result()


@pytest.fixture
def made(monkeypatch):
    all_made = []

    def make(*each):
        all_made.append(Made(monkeypatch, *each))
        return all_made[-1]

    yield make
    for one in all_made:
        close(one.fleet)


def close(fleet):
    closing = threading.Thread(target=fleet.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_closing_does_not_wait_for_a_model_that_loads(made):
    here = made(loads_for_long)
    loading = here.fleet.start("one")
    wait_for(lambda: loading.message == "Loading one")
    close(here.fleet)


def test_a_model_that_was_there_is_loaded_again_until_it_is(made):
    here = made(loads, is_busy, dies, is_busy, is_busy, loads)
    assert here.result("one").name == "one"
    here.actors[0].killed.set()
    wait_for(lambda: len(here.actors) == 6 and here.has("one"))
    assert all(actor.killed.is_set() for actor in here.actors[:-1])


def test_a_model_that_kills_its_process_can_t_be_had_and_the_other_one_can(made):
    here = made(lambda actor, name: loads(actor, name) if name == "one" else dies())
    here.result("one")
    with pytest.raises(ModelError, match=r"^two can't be loaded: its process died.$"):
        here.result("two")
    wait_for(lambda: here.has("one"))
    assert len(here.actors) == keeper.MOST_DEATHS + 1


def test_replicas_that_can_t_be_made_any_more_are_told_to_all_that_wait(made, caplog):
    here = made(loads, RuntimeError("the head is gone"), loads)
    lm = here.result("one")
    here.actors[0].killed.set()
    wait_for(lambda: not here.has("one"))
    shown = here.fleet.show(None, lm, None, Signal())
    with pytest.raises(ModelError, match=r"^Replicas can't be kept up: the head is gone.$"):
        list(shown)
    assert "replicas can't be kept up" in caplog.messages
    assert here.fleet.loaded("one") is None
    wait_for(lambda: here.fleet._owner is None)
    assert here.result("one") == lm


def test_a_cluster_that_can_t_be_asked_is_told_and_asked_again(made, monkeypatch, caplog):
    here = made(loads)
    with monkeypatch.context() as broken:
        broken.setattr(cluster, "share_of", lambda *_: {}["CPU"])
        with pytest.raises(ModelError, match=r"^Replicas can't be kept up: 'CPU'.$"):
            here.result("one")
    assert "replicas can't be kept up" in caplog.messages
    assert here.result("one").name == "one"

"""Frames for a browser beside the engine: seldom while the cores are in use, else all of them."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers

from viz.page import sparing
from viz.page.sparing import SPARING_SECONDS, Sparing


@pytest.fixture
def clocks(monkeypatch):
    """Of two cores; `pass_by` lets time go by of which so much was used."""

    class Clocks:
        wall = processor = 100.0

        def pass_by(self, seconds, cores_in_use):
            self.wall += seconds
            self.processor += seconds * cores_in_use

    clocks = Clocks()
    monkeypatch.setattr(sparing, "_cores", lambda: 2)
    monkeypatch.setattr(sparing, "_clocks", lambda: (clocks.wall, clocks.processor))
    return clocks


def due(clocks, address, cores_in_use, ticks=20):
    """At which of so many tenths of a second a frame was due."""
    spared = Sparing(address)
    found = []
    for tick in range(1, ticks + 1):
        clocks.pass_by(0.1, cores_in_use)
        if spared.is_due():
            found.append(tick)
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1"])
def test_a_browser_on_this_machine_is_spared_while_both_cores_are_in_use(clocks, address):
    every = round(SPARING_SECONDS / 0.1)
    seldom = due(clocks, address, 1.9, ticks=4 * every)
    assert len(seldom) == pytest.approx(4, abs=1)
    assert min(after - before for before, after in pairwise(seldom)) >= every
    assert due(clocks, address, 1.0) == list(range(1, 21))


def test_what_a_picture_takes_from_the_engine_is_no_free_core(clocks):
    spared = Sparing("127.0.0.1")
    assert spared.is_due()
    assert not spared.holds_back
    clocks.pass_by(0.1, 1.4)
    assert not spared.is_due()
    assert spared.holds_back


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::1", "testclient", "", None])
def test_others_are_told_all_the_time(clocks, address):
    assert due(clocks, address, 2.0) == list(range(1, 21))


@pytest.mark.parametrize("name", ["X-Forwarded-For", "x-forwarded-host", "Forwarded"])
def test_who_comes_through_a_proxy_on_this_machine_is_elsewhere(clocks, name):
    def is_spared(headers):
        client = SimpleNamespace(host="127.0.0.1")
        spared = Sparing.of(SimpleNamespace(client=client, headers=Headers(headers)))
        spared.is_due()
        clocks.pass_by(0.1, 2.0)
        return not spared.is_due()

    assert is_spared({})
    assert not is_spared({name: "somewhere"})


def test_frames_come_again_as_soon_as_a_core_is_free(clocks):
    spared = Sparing("127.0.0.1")
    assert spared.is_due()
    clocks.pass_by(0.1, 2.0)
    assert not spared.is_due()
    clocks.pass_by(0.2, 0.5)
    assert spared.is_due()

"""A short soak: after many runs that end in every way, nothing is left of them."""

import sys

import pytest

from engine.requests import Limits
from tests.serving import wait_for
from tests.soak import EVERY, Soak, main, matches_solo, server
from tests.tiny import tiny_lm


def nobody_is_connected(counts: dict[str, int]) -> bool:
    return counts["events"] == counts["connections"] == 0


def test_d7_nothing_piles_up_over_runs_of_every_kind():
    with server() as here:
        soak = Soak(here)
        counts = {}
        for number in range(1, 41):
            soak.run(number)
            if number % 20 == 0:
                wait_for(lambda: nobody_is_connected(here.counts()))
                counts[number] = here.counts() | {"tensors": here.tensors()}
        early, late = counts[20], counts[40]
        assert late["threads"] <= early["threads"]
        assert late["files"] <= early["files"]
        assert late["tensors"] <= early["tensors"]
        assert late["sessions"] <= Limits().runs
        assert (late["line"], late["iterators"], late["flags"]) == (0, 0, 0)
        assert matches_solo(here, tiny_lm(), 41)


def test_too_few_runs_to_compare_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["soak", "--runs", str(2 * EVERY - 1)])
    with pytest.raises(SystemExit) as status:
        main()
    assert status.value.code == 2
    assert f"--runs must be at least {2 * EVERY}: " in capsys.readouterr().err

"""A few hundred random and mutated inputs for each reader; `python -m tests.fuzz` tries more."""

import pytest

from engine.errors import RecordError
from tests import fuzz
from tests.targets import TARGETS, Target
from tests.targets.runs import saved_runs


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.rarity == 1])
def test_an_input_is_taken_or_refused_and_nothing_else(name):
    tally = fuzz.fuzz(name, examples=300, seed=0)
    assert tally.failures == {}
    assert tally.accepted
    assert tally.refused


@pytest.mark.parametrize(
    ("error", "failures"), [(RecordError, 0), (ValueError, 1), (RecursionError, 1), (None, 0)]
)
def test_only_an_error_of_the_projects_own_is_a_refusal(monkeypatch, capsys, error, failures):
    def read(_):
        if error:
            raise error("odd")

    monkeypatch.setitem(TARGETS, "run", Target(saved_runs, read))
    assert fuzz.main(["--target", "run", "--examples", "5", "--seed", "1"]) == failures
    said = capsys.readouterr().out
    assert "seed 1\n" in said
    assert ("odd" in said) == bool(failures)


def test_the_same_seed_gives_the_same_inputs(monkeypatch):
    seen = []
    monkeypatch.setitem(TARGETS, "run", Target(saved_runs, seen.append))
    for seed in (1, 1, 2):
        fuzz.fuzz("run", examples=20, seed=seed)
    first, again, other = seen[:20], seen[20:40], seen[40:]
    assert first == again != other

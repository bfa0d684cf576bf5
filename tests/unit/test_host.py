"""A visitor's run on a host, whose frames are made by hand."""

import logging
from dataclasses import replace

import pytest

from engine import host
from engine.errors import RequestError, RunError
from engine.host import Host
from engine.live import Refused, Waiting
from engine.requests import Limits
from engine.run import until
from engine.shelf import ModelShelf
from tests.tiny import scripted_lm
from tests.unit.paper import WORKED


class LentGpuError(Exception):
    """As ZeroGPU raises them: the text is its `message`, and str() quotes it."""

    def __init__(self, message):
        super().__init__()
        self.message = message

    def __str__(self):
        return repr(self.message)


@pytest.fixture
def run(monkeypatch):
    """A run of which these frames are shown, some of them callables that raise."""
    shelf = ModelShelf(["scripted"])
    shelf.add(scripted_lm([[1]]))
    here = Host(shelf, Limits())

    def run(*shown, visitor="ann"):
        def frames(*_, **__):
            for frame in shown:
                if isinstance(frame, Exception):
                    raise frame
                yield frame

        monkeypatch.setattr(host, "frames", frames)
        return here.run(visitor, prompts=["Hi"])

    return run


UNDER_WAY = until(WORKED, 3)


def test_frames_pass_as_they_are_and_the_last_one_comes_when_one_may_run_again(run):
    seen = run(Waiting(1), UNDER_WAY, WORKED)
    assert [next(seen) for _ in range(4)] == ["Starting", Waiting(1), UNDER_WAY, WORKED]
    assert list(run(WORKED)) == ["Starting", WORKED]  # though the first was never closed


def test_what_only_the_worker_found_out_is_raised_here(run):
    with pytest.raises(RequestError, match=r"^Prompt 2 does not fit.$"):
        list(run(Refused("Prompt 2 does not fit.")))


def test_a_lent_gpu_that_is_refused_comes_out_as_it_was_raised(run):
    error = LentGpuError("You have used up your quota.")
    for shown in ([error], [Waiting(1), error]):
        with pytest.raises(LentGpuError) as raised:
            list(run(*shown))
        assert raised.value is error
    assert list(run(WORKED))[-1] == WORKED


def test_a_gpu_that_is_taken_away_leaves_the_record_so_far(run, caplog):
    *_, last = run(UNDER_WAY, LentGpuError("GPU task aborted\nat worker 7"))
    assert (last.status, last.error) == ("error", "The run was cut off: GPU task aborted.")
    assert last.steps == UNDER_WAY.steps
    assert "a run was cut off" in caplog.text


def test_what_fails_after_the_end_takes_nothing_away(run):
    assert list(run(UNDER_WAY, WORKED, LentGpuError("too late")))[-1] == WORKED


@pytest.mark.parametrize("shown", [[], [Waiting(1)]])
def test_a_worker_that_ends_without_a_word_is_an_error_in_words(run, shown):
    with pytest.raises(RunError, match=r"^The run ended before it began.$"):
        list(run(*shown))


def test_only_a_run_that_ends_early_is_in_the_log(run, caplog):
    caplog.set_level(logging.WARNING, "batchscope.host")
    list(run(WORKED))
    assert caplog.messages == []
    list(run(replace(WORKED, status="error", error="Out of memory.")))
    assert caplog.messages == ["a run ended early: Out of memory."]

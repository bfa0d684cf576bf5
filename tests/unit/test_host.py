"""A visitor's run on a host, whose frames are made by hand."""

import logging
import re
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
    default = Host(shelf, Limits())

    def run(*shown, here=default, prompts=("Hi",)):
        def frames(*_, **__):
            for frame in shown:
                if isinstance(frame, Exception):
                    raise frame
                yield frame

        monkeypatch.setattr(host, "frames", frames)
        return here.run("ann", prompts=list(prompts))

    run.shelf = shelf
    return run


UNDER_WAY = until(WORKED, 3)
WAITING = Waiting(ahead=1, seconds=0.5)


def test_frames_pass_as_they_are_and_the_last_one_comes_when_one_may_run_again(run):
    seen = run(WAITING, UNDER_WAY, WORKED)
    assert [next(seen) for _ in range(4)] == ["Starting.", WAITING, UNDER_WAY, WORKED]
    assert list(run(WORKED)) == ["Starting.", WORKED]  # though the first was never closed


def test_what_only_the_worker_found_out_is_raised_here(run):
    with pytest.raises(RequestError, match=r"^Prompt 2 does not fit.$"):
        list(run(Refused("Prompt 2 does not fit.")))


def test_a_lent_gpu_that_is_refused_comes_out_as_it_was_raised(run):
    error = LentGpuError("You have used up your quota.")
    for shown in ([error], [WAITING, error]):
        with pytest.raises(LentGpuError) as raised:
            list(run(*shown))
        assert raised.value is error
    assert list(run(WORKED))[-1] == WORKED


def test_a_gpu_that_is_taken_away_leaves_the_record_so_far(run, caplog):
    *_, last = run(UNDER_WAY, LentGpuError("GPU task aborted\nat worker 7"))
    assert (last.status, last.error) == ("error", "The run was cut off: GPU task aborted.")
    assert last.steps == UNDER_WAY.steps
    assert "run 1 was cut off" in caplog.text


def test_what_fails_after_the_end_takes_nothing_away(run):
    assert list(run(UNDER_WAY, WORKED, LentGpuError("too late")))[-1] == WORKED


@pytest.mark.parametrize("shown", [[], [WAITING]])
def test_a_worker_that_ends_without_a_word_is_an_error_in_words(run, shown):
    with pytest.raises(RunError, match=r"^The run ended before it began.$"):
        list(run(*shown))


FIGURES = (
    "paper, prompts 3, batch size 3, prompt tokens 20, new tokens 24, "
    "waited 0.0 s, ran 2.0 s, 12.0 tok/s"
)


@pytest.mark.parametrize(
    ("changes", "level", "line"),
    [
        ({}, "INFO", f"run 1 done: {FIGURES}"),
        ({"status": "stopped"}, "INFO", f"run 1 stopped: {FIGURES}"),
        (
            {"status": "error", "error": "Out of memory."},
            "WARNING",
            f"run 1 error: {FIGURES}; Out of memory.",
        ),
        (
            {"queued_seconds": 7.25},
            "INFO",
            f"run 1 done: {FIGURES}".replace("waited 0.0", "waited 7.2"),
        ),
    ],
)
def test_the_log_has_one_line_per_run(run, caplog, changes, level, line):
    caplog.set_level(logging.DEBUG, "batchscope.host")
    list(run(WAITING, UNDER_WAY, replace(WORKED, **changes), here=Host(run.shelf, Limits())))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]


def test_runs_are_numbered_and_each_has_its_line_however_it_ends(run, caplog):
    caplog.set_level(logging.DEBUG, "batchscope.host")
    here = Host(run.shelf, Limits())
    list(run(WORKED, here=here))
    with pytest.raises(RequestError):
        list(run(Refused("It needs 9 GB."), here=here))
    with pytest.raises(RequestError):
        list(run(WORKED, here=here, prompts=[""]))
    leaving = run(WAITING, here=here)
    assert [next(leaving), next(leaving)] == ["Starting.", WAITING]
    leaving.close()
    leaving = run(UNDER_WAY, here=here)
    assert [next(leaving), next(leaving)] == ["Starting.", UNDER_WAY]
    leaving.close()
    with pytest.raises(LentGpuError):
        list(run(LentGpuError("No GPU"), here=here))
    starts = [re.split("[:,]", line)[0] for line in caplog.messages]
    assert starts == [
        "run 1 done",
        "run 2 refused",
        "run 3 refused",
        "run 4 left by its visitor",
        "run 5 left by its visitor",
        "run 6 failed",
    ]
    assert caplog.messages[1:4] == [
        "run 2 refused: It needs 9 GB.",
        "run 3 refused: Prompt 1 is empty.",
        "run 4 left by its visitor",
    ]
    assert "new tokens 9" in caplog.messages[4]


@pytest.mark.parametrize("asked", [False, True])
def test_what_prompts_say_is_in_the_log_only_if_that_was_asked_for(run, caplog, asked):
    caplog.set_level(logging.DEBUG)
    here = Host(run.shelf, Limits(), log_prompts=asked)
    said = replace(WORKED.requests[0], prompt="secret\n2026 INFO forged")
    list(run(replace(WORKED, requests=(said, *WORKED.requests[1:])), here=here))
    assert ('"secret\\n2026 INFO forged"' in caplog.text) is asked
    assert ("secret" in caplog.text) is asked

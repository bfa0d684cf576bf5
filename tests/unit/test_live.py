"""A run as frames: what is refused, when it ends, and for how long a lent GPU is asked for."""

import threading
from contextlib import closing

import pytest

from engine.errors import RequestError
from engine.live import Refused, Waiting, frames, gpu_seconds
from engine.requests import make_requests
from engine.static import RunStream
from tests.tiny import scripted_lm
from tests.unit.streams import A, stream_of


@pytest.mark.parametrize(
    ("budgets", "batch_size", "seconds"),
    [
        ([20], 1, 15 + 1),
        ([15, 10, 20, 12], 4, 15 + 1),  # the longest row of the batch: 20 steps
        ([15, 10, 20, 12], 1, 15 + 2),  # 57 steps one after another
        ([100, 40, 60, 400, 20], 2, 15 + 26),  # 100 + 400 + 20
        ([512] * 64, 32, 15 + 51),
        ([512] * 64, 8, 120),  # no more than that
    ],
)
def test_a_gpu_is_asked_for_as_long_as_the_budgets_may_take(budgets, batch_size, seconds):
    requests = make_requests(["x"] * len(budgets), max_new_tokens=budgets)
    assert gpu_seconds(None, requests, None, batch_size=batch_size, seconds=300) == seconds


def test_no_gpu_is_asked_for_longer_than_a_run_may_take():
    requests = make_requests(["x"], max_new_tokens=512)
    assert gpu_seconds(None, requests, None, batch_size=1, seconds=20) == 20


def frames_of(lm, *, seconds=300, stop=None, max_new_tokens=5):
    return frames(
        lm,
        make_requests(["one", "three"], max_new_tokens=max_new_tokens),
        stop or threading.Event(),
        batch_size=8,
        padding_side="left",
        chat_template=False,
        seconds=seconds,
    )


def test_a_run_past_its_deadline_ends_with_its_picture_and_says_so():
    now = iter(range(0, 1000, 2))  # two seconds a glance
    lm = scripted_lm([[A]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.static.time.perf_counter", lambda: next(now))
        *_, last = frames_of(lm, seconds=60, max_new_tokens=500)
    assert last.status == "error"
    assert last.error == "The run took longer than this host allows: 60 s."
    assert 1 <= len(last.steps) == len(lm.model.calls) < 60
    assert last.steps[-1].finished <= 64


def test_a_run_that_does_not_fit_is_refused_before_its_picture(monkeypatch):
    def refuse(stream):
        raise RequestError("It needs 9 GB, 1 GB is free.")

    lm = scripted_lm([[A]])
    monkeypatch.setattr(RunStream, "check_memory", refuse)
    assert list(frames_of(lm)) == [Refused("It needs 9 GB, 1 GB is free.")]
    assert lm.model.calls == []


def test_memory_is_looked_at_when_the_turn_has_come(monkeypatch):
    looks = []
    monkeypatch.setattr(RunStream, "check_memory", lambda _: looks.append(1))
    monkeypatch.setattr("engine.live.WAIT_SECONDS", 0)
    lm = scripted_lm([[A]])
    waits = frames_of(lm)
    with closing(waits):
        with closing(stream_of(lm)) as first:
            next(first)
            looks.clear()
            for _ in range(3):
                waiting = next(waits)
                assert isinstance(waiting, Waiting)
                assert waiting.ahead == 1
            assert looks == []
        assert next(waits).status == "running"
        assert looks == [1]


def test_a_run_that_is_stopped_in_line_is_not_measured(monkeypatch):
    def refuse(stream):
        raise RequestError("It needs 9 GB, 1 GB is free.")

    monkeypatch.setattr("engine.live.WAIT_SECONDS", 0)
    lm, stop = scripted_lm([[A]]), threading.Event()
    with closing(stream_of(lm)) as first:
        next(first)
        waits = frames_of(lm, stop=stop)
        assert next(waits).ahead == 1
        monkeypatch.setattr(RunStream, "check_memory", refuse)
        stop.set()
        *_, last = waits
    assert (last.status, last.error, last.steps) == ("stopped", None, ())

"""A run as frames: what is refused, when it ends, and for how long a lent GPU is asked for."""

import threading
from contextlib import closing

import pytest

from engine.errors import RequestError
from engine.live import EngineThread, Refused, Waiting, frames, gpu_seconds
from engine.requests import make_requests
from engine.run import texts_after
from engine.static import RunStream
from engine.turns import turns_on
from tests.tiny import scripted_lm
from tests.unit.streams import PATIENCE, A, B, FailingOnce, stream_of, works


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
    with closing(stream_of(lm)) as first:
        next(first)
        looks.clear()
        for _ in range(3):
            waiting = next(waits)
            assert isinstance(waiting, Waiting)
            assert waiting.ahead == 1
        assert looks == []
    assert next(waits).status == "running"
    assert looks  # before the picture, and by the engine once more
    assert [*waits][-1].status == "done"


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


class Gate:
    """A `before_forward` that waits before one forward until it is opened."""

    def __init__(self, column):
        self.column = column
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, column):
        if column == self.column:
            self.reached.set()
            assert self.open.wait(PATIENCE)


def engine_threads():
    return [thread for thread in threading.enumerate() if thread.name == "engine"]


def wait_until_no_engine_runs():
    for thread in engine_threads():
        thread.join(PATIENCE)
    assert engine_threads() == []


def test_no_forward_waits_for_a_frame_to_be_taken():
    gate = Gate(5)
    lm = scripted_lm([[A]], before_forward=gate)
    shown = frames_of(lm)
    assert next(shown).steps == ()
    assert gate.reached.wait(PATIENCE)  # nobody asked for another frame
    gate.open.set()
    wait_until_no_engine_runs()
    last = next(shown)
    assert (last.status, len(last.steps)) == ("done", 5)
    assert list(shown) == []


def test_the_frame_under_way_shows_what_came_meanwhile(monkeypatch):
    monkeypatch.setattr("engine.live.FRAME_SECONDS", 0)
    gate = Gate(4)
    shown = frames_of(scripted_lm([[A]], before_forward=gate))
    assert next(shown).steps == ()
    assert gate.reached.wait(PATIENCE)
    frame = next(shown)
    assert (frame.status, len(frame.steps)) == ("running", 3)
    gate.open.set()
    assert [frame.status for frame in shown][-1] == "done"


def test_a_closed_run_ends_with_the_forward_under_way_and_is_not_waited_for():
    gate = Gate(3)
    lm = scripted_lm([[A]], before_forward=gate)
    shown = frames_of(lm, max_new_tokens=100)
    next(shown)
    assert gate.reached.wait(PATIENCE)
    shown.close()
    assert len(turns_on(lm.device)) == 1
    gate.open.set()
    wait_until_no_engine_runs()
    assert len(turns_on(lm.device)) == 0
    assert len(lm.model.calls) == 3
    assert works(lm)


def test_a_run_that_nobody_closes_ends_when_it_is_forgotten():
    gate = Gate(2)
    lm = scripted_lm([[A]], before_forward=gate)
    shown = frames_of(lm, max_new_tokens=100)
    next(shown)
    assert gate.reached.wait(PATIENCE)
    del shown
    gate.open.set()
    wait_until_no_engine_runs()
    assert len(lm.model.calls) == 2


@pytest.mark.parametrize(
    ("error", "last"),
    [(RuntimeError("odd weather"), None), (RequestError("too long"), Refused("too long"))],
)
def test_what_breaks_in_the_engines_thread_is_told(error, last):
    lm = scripted_lm([[A]], before_forward=FailingOnce(3, error))
    *_, frame = frames_of(lm)
    if last is None:
        assert (frame.status, len(frame.steps)) == ("error", 2)
        assert "odd weather" in frame.error
    else:
        assert frame == last
    assert engine_threads() == []


def test_a_record_holds_of_each_step_all_or_nothing():
    lm = scripted_lm([[A, B]])
    with closing(stream_of(lm, max_new_tokens=400)) as stream:
        engine = EngineThread(stream)
        while not engine.over.is_set():
            run = stream.record()
            assert run.texts == texts_after(run, run.steps)
        engine.result()
    assert len(stream.record().steps) == 400


def test_a_lent_gpu_keeps_the_loop_inside_the_generator(monkeypatch):
    monkeypatch.setattr("engine.live.ON_ZERO_GPU", True)
    lm = scripted_lm([[A]])
    shown = frames_of(lm)
    assert next(shown).steps == ()
    assert engine_threads() == []
    assert lm.model.calls == []
    assert [*shown][-1].status == "done"

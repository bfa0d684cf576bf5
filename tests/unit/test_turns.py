"""The line in front of a device: one run at a time, first come first served."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from engine.errors import RunError
from engine.turns import Turn
from tests.tiny import scripted_lm
from tests.unit.streams import PATIENCE, A, FailingOnce, stream_of


def test_a_second_run_waits_until_the_first_gives_the_device_back():
    lm = scripted_lm([[A]])
    first, second, third = (stream_of(lm, max_new_tokens=2) for _ in range(3))
    with closing(first), closing(second), closing(third):
        next(first)
        assert (second.wait_turn(0), third.wait_turn(0)) == (False, False)
        assert [first.ahead, second.ahead, third.ahead] == [0, 1, 2]
        assert list(first) != []
        assert [second.ahead, third.ahead] == [0, 1]
        assert (second.wait_turn(0), third.wait_turn(0)) == (True, False)
        assert len(list(second)) == 2
        assert third.wait_turn(0)


def test_a_waiting_run_that_closes_leaves_the_line():
    lm = scripted_lm([[A]])
    first, second, third = (stream_of(lm) for _ in range(3))
    with closing(first), closing(second), closing(third):
        next(first)
        second.wait_turn(0)
        third.wait_turn(0)
        second.close()
        assert third.ahead == 1
        assert second.record().status == "stopped"
        first.close()
        assert third.wait_turn(0)


def test_e5_a_run_that_breaks_lets_the_next_one_on():
    broken = stream_of(scripted_lm([[A]], before_forward=FailingOnce(1, ValueError())))
    waiting = stream_of(scripted_lm([[A]]))
    with closing(broken), closing(waiting):
        assert broken.wait_turn(0)
        assert not waiting.wait_turn(0)
        with pytest.raises(RunError):
            next(broken)
        assert waiting.wait_turn(0)


def test_runs_come_first_come_first_served_and_never_at_once():
    forwards = []
    names = ["first", "second", "third", "fourth"]
    streams = {
        name: stream_of(
            scripted_lm([[A]], before_forward=lambda _, name=name: forwards.append(name)),
            max_new_tokens=3,
        )
        for name in names
    }
    next(streams["first"])
    assert [stream.wait_turn(0) for stream in streams.values()] == [True, False, False, False]
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(list, streams[name]) for name in reversed(names[1:])]
        list(streams["first"])
        assert [len(steps.result(PATIENCE)) for steps in others] == [3, 3, 3]
    assert forwards == [name for name in names for _ in range(3)]


def test_a_runs_clock_starts_with_its_turn(monkeypatch):
    clock = [100.0]

    def take_a_second(_):
        clock[0] += 1.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    lm = scripted_lm([[A]], before_forward=take_a_second)
    first, second = stream_of(lm), stream_of(lm, max_new_tokens=1)
    with closing(first), closing(second):
        next(first)
        second.wait_turn(0)
        list(first)
        next(second)
    assert second.record().batches[0].started < 0.05


def test_e1_stop_ends_a_run_that_waits_in_line(monkeypatch):
    waiting = threading.Event()
    wait = Turn.wait

    def tell_and_wait(turn, timeout=None):
        if turn.ahead:
            waiting.set()
        return wait(turn, timeout)

    lm = scripted_lm([[A]])
    first, second = stream_of(lm), stream_of(lm)
    next(first)
    monkeypatch.setattr(Turn, "wait", tell_and_wait)
    steps = []
    thread = threading.Thread(target=lambda: steps.extend(second))
    thread.start()
    try:
        assert waiting.wait(PATIENCE)
        second.stop()
        thread.join(timeout=2)
        still_waits = thread.is_alive()
    finally:
        first.close()
        thread.join(PATIENCE)
        second.close()
    assert not still_waits
    assert steps == []

"""Who has a run under way, and the flag that stops it."""

import multiprocessing
from contextlib import ExitStack

import pytest

from engine.errors import RequestError
from engine.visitors import LatestOnly, StillRunningError, StopFlag, StopFlags


def test_stop_sets_the_visitors_own_flag_and_no_other():
    flags = StopFlags(most=2)
    with flags.flag("ann") as hers, flags.flag("bob") as his:
        flags.stop("ann")
        flags.stop("nobody")
        assert hers.is_set()
        assert not his.is_set()


def test_a_visitor_has_one_run_and_may_start_another_after_it():
    flags = StopFlags(most=2)
    with flags.flag("ann"), pytest.raises(StillRunningError), flags.flag("ann"):
        pass
    with flags.flag("ann") as flag:
        assert not flag.is_set()


@pytest.mark.parametrize(("visitors", "said"), [(["ann"], "1 run is"), (["a", "b"], "2 runs are")])
def test_how_many_are_too_many_is_said_in_numbers(visitors, said):
    flags = StopFlags(most=len(visitors))
    with ExitStack() as stack:
        for visitor in visitors:
            stack.enter_context(flags.flag(visitor))
        with pytest.raises(RequestError) as refused:
            flags.flag("eve").__enter__()
    assert str(refused.value) == (
        f"{said} under way or waiting, as many as this host takes: try again in a minute."
    )


def test_there_is_an_end_to_how_many_run_or_wait():
    flags = StopFlags(most=2)
    with flags.flag("ann"), flags.flag("bob"):
        with pytest.raises(RequestError):
            flags.flag("eve").__enter__()
        flags.stop("eve")
    with flags.flag("eve"):
        pass


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    flags = StopFlags(most=2)
    with flags.flag("ann"), flags.flag("bob"):
        flags.stop("ann")
    assert list(tmp_path.iterdir()) == []


def test_a_flag_is_the_same_in_another_process():
    flag = StopFlag.new()
    worker = multiprocessing.get_context("spawn").Process(target=flag.set)
    assert not flag.is_set()
    worker.start()
    worker.join()
    assert flag.is_set()


def test_of_what_a_visitor_begins_only_the_latest_goes_on():
    flags = LatestOnly()
    with flags.flag("ann") as first, flags.flag("bob") as his:
        with flags.flag("ann") as second:
            assert first.is_set()
            assert not second.is_set()
        with flags.flag("ann") as third:
            flags.end("ann")
            flags.end("nobody")
            assert third.is_set()
        assert not his.is_set()


def test_the_first_to_leave_does_not_take_the_latest_along():
    flags = LatestOnly()
    first = flags.flag("ann")
    first.__enter__()
    with flags.flag("ann") as second:
        first.__exit__(None, None, None)
        assert not second.is_set()
        flags.end("ann")
        assert second.is_set()

"""The server outlives what a model does to it."""

import asyncio
import random
import threading

import pytest

from engine.requests import Limits
from engine.turns import turns_on
from tests.crowd import crowd, right
from tests.serving import Visitor, rows_of, served, wait_for
from tests.tiny import scripted_lm, tiny_lm, token_ids
from viz.page.waiting import place_in_line

HELLO = token_ids("hello brave new world")


class OddError(BaseException):
    """Neither an Exception nor anything that Python knows."""


class WordlessError(Exception):
    """Can't even be put into words."""

    def __str__(self):
        raise ValueError("no words")


ODD = [
    KeyError("a key"),
    SystemExit(3),
    GeneratorExit(),
    StopIteration(),
    RecursionError("too deep"),
    MemoryError(),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    OddError("odd"),
]


@pytest.fixture(scope="module")
def odd():
    """The address of a page whose model raises what `odd.raises` holds, at the column `odd.at`."""

    def before_forward(column):
        if odd.raises is not None and column == odd.at:
            error, odd.raises = odd.raises, None
            raise error

    class Odd:
        lm = scripted_lm([HELLO], before_forward=before_forward)
        raises: BaseException | None = None
        at = 0

    odd = Odd()
    with served(odd.lm) as odd.url:
        yield odd


@pytest.mark.parametrize(
    ("error", "at"),
    [*((error, 3) for error in ODD), *((ODD[n], at) for n in (0, 1, 8) for at in (1, 9))],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_e5_whatever_a_model_raises_ends_its_run_only(odd, error, at):
    odd.raises, odd.at = error, at
    visitor = Visitor(odd.url)
    broken = visitor.run(rows_of(["Hi", "Ho"], 9), "scripted")[-1]
    assert broken.record.status == broken.stage["status"] == "error"
    assert [len(tokens) for tokens in broken.tokens] == [at - 1, at - 1]
    assert broken.record.error in broken.stage["summary"]
    assert f"forward {at}" in broken.record.error
    assert broken.run_button["interactive"]
    assert len(turns_on("cpu")) == 0
    assert visitor.run(rows_of(["Hi"], 9), "scripted")[-1].stage["status"] == "done"


def test_e5_an_error_without_words_ends_its_run_only(odd):
    odd.raises, odd.at = WordlessError(), 3
    visitor = Visitor(odd.url)
    broken = visitor.run(rows_of(["Hi", "Ho"], 9), "scripted")[-1]
    assert broken.stage["status"] == "error"
    assert broken.run_button["interactive"]
    assert visitor.run(rows_of(["Hi"], 9), "scripted")[-1].stage["status"] == "done"


def test_e2_tabs_that_close_at_random_moments_leave_nothing_behind():
    moments = random.Random(4)
    lm = scripted_lm([HELLO], seconds=0.002)
    with served(lm) as url:
        for _ in range(12):
            visitor, stays_for = Visitor(url), moments.randrange(6)
            visitor.join(rows_of(["long"], 400), "scripted")
            with visitor.messages() as messages:
                for _ in zip(range(stays_for), messages, strict=False):
                    pass
            visitor.http.close()
        wait_for(lambda: len(turns_on("cpu")) == 0)
        seen = len(lm.model.calls)
        last = Visitor(url).run(rows_of(["again"], 5), "scripted")[-1]
        assert last.stage["status"] == "done"
        assert len(lm.model.calls) == seen + 5


def test_e4_twenty_visitors_at_once_get_exactly_their_own():
    lm, limits = tiny_lm(), Limits()
    visits = crowd(lm, visitors=20, limits=limits)
    for visit in visits:
        assert visit.run.status == "done"
        assert right(lm, visit)
        assert visit.run.queued_seconds < visit.bound
    assert max(visit.bound for visit in visits) <= 20 * limits.run_seconds


def test_each_who_waits_knows_the_place_and_the_next_one_is_refused():
    gate = threading.Event()
    lm = scripted_lm([HELLO], before_forward=lambda _: gate.wait(60))
    with served(lm, limits=Limits(runs=4, run_seconds=60)) as url:
        running = Visitor(url)
        running.join(rows_of(["first"], 3), "scripted")
        frames = [running.frames()]
        next(frame for frame in frames[0] if frame.drawn)
        for ahead in (1, 2, 3):
            visitor = Visitor(url)
            visitor.join(rows_of(["later"], 3), "scripted")
            frames.append(visitor.frames())
            says = next(frame.says for frame in frames[-1] if "Waiting" in frame.says)
            most = "60 s" if ahead == 1 else f"{ahead} min"
            assert says == place_in_line(ahead=ahead, waited=0, run_seconds=60)
            assert says.endswith(f"at most {most} more.")
        refused = Visitor(url).run(rows_of(["too many"], 3), "scripted")[-1]
        assert refused.notice == {
            "text": "4 runs are under way or waiting, as many as this host takes: "
            "try again in a minute.",
            "kind": "error",
        }
        assert refused.run_button["interactive"]
        gate.set()
        assert [list(seen)[-1].record.status for seen in frames] == ["done"] * 4


@pytest.mark.parametrize("name", ["press_run", "run"])
def test_a_run_that_nobody_hears_ends(monkeypatch, name):
    monkeypatch.setattr("viz.page.demo.MOST_UNREAD", 3)
    monkeypatch.setattr("engine.live.FRAME_SECONDS", 0.01)
    lm = scripted_lm([HELLO], seconds=0.005)
    with served(lm) as url:
        silent = Visitor(url)
        if name == "press_run":
            silent.join(rows_of(["long"], 400), "scripted")
        else:
            settings = [1, False, False, 0, 1, 0, None, "left", 0, 1, 0, None]
            silent.send(name, ["long"], 400, "scripted", *settings)
        wait_for(lambda: len(lm.model.calls) > 0)
        wait_for(lambda: len(turns_on("cpu")) == 0)
        assert len(lm.model.calls) < 400
        assert Visitor(url).run(rows_of(["again"], 5), "scripted")[-1].stage["status"] == "done"

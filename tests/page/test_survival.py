"""The server outlives what a model does to it."""

import asyncio
import random
import re
import threading
from collections import Counter

import pytest

from engine.requests import Limits
from engine.turns import turns_on
from tests.serving import Visitor, rows_of, served, wait_for
from tests.tiny import scripted_lm, token_ids

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


@pytest.mark.parametrize("at", [1, 3, 9], ids=["prefill", "third", "last"])
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_e5_whatever_a_model_raises_ends_its_run_only(odd, error, at):
    odd.raises, odd.at = error, at
    visitor = Visitor(odd.url)
    broken = visitor.run(rows_of(["Hi", "Ho"], 9), "scripted")[-1]
    assert broken.record.status == broken.stage["status"] == "error"
    assert [len(log.split("\n")) - 1 for log in broken.stage["logs"]] == [at - 1, at - 1]
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


def test_twenty_visitors_at_once_get_their_own_and_the_next_one_is_refused():
    """All wait behind one who holds the device; each sees its place and a bound."""
    gate = threading.Event()
    lm = scripted_lm([HELLO], before_forward=lambda _: gate.wait(60))
    limits = Limits(runs=21, run_seconds=60)
    with served(lm, limits=limits) as url:
        first = Visitor(url)
        first.join(rows_of(["first"], 3), "scripted")
        first_frames = first.frames()
        next(first_frames)
        seen, ready = {}, threading.Barrier(21)

        def visit(number):
            visitor = Visitor(url)
            visitor.join(rows_of([f"visitor {number}"], 2 + number), "scripted")
            frames = visitor.frames()
            seen[number] = [next(frame for frame in frames if "Waiting" in frame.says)]
            ready.wait(60)
            seen[number] += frames

        threads = [threading.Thread(target=visit, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        refused = Visitor(url).run(rows_of(["too many"], 3), "scripted")[-1]
        assert refused.says == (
            "21 runs are under way or waiting, as many as this host takes: try again in a minute."
        )
        gate.set()
        for thread in threads:
            thread.join(60)
        assert list(first_frames)[-1].stage["status"] == "done"
    places = Counter()
    for number, frames in seen.items():
        waiting, last = frames[0].says, frames[-1]
        told = re.fullmatch(
            r"Waiting: (\d+) runs? before yours; \d+ s so far, at most (\d+) (s|min) more\.",
            waiting,
        )
        ahead, most = int(told[1]), int(told[2]) * (60 if told[3] == "min" else 1)
        assert most == ahead * limits.run_seconds
        places[ahead] += 1
        assert last.stage["prompts"] == [f"visitor {number}"]
        assert last.record.status == "done"
        assert len(last.record.steps) == 2 + number
        assert last.record.requests[0].prompt == f"visitor {number}"
        assert 0 < last.record.queued_seconds <= most
    assert sorted(places) == list(range(1, 21))

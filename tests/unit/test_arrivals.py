"""Waits, by hand, by a simulation of every token, and by what queueing theory says of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arrivals import (
    MOST_REQUESTS,
    Load,
    checked,
    continuous,
    load_of,
    poisson,
    read_times,
    static,
)
from engine.costs import CostModel
from engine.errors import RequestError
from engine.metrics import percentile
from engine.schedules import Job
from tests.unit.prices import NO_ERROR, ROUND

PRICED = CostModel(((1, 0.03), (2, 0.04), (4, 0.05)), 0.06, 0.001, 0.0002, NO_ERROR)
ALONE = CostModel(((1, 0.5),), 1.0, 0.0, 0.0, NO_ERROR)


def load(*requests) -> Load:
    """One (arrival, prompt tokens, generated tokens) each."""
    return Load(*map(np.array, zip(*requests, strict=True)))


# By hand


def test_a_full_batch_leaves_at_once_and_the_next_when_it_is_over():
    """Requests 0 and 1 leave at 3 s: 10 s of prefill, then 2 steps of 2 s. Requests 2 and 3 have
    come long before 17 s."""
    served = static(load((1, 5, 2), (3, 5, 3), (4, 5, 1), (5, 5, 1)), ROUND, batch_size=2, window=9)
    assert served.given.tolist() == [3, 3, 17, 17]
    assert served.first.tolist() == [13, 13, 27, 27]
    assert served.last.tolist() == [15, 17, 27, 27]
    assert served.busy_seconds == 14 + 10
    assert served.waited.largest == 13
    assert served.utilisation == 24 / 27
    assert served.mean_waiting == (2 + 0 + 13 + 12) / 27


def test_a_window_sends_off_a_batch_that_is_short_of_rows():
    served = static(load((1, 5, 1), (8, 5, 1), (90, 5, 1)), ROUND, batch_size=2, window=5)
    assert served.given.tolist() == [6, 16, 95]


def test_without_a_window_a_batch_waits_until_it_is_full_or_all_have_come():
    served = static(load((1, 5, 1), (50, 5, 1), (60, 5, 1)), ROUND, batch_size=2, window=math.inf)
    assert served.given.tolist() == [50, 50, 60]
    alone = static(load((1, 5, 1), (50, 5, 1)), ROUND, batch_size=3, window=math.inf)
    assert alone.given.tolist() == [50, 50]


def test_without_patience_whoever_is_there_when_the_device_is_free_makes_the_batch():
    served = static(load((1, 5, 1), (2, 5, 1), (3, 5, 1)), ROUND, batch_size=9, window=0)
    assert served.given.tolist() == [1, 11, 11]


def test_continuous_gives_a_slot_at_the_next_forward():
    """Request 0 is read until 11 s and decodes 1 s a step. Request 1 comes at 12.5 s and is read
    from 13 to 23 s, in which request 0 has a token more; then both decode, 2 s a step, until
    request 1 ends at 25 s."""
    served = continuous(load((1, 5, 7), (12.5, 5, 2)), ROUND, slots=2)
    assert served.given.tolist() == [1, 13]
    assert served.first.tolist() == [11, 23]
    assert served.last.tolist() == [27, 25]
    assert served.busy_seconds == 26


def test_continuous_waits_while_all_slots_are_held():
    served = continuous(load((0, 5, 3), (0, 5, 1)), ROUND, slots=1)
    assert served.given.tolist() == [0, 12]


# Token by token


def token_by_token(load, costs, slots):
    """One forward after another, as the definition says."""
    waiting = list(zip(*(column.tolist() for column in load), strict=True))
    given, first, last = ([None] * len(waiting) for _ in range(3))
    held, now, newest = {}, 0.0, 0
    while newest < len(waiting) or held:
        if not held and waiting[newest][0] > now:
            now = waiting[newest][0]
        decoding = list(held)
        columns = sum(waiting[request][1] + held[request] for request in decoding)
        newcomers = []
        while newest < len(waiting) and len(held) < slots and waiting[newest][0] <= now:
            newcomers.append(newest)
            held[newest] = 0
            newest += 1
        seconds = costs.step(len(decoding)) if decoding else 0.0
        if newcomers:
            seconds = max(seconds, costs.prefill)
        seconds += sum(waiting[request][1] for request in newcomers) * costs.prompt_token
        seconds += columns * costs.column
        for request in newcomers:
            given[request] = now
        now += seconds
        for request in newcomers:
            first[request] = now
        for request in list(held):
            held[request] += 1
            if held[request] == waiting[request][2]:
                last[request] = now
                del held[request]
    return given, first, last


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=12
    ),
    st.integers(1, 4),
    st.sampled_from([PRICED, ROUND]),
)
def test_continuous_is_as_token_by_token(requests, slots, costs):
    asked = load(*sorted(requests))
    served = continuous(asked, costs, slots=slots)
    given, first, last = token_by_token(asked, costs, slots)
    assert served.given.tolist() == pytest.approx(given)
    assert served.first.tolist() == pytest.approx(first)
    assert served.last.tolist() == pytest.approx(last)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=12
    ),
    st.integers(1, 4),
    st.floats(0, 2),
)
def test_static_batches_run_one_at_a_time_step_by_step(requests, batch_size, window):
    asked = load(*sorted(requests))
    served = static(asked, PRICED, batch_size=batch_size, window=window)
    free, busy = 0.0, 0.0
    for leave in sorted(set(served.given.tolist())):
        rows = [at for at, given in enumerate(served.given) if given == leave]
        assert len(rows) <= batch_size
        assert leave >= asked.arrived[rows].max()
        assert leave >= free - 1e-9
        width = asked.prompt[rows].max()
        now = leave + PRICED.prefill + len(rows) * width * PRICED.prompt_token
        for token in range(1, asked.generated[rows].max() + 1):
            if token > 1:
                now += PRICED.step(len(rows)) + len(rows) * (width + token - 1) * PRICED.column
            for row in rows:
                if token == 1:
                    assert served.first[row] == pytest.approx(now)
                if token == asked.generated[row]:
                    assert served.last[row] == pytest.approx(now)
        free = now
        busy += now - leave
    assert served.busy_seconds == pytest.approx(busy)


# What queueing theory says


def served_alone(utilisation, requests=200_000):
    """Requests of 3 tokens, 2 s each, one at a time."""
    arrived = poisson(per_second=utilisation / 2, requests=requests, seed=7)
    ones = np.ones(requests, dtype=int)
    asked = Load(arrived, ones, 3 * ones)
    return (
        continuous(asked, ALONE, slots=1),
        static(asked, ALONE, batch_size=1, window=0),
    )


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_one_slot_is_the_queue_of_pollaczek_and_khinchin(utilisation):
    """M/D/1: a Poisson stream, one server, a constant service of s seconds. The mean wait is
    rho * s / (2 * (1 - rho))."""
    expected = utilisation * 2 / (2 * (1 - utilisation))
    for served in served_alone(utilisation):
        mean_wait = float((served.given - served.load.arrived).mean())
        assert mean_wait == pytest.approx(expected, rel=0.05)


def test_utilisation_is_the_rate_times_the_service():
    for served in served_alone(0.6):
        assert served.utilisation == pytest.approx(0.6, rel=0.02)
        throughput = len(served.given) / served.seconds
        assert served.utilisation == pytest.approx(throughput * 2)


@pytest.mark.parametrize("slots", [1, 4])
def test_little_s_law_holds_for_those_who_wait(slots):
    """How many wait, counted over time, is the rate of arrival times the mean wait."""
    jobs = [Job(0, 5, 9, 3), Job(1, 9, 9, 30), Job(2, 2, 9, 12)]
    asked = load_of(jobs, poisson(per_second=1.5 * slots, requests=5000, seed=3), seed=4)
    for served in (
        continuous(asked, PRICED, slots=slots),
        static(asked, PRICED, batch_size=slots, window=0.5),
    ):
        times = np.concatenate([asked.arrived, served.given])
        changes = np.repeat([1, -1], len(asked.arrived))
        order = np.argsort(times, kind="stable")
        waiting = changes[order].cumsum()
        over_time = (waiting[:-1] * np.diff(times[order])).sum() / served.seconds
        assert served.mean_waiting == pytest.approx(over_time)


def test_first_come_is_first_served():
    jobs = [Job(0, 5, 9, 3), Job(1, 9, 9, 30)]
    asked = load_of(jobs, poisson(per_second=4, requests=2000, seed=3), seed=4)
    for served in (
        continuous(asked, PRICED, slots=4),
        static(asked, PRICED, batch_size=4, window=0.1),
    ):
        assert (np.diff(served.given) >= 0).all()
        assert (served.given >= asked.arrived).all()
        assert (served.first > served.given).all()
        assert (served.last >= served.first).all()


def test_spreads_are_of_nearest_ranks():
    asked = load_of([Job(0, 5, 9, 3)], poisson(per_second=4, requests=321, seed=3), seed=4)
    served = continuous(asked, PRICED, slots=2)
    waits = (served.given - asked.arrived).tolist()
    ranks = [percentile(waits, percent) for percent in (50, 90, 99)]
    assert served.waited == (321, *ranks, max(waits))


# What arrives


def test_poisson_arrivals_are_seeded_and_of_their_rate():
    times = poisson(per_second=5, requests=100_000, seed=1)
    assert (times == poisson(per_second=5, requests=100_000, seed=1)).all()
    assert (times != poisson(per_second=5, requests=100_000, seed=2)).any()
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps.std() == pytest.approx(0.2, rel=0.02)


def test_lengths_are_drawn_together_and_seeded():
    jobs = [Job(0, 5, 9, 3), Job(1, 9, 9, 30)]
    asked = load_of(jobs, np.arange(1000.0), seed=1)
    drawn = set(zip(asked.prompt.tolist(), asked.generated.tolist(), strict=True))
    assert drawn == {(5, 3), (9, 30)}
    again = load_of(jobs, np.arange(1000.0), seed=1)
    assert all((a == b).all() for a, b in zip(asked, again, strict=True))


@pytest.mark.parametrize(
    "text", ["0\n0.5\n\n 2 \n", "[0, 0.5, 2.0]", "\n[0,\n0.5, 2]", "\ufeff0\n0.5\n2"]
)
def test_times_are_read_from_lines_or_json(text):
    assert read_times(text).tolist() == [0.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There are no arrival times."),
        ("1\nsoon\n3", "Line 2 of the arrival times is no number: soon"),
        ("[1, 2", "begin like a JSON list, but are none."),
        ('[1, "2"]', "must be a JSON list of numbers."),
        ("[true]", "must be a JSON list of numbers."),
        ("3\n1\n", "Arrival 2 comes before arrival 1: put the times in order."),
        ("1\nnan", "Arrival 2 must be from 0 to 1e+09 s."),
        ("-1", "Arrival 1 must be from 0 to 1e+09 s."),
        ("[0, Infinity]", "Arrival 2 must be from 0 to 1e+09 s."),
        ("[1" + "0" * 5000 + "]", "begin like a JSON list, but are none."),
        ("[1" + "0" * 400 + "]", "An arrival time is larger than 1e+09 s."),
    ],
)
def test_times_that_can_not_be_are_refused_in_a_sentence(text, sentence):
    with pytest.raises(RequestError) as refused:
        read_times(text)
    assert sentence in str(refused.value)


def test_more_than_a_million_are_refused():
    with pytest.raises(RequestError, match="the limit is 1,000,000"):
        checked(np.zeros(MOST_REQUESTS + 1))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda: poisson(per_second=0, requests=9, seed=0), "per second must be more than 0"),
        (lambda: poisson(per_second=math.nan, requests=9, seed=0), "per second must be more"),
        (lambda: poisson(per_second=1, requests=0, seed=0), "from 1 to 1,000,000"),
        (lambda: poisson(per_second=1e-12, requests=9, seed=0), "must be from 0 to"),
        (lambda: load_of([], np.zeros(1), seed=0), "no requests to draw from"),
        (lambda: static(load((0, 1, 1)), ROUND, batch_size=0, window=1), "at least 1 slot"),
        (lambda: static(load((0, 1, 1)), ROUND, batch_size=1, window=-1), "0 seconds or more"),
        (lambda: continuous(load((0, 1, 1)), ROUND, slots=0), "at least 1 slot"),
    ],
)
def test_what_can_not_be_served_is_refused_in_a_sentence(asked, sentence):
    with pytest.raises(RequestError, match=sentence):
        asked()

"""How many replicas hold how many requests: by hand, by queueing theory, and as a table."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engine import comparison, runfile, sweepfile
from engine.__main__ import main
from engine.arrivals import Load, load_of, poisson, static
from engine.capacity import (
    MOST_PER_HOUR,
    check_measured,
    plan,
    seconds_per_request,
    simulated,
    times_of,
)
from engine.costs import CostModel
from engine.errors import RecordError, RequestError
from engine.measured import jobs_like, read_measured
from tests.unit.comparisons import long_comparison
from tests.unit.prices import NO_ERROR, ROUND
from tests.unit.sweeps import WHOLE

PRICED = CostModel(((1, 0.03), (2, 0.04), (4, 0.05), (8, 0.07)), 0.06, 0.001, 0.0, NO_ERROR)
JOBS = jobs_like([10, 30, 5, 20], [15, 10, 20, 12])


def load(*requests) -> Load:
    """One (arrival, prompt tokens, generated tokens) each."""
    return Load(*map(np.array, zip(*requests, strict=True)))


# Replicas


def test_a_batch_goes_to_the_replica_that_is_free_first():
    """Two batches of two begin at 1 and 3 s, and are over at 13 s and 15 s; the third waits for the
    first of them, the fourth for the second."""
    served = static(
        load(*((at, 5, 2) for at in (0, 1, 2, 3, 4, 5, 6, 7))),
        ROUND,
        batch_size=2,
        window=9,
        replicas=2,
    )
    assert served.given.tolist() == [1, 1, 3, 3, 13, 13, 15, 15]
    assert served.last.tolist() == [13, 13, 15, 15, 25, 25, 27, 27]
    assert served.batches == 4
    assert served.busy_seconds == 4 * 12
    assert served.utilisation == 48 / (2 * 27)


def test_a_free_replica_does_not_shorten_the_window():
    served = static(
        load((0, 5, 1), (1, 5, 1), (3, 5, 1)), ROUND, batch_size=4, window=2, replicas=3
    )
    assert served.given.tolist() == [2, 2, 5]


def test_who_comes_while_all_replicas_are_busy_waits_for_the_first_that_ends():
    requests = load((0, 5, 30), (0, 5, 1), (1, 5, 1), (2, 5, 1))
    served = static(requests, ROUND, batch_size=1, window=0, replicas=2)
    assert served.given.tolist() == [0, 0, 10, 20]


def test_one_replica_is_what_it_always_was():
    requests = load_of(JOBS, poisson(per_second=1.5, requests=500, seed=3), seed=3)
    one = static(requests, PRICED, batch_size=4, window=0.2)
    again = static(requests, PRICED, batch_size=4, window=0.2, replicas=1)
    assert (one.given == again.given).all()
    assert one.replicas == 1


def test_more_replicas_make_nobody_wait_longer_for_a_batch_of_one():
    requests = load_of(JOBS, poisson(per_second=6, requests=2000, seed=3), seed=3)
    waits = [
        static(requests, PRICED, batch_size=1, window=0, replicas=replicas).given
        for replicas in (2, 3, 5, 9)
    ]
    assert all((more <= fewer).all() for fewer, more in pairwise(waits))


@pytest.mark.parametrize(("replicas", "per_second"), [(1, 0.7), (3, 1.8), (8, 5.6)])
def test_waits_are_those_of_erlangs_formula(replicas, per_second):
    """Batches of one whose lengths are exponential are an M/M/c queue: the mean wait is
    C(c, a) / (c mu - lambda), with C the probability to wait (A. K. Erlang, 1917)."""
    requests = 200_000
    rng = np.random.default_rng(5)
    tokens = np.ceil(rng.exponential(1000, requests)).astype(int)  # of 1 ms each: 1 s on average
    costs = CostModel(((1, 0.001),), 0.001, 0.0, 0.0, NO_ERROR)
    arrived = poisson(per_second=per_second, requests=requests, seed=6)
    served = static(
        Load(arrived, np.ones(requests, dtype=int), tokens),
        costs,
        batch_size=1,
        window=0,
        replicas=replicas,
    )
    offered = per_second
    last = offered**replicas / math.factorial(replicas) * replicas / (replicas - offered)
    waiting = last / (sum(offered**k / math.factorial(k) for k in range(replicas)) + last)
    assert (served.given - arrived).mean() == pytest.approx(
        waiting / (replicas - per_second), rel=0.05
    )
    assert served.utilisation == pytest.approx(per_second / replicas, rel=0.02)


def test_replicas_are_counted_from_one():
    with pytest.raises(RequestError, match="at least 1 replica"):
        static(load((0, 5, 1)), ROUND, batch_size=1, window=0, replicas=0)


# The search


def test_a_lone_request_waits_for_the_window_and_its_prefill():
    """With one request an hour nobody shares a batch, and nobody waits for one."""
    setup = simulated(
        jobs_like([20], [3]), PRICED, per_hour=1, batch_size=8, window=0.5, replicas=1
    )
    assert setup.times.first_token_p95 == pytest.approx(0.5 + 0.06 + 20 * 0.001)
    assert setup.times.latency_p95 == pytest.approx(0.5 + 0.06 + 20 * 0.001 + 2 * 0.03)
    assert setup.rows == pytest.approx(1, abs=0.01)


def test_seconds_of_a_request_in_a_full_batch():
    each = seconds_per_request(jobs_like([20], [3]), PRICED, batch_size=4)
    assert each == pytest.approx((0.06 + 4 * 20 * 0.001 + 2 * 0.05) / 4)


def test_the_first_requests_find_all_free_and_are_not_counted():
    served = static(load((0, 5, 1), (0, 5, 1), (0, 5, 1), (0, 5, 1)), ROUND, batch_size=1, window=0)
    assert times_of(served).first_token_median == 20
    assert times_of(served, settled=0.5).first_token_median == 30
    assert times_of(served).first_token_p95 == 40


@pytest.mark.parametrize("per_hour", [1, 600, 20_000, MOST_PER_HOUR])
def test_one_replica_less_is_late(per_hour):
    found = plan(JOBS, PRICED, per_hour=per_hour, ttft_seconds=1.0).best
    assert found.times.first_token_p95 <= 1.0
    least = per_hour / 3600 * seconds_per_request(JOBS, PRICED, batch_size=found.batch_size)
    assert found.replicas > least
    assert found.busy < 1
    if found.replicas - 1 > least:
        setup = simulated(
            JOBS,
            PRICED,
            per_hour=per_hour,
            batch_size=found.batch_size,
            window=found.window,
            replicas=found.replicas - 1,
        )
        assert setup.times.first_token_p95 > 1.0


def test_a_million_requests_an_hour_fill_their_batches():
    found = plan(JOBS, PRICED, per_hour=MOST_PER_HOUR, ttft_seconds=2.0).best
    assert found.batch_size == 8
    assert found.rows > 7.5


def test_of_as_many_replicas_the_faster_setup_is_taken():
    found = plan(JOBS, PRICED, per_hour=10, ttft_seconds=5.0).best
    assert (found.replicas, found.window) == (1, 0)


def test_a_limit_below_a_prefill_is_held_by_nothing():
    planned = plan(JOBS, PRICED, per_hour=10, ttft_seconds=0.05)
    assert planned.best is None
    assert planned.alone == pytest.approx(0.06 + 16.25 * 0.001)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"per_hour": 0}, "more than 0 and at most 1,000,000"),
        ({"per_hour": MOST_PER_HOUR + 1}, "more than 0 and at most 1,000,000"),
        ({"per_hour": math.nan}, "more than 0 and at most 1,000,000"),
        ({"ttft_seconds": 0.0}, "more than 0 seconds"),
        ({"ttft_seconds": math.inf}, "more than 0 seconds"),
        ({"batch_sizes": [16]}, "A batch of 16 rows was not measured: the largest had 8."),
        ({"batch_sizes": [0]}, "A batch of 0 rows was not measured"),
    ],
)
def test_what_can_t_be_planned_is_refused(asked, said):
    with pytest.raises(RequestError, match=said):
        plan(JOBS, PRICED, **{"per_hour": 10, "ttft_seconds": 1.0} | asked)


def test_the_largest_batch_that_was_measured_may_be_asked_for():
    check_measured(8, PRICED)


# From a file, in a shell


def saved():
    compared = long_comparison(requests=8, tokens=20, slots=4)
    return {
        "comparison": comparison.dumps(compared),
        "run": runfile.dumps(next(r for r in compared.runs if r.settings.engine == "static")),
        "sweep": sweepfile.dumps(WHOLE),
    }


@pytest.mark.parametrize("kind", ["comparison", "run", "sweep"])
def test_what_was_measured_is_read_from_each_kind_of_file(kind):
    measured = read_measured(saved()[kind].encode())
    assert measured.jobs
    assert measured.costs.steps
    assert measured.model.name


@pytest.mark.parametrize("data", [b"no", b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_what_was_not_saved_here_is_refused(data):
    with pytest.raises(RecordError):
        read_measured(data)


def test_a_sweep_can_t_tell_columns_from_steps():
    """All steps of a size hold as much on average: rows would get the price of what they hold."""
    costs = read_measured(saved()["sweep"].encode()).costs
    assert costs.column == 0
    assert [rows for rows, _ in costs.steps] == [1, 2, 4, 8]
    assert all(price > 0 for _, price in costs.steps)
    assert "not known apart" in " ".join(costs.assumed)


def test_a_sweep_without_a_size_has_no_prices():
    with pytest.raises(RequestError, match="No decode step was measured"):
        read_measured(sweepfile.dumps(replace(WHOLE, sizes=(), status="stopped")).encode())


def test_the_shell_tells_a_line_for_each_number_of_requests(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    path.write_text(saved()["sweep"])
    arguments = ["capacity", path, "--per-hour", 100, 1_000_000, "--ttft", 30]
    assert main([*map(str, arguments)]) == 0
    out = capsys.readouterr().out
    assert "computed: " in out
    _, table, _ = out.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["100", "1,000,000"]
    assert "Seconds are computed from" in out
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.json", "--per-hour", "9"), "nowhere.json can't be read: No such file"),
        (("SAVED", "--per-hour", "1000001"), "at most 1,000,000"),
        (("SAVED", "--per-hour", "9", "--batch-size", "64"), "64 rows was not measured"),
    ],
)
def test_the_shell_refuses_in_a_sentence(tmp_path, capsys, arguments, said):
    path = tmp_path / "sweep.json"
    path.write_text(saved()["sweep"])
    given = [str(path) if argument == "SAVED" else argument for argument in arguments]
    assert main(["capacity", *given]) == 2
    assert said in capsys.readouterr().err

"""The best batch size of a sweep made by hand: 10 tokens a row; a run of 1, 2, 4 and 8 rows takes
1, 1.25, 2 and 4 s, and its TTFT and TPOT are a tenth of that."""

from dataclasses import replace

import pytest

from engine.errors import RequestError
from engine.planner import Limits, Memory, plan, points_of, row_bytes
from engine.sweep import Series
from tests.unit.sweeps import UNDER_WAY, WHOLE, sized


def test_every_size_is_a_point_and_those_between_are_computed():
    points = points_of(WHOLE)
    assert [(point.batch_size, point.computed) for point in points] == [
        (1, False),
        (2, False),
        (3, True),
        (4, False),
        (5, True),
        (6, True),
        (7, True),
        (8, False),
    ]


def test_a_measured_point_has_the_measured_figures():
    for point in points_of(WHOLE):
        if not point.computed:
            engine = WHOLE.size(point.batch_size).engine
            assert point.ttft_seconds == engine.ttft.median
            assert point.tpot_seconds == engine.tpot.median
            assert point.tokens_per_second == pytest.approx(engine.tokens_per_second.median)


def test_between_two_sizes_times_are_on_a_line():
    """Three rows are half way between 1.25 and 2 s: 30 tokens in 1.625 s."""
    three = points_of(WHOLE)[2]
    assert three.ttft_seconds == three.tpot_seconds == pytest.approx(0.1625)
    assert three.tokens_per_second == pytest.approx(30 / 1.625)


def test_without_limits_the_best_is_the_size_of_the_highest_throughput():
    """10, 16, 20 and 20 tok/s: of two as good, the smaller. Twice 2 rows bring a quarter more; 3
    rows are at 18.5 and 6, half way between 2 and 4 s, at 20."""
    found = plan(WHOLE)
    assert (found.best.batch_size, found.bound) == (4, "saturation")
    assert found.limits == Limits(memory=None, latency=None, saturation=3)


@pytest.mark.parametrize("limit", ["tpot_seconds", "ttft_seconds"])
def test_a_limit_on_latency_ends_the_batch(limit):
    """0.17 s are kept by 3 rows (0.1625 s) and not by 4 (0.2 s)."""
    found = plan(WHOLE, **{limit: 0.17})
    assert (found.best.batch_size, found.best.computed, found.bound) == (3, True, "latency")
    assert found.limits.latency == 3


def test_a_limit_of_just_what_was_measured_is_kept():
    assert plan(WHOLE, tpot_seconds=WHOLE.size(2).engine.tpot.median).best.batch_size == 2


def test_memory_ends_the_batch():
    found = plan(WHOLE, memory=Memory(bytes_per_row=1000, free_bytes=2999))
    assert (found.best.batch_size, found.bound, found.limits.memory) == (2, "memory", 2)


def test_of_two_limits_the_tighter_ends_the_batch():
    memory = Memory(1000, 2999)
    assert plan(WHOLE, tpot_seconds=0.11, memory=memory).bound == "latency"
    assert plan(WHOLE, tpot_seconds=0.17, memory=memory).bound == "memory"


def test_memory_for_more_than_was_measured_is_no_bound():
    found = plan(WHOLE, memory=Memory(1, 10**6))
    assert (found.limits.memory, found.bound) == (10**6, "saturation")


def test_while_throughput_grows_the_largest_measured_is_the_best_known():
    found = plan(replace(WHOLE, sizes=tuple(sized(rows) for rows in (1, 2, 4))))
    assert (found.best.batch_size, found.bound, found.limits.saturation) == (4, "measured", None)


def test_where_no_size_will_do_there_is_none():
    slow = plan(WHOLE, ttft_seconds=0.01)
    assert (slow.best, slow.bound, slow.limits.latency) == (None, "latency", 0)
    full = plan(WHOLE, memory=Memory(1000, 999))
    assert (full.best, full.bound, full.limits.memory) == (None, "memory", 0)


def test_a_sweep_under_way_is_planned_with_what_it_has():
    assert [point.batch_size for point in points_of(UNDER_WAY)] == [1, 2, 3, 4]


def test_a_sweep_without_times_is_refused():
    for sizes in ((), (replace(sized(1), engine=Series("engine")),)):
        with pytest.raises(RequestError, match="timed no batch size"):
            plan(replace(WHOLE, sizes=sizes))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"ttft_seconds": 0.0}, "time to first token must be more than 0"),
        ({"tpot_seconds": float("nan")}, "time per token must be more than 0"),
        ({"memory": Memory(0, 10)}, "at least 1 byte"),
    ],
)
def test_a_limit_that_is_none_is_refused(asked, sentence):
    with pytest.raises(RequestError, match=sentence):
        plan(WHOLE, **asked)


def test_a_row_holds_its_prompt_and_what_it_generated_but_the_last_token():
    assert row_bytes(WHOLE) is None
    told = replace(WHOLE, model=replace(WHOLE.model, kv_bytes_per_token=100))
    assert row_bytes(told) == 100 * (5 + 10 - 1)

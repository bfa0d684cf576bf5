"""Lanes of recorded runs, worked out on paper and held against the figures of a run."""

from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes import Span, lane_of, speed_up
from engine.metrics import Spread, Waste, measure, percentile, spread
from engine.run import Batch, KVBytes, Request, Run, Settings, Step
from tests.unit.paper import INFO, WORKED, cut, make_run

FORWARD = 0.25


def continuous_run(lengths, slots) -> Run:
    """A continuous run on paper, forward by forward: one (prompt tokens, generated tokens) for each
    request. Every forward takes as long, and a token holds one byte."""
    requests = [Request(index, (1,) * prompt, new) for index, (prompt, new) in enumerate(lengths)]
    started: dict[int, float] = {}
    made: list[Step] = []
    done = [0] * len(lengths)
    for clock in count(0.0, FORWARD):
        held = [index for index in started if done[index] < lengths[index][1]]
        waiting = [index for index in range(len(lengths)) if index not in started]
        held += waiting[: slots - len(held)]
        if not held:
            break
        for index in held:
            started.setdefault(index, clock)
            prompt, new = lengths[index]
            done[index] += 1
            made.append(
                Step(
                    batch=index,
                    forward=done[index],
                    phase="prefill" if done[index] == 1 else "decode",
                    tokens=(65,),
                    pieces=("A",),
                    ends=("length" if done[index] == new else None,),
                    started=clock,
                    seconds=FORWARD,
                    kv_bytes=KVBytes(live=prompt + done[index] - 1, padding=0, dead=0),
                )
            )
    return Run(
        model=INFO,
        settings=Settings("continuous", slots, "left", chat_template=False),
        requests=tuple(requests),
        batches=tuple(
            Batch(index, (index,), (request.prompt,), "left", started[index])
            for index, request in enumerate(requests)
        ),
        steps=tuple(made),
        texts=tuple("A" * new for _, new in lengths),
        started_at="2025-01-01T00:00:00+00:00",
        status="done",
    )


TUTORIAL = continuous_run([(10, 15), (30, 10), (5, 20), (20, 12)], 2)


def by_slot(lane):
    return {
        slot: sorted((span for span in lane.spans if span.slot == slot), key=lambda s: s.start)
        for slot in range(lane.slots)
    }


# Static and serial runs


def test_the_worked_example_as_spans():
    """Prefill until 0.5 s, then 9 forwards of 1/6 s; row 0 ends with its fourth token."""
    lane = lane_of(WORKED)
    spans = [Span(*span[:3], *(pytest.approx(at) for at in span[3:])) for span in lane.spans]
    assert spans == [
        (0, 0, "prefill", 0.0, 0.5),
        (0, 0, "active", 0.5, 1.0),
        (0, 0, "idle", 1.0, 2.0),
        (1, 1, "prefill", 0.0, 0.5),
        (1, 1, "active", 0.5, 2.0),
        (2, 2, "prefill", 0.0, 0.5),
        (2, 2, "active", 0.5, 2.0),
    ]
    assert (lane.name, lane.computed, lane.slots, lane.error) == ("static", False, 3, None)


def test_the_worked_example_in_figures():
    figures = lane_of(WORKED).figures
    assert figures.wall_seconds == pytest.approx(2.0)
    assert (figures.forwards, figures.generated_tokens) == (10, 24)
    assert figures.output_tokens_per_second == pytest.approx(12.0)
    assert figures.first_token == Spread(3, *[0.5] * 4)
    assert figures.latency == Spread(3, *[pytest.approx(2.0)] * 4)
    assert (figures.padding, figures.idle) == (Waste(16, 36), Waste(6, 30))


def test_waiting_for_the_batch_ahead_is_in_first_token_and_latency():
    lane = lane_of(make_run([[(3, 2)], [(3, 2)]], prefill=1.0, decode=1.0))
    assert lane.figures.first_token == Spread(2, 1.0, 3.0, 3.0, 3.0)
    assert lane.figures.latency == Spread(2, 2.0, 4.0, 4.0, 4.0)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_a_lane_and_the_figures_of_its_run_agree_at_every_step(batches, data):
    run = make_run(batches, pause=0.1)
    run = cut(run, data.draw(st.integers(0, len(run.steps))))
    lane, figures = lane_of(run).figures, measure(run)
    assert lane.wall_seconds == figures.wall_seconds
    assert lane.generated_tokens == figures.generated_tokens
    assert lane.output_tokens_per_second == figures.output_tokens_per_second
    assert (lane.padding, lane.idle) == (figures.padding, figures.idle)
    assert lane.peak_kv_bytes == figures.peak_kv_bytes
    assert lane.first_token.count == figures.timed_rows
    assert lane.latency.count == sum(row.end == "length" for row in figures.rows)


def test_a_run_that_has_not_begun_is_an_empty_lane():
    lane = lane_of(cut(WORKED, 0))
    assert lane.spans == ()
    assert lane.figures.output_tokens_per_second is None
    assert lane.figures.first_token == lane.figures.latency == Spread()


def test_under_way_a_row_is_active_or_idle_up_to_the_newest_token():
    spans = {(span.request, span.state): span.end for span in lane_of(cut(WORKED, 6)).spans}
    now = WORKED.steps[5].finished
    assert spans[0, "idle"] == spans[1, "active"] == spans[2, "active"] == now


def test_a_broken_run_says_why():
    broken = replace(cut(WORKED, 3, "error"), error="Out of memory.")
    assert lane_of(broken).error == "Out of memory."
    assert lane_of(broken).figures.latency == Spread()


def test_a_long_run_has_few_spans():
    run = make_run([[(3, 512 + row) for row in range(8)]])
    assert len(lane_of(run).spans) <= 3 * 8


# Continuous runs


def test_a_freed_slot_is_taken_by_the_next_request():
    """15, 10, 20 and 12 tokens in 2 slots: request 2 follows request 1 after 10 forwards, and
    request 3 follows request 0 after 15."""
    lane = lane_of(TUTORIAL)
    assert [[span.request for span in spans] for spans in by_slot(lane).values()] == [
        [0, 0, 3, 3],
        [1, 1, 2, 2],
    ]
    starts = {span.request: span.start / FORWARD for span in lane.spans if span.state == "prefill"}
    assert starts == {0: 0, 1: 0, 2: 10, 3: 15}
    assert lane.figures.wall_seconds == 30 * FORWARD


def test_a_forward_of_several_requests_counts_once():
    figures = lane_of(TUTORIAL).figures
    assert (figures.forwards, figures.generated_tokens) == (30, 57)


def test_requests_of_a_forward_hold_their_cache_beside_one_another():
    """After 15 forwards request 0 holds 10 + 14 and request 2, at its fifth token, 5 + 4; after 10,
    19 and 39."""
    assert lane_of(TUTORIAL).figures.peak_kv_bytes == 19 + 39


def test_nothing_is_padded_or_idle():
    figures = lane_of(TUTORIAL).figures
    assert (figures.padding, figures.idle) == (Waste(0, 65), Waste(0, 57))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.data(),
)
def test_no_slot_holds_two_requests(lengths, slots, data):
    whole = continuous_run(lengths, slots)
    lane = lane_of(cut(whole, data.draw(st.integers(0, len(whole.steps)))))
    assert {span.slot for span in lane.spans} <= set(range(lane.slots))
    for spans in by_slot(lane).values():
        for before, after in pairwise(spans):
            assert before.end <= after.start


# Over lanes


def test_speed_up_is_wall_over_wall():
    serial, static = (lane_of(make_run([[(3, 4)] * rows])) for rows in (2, 2))
    assert speed_up(static, serial) == 1.0
    twice = make_run([[(3, 4)], [(3, 4)]])
    assert speed_up(static, lane_of(twice)) == pytest.approx(2.0)
    assert speed_up(lane_of(cut(WORKED, 0)), serial) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150))
def test_a_spread_is_of_nearest_ranks(values):
    found = spread(sorted(values))
    assert found == (len(values), *(percentile(values, p) for p in (50, 90, 99)), max(values))

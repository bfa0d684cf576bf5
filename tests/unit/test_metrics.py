"""Figures of hand-made runs, worked out on paper."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import runfile
from engine.metrics import (
    Spread,
    Waste,
    columns,
    idle_waste,
    measure,
    padding_waste,
    percentile,
    rows,
)
from engine.requests import make_requests
from engine.run import KVBytes
from engine.static import StaticBatchEngine
from tests import record
from tests.tiny import scripted_lm
from tests.unit.paper import WORKED, cut, make_run, with_steps

# The worked example


def test_c5_prefill_waste_and_prompt_rate():
    figures = measure(WORKED)
    assert figures.padding == Waste(16, 36)
    assert figures.padding.fraction == pytest.approx(0.444, abs=5e-4)
    assert figures.prompt_tokens == 20
    assert figures.prefill_seconds == 0.5
    assert figures.prompt_tokens_per_second == pytest.approx(40.0)


def test_c4_output_rate_counts_neither_pads_nor_idle_slots():
    figures = measure(WORKED)
    assert figures.generated_tokens == 24
    assert figures.wall_seconds == pytest.approx(2.0)
    assert figures.output_tokens_per_second == pytest.approx(12.0)
    assert figures.idle == Waste(6, 30)
    assert figures.idle.fraction == pytest.approx(0.2)


def test_c6_decode_rate_is_decode_tokens_over_decode_time():
    figures = measure(WORKED)
    assert figures.decode_seconds == pytest.approx(1.5)
    assert figures.decode_tokens_per_second == pytest.approx(14.0)


def test_ttft_and_tpot_of_each_row():
    table = rows(WORKED)
    assert [row.generated for row in table] == [4, 10, 10]
    assert [row.prompt_tokens for row in table] == [3, 5, 12]
    assert [row.waited for row in table] == [0.0] * 3
    assert [row.ttft for row in table] == [0.5] * 3
    # Row 0 is timed by its own last token, not the batch's.
    assert table[0].last_token_at == pytest.approx(0.5 + 3 * 1.5 / 9)
    assert [row.tpot for row in table] == pytest.approx([1.5 / 9] * 3)
    assert measure(WORKED).mean_tpot == pytest.approx(1.5 / 9)


def test_tpot_is_the_rows_own_when_steps_differ_in_length():
    run = with_steps(
        WORKED,
        lambda step: (
            {"started": 0.5 + (step.forward - 2) ** 2, "seconds": 2 * step.forward - 3}
            if step.forward > 1
            else {}
        ),
    )
    # Token k comes at 0.5 + (k - 1) ** 2 seconds.
    assert [row.tpot for row in rows(run)] == [3.0, 9.0, 9.0]


def test_c2_a_row_of_one_token_has_no_tpot_and_is_left_out_of_the_mean():
    run = make_run([[(3, 1), (5, 10)]], decode=0.25)
    assert [row.tpot for row in rows(run)] == [None, 0.25]
    assert measure(run).mean_tpot == 0.25


@pytest.mark.parametrize(("status", "end"), [("stopped", "cancelled"), ("error", "error")])
def test_c3_before_the_first_token_nothing_is_measured(status, end):
    run = cut(WORKED, 0, status)
    figures = measure(run)
    assert [(row.ttft, row.tpot, row.end) for row in rows(run)] == [(None, None, end)] * 3
    assert figures.mean_ttft is None
    assert figures.mean_tpot is None
    assert figures.waited == figures.ttft == figures.tpot == figures.decode_steps == Spread()
    assert figures.device_seconds is None
    assert figures.output_tokens_per_second is None
    assert figures.decode_tokens_per_second is None
    assert figures.prompt_tokens_per_second is None
    assert figures.padding == figures.idle == Waste(0, 0)
    assert figures.padding.fraction is figures.idle.fraction is None


def test_c3_a_batch_that_was_never_reached_is_in_no_statistic():
    run = cut(make_run([[(3, 2)], [(7, 2)]], decode=0.25), 2, "stopped")
    assert [row.ttft for row in rows(run)] == [0.5, None]
    assert [row.waited for row in rows(run)] == [0.0, None]
    figures = measure(run)
    assert figures.mean_ttft == 0.5
    assert figures.prompt_tokens == 3
    assert len(figures.rows) == 2


def test_rows_that_had_ended_keep_their_reason_in_a_stopped_run():
    assert [row.end for row in rows(cut(WORKED, 5, "stopped"))] == ["length", *["cancelled"] * 2]
    assert [row.end for row in rows(cut(WORKED, 5))] == ["length", None, None]


def test_with_one_column_nothing_was_decoded():
    figures = measure(make_run([[(3, 1), (5, 1)]]))
    assert figures.idle.fraction is None
    assert figures.decode_tokens_per_second is None
    assert figures.output_tokens_per_second == 4.0


# Time


@pytest.mark.parametrize(
    ("milliseconds", "percent", "answer"),
    [
        ([10, 20, 30], 99, 30),
        ([30, 10, 20], 50, 20),
        ([10, 20, 30], 34, 20),
        ([10, 20, 30], 33, 10),
        (range(1, 101), 90, 90),
        (range(1, 101), 99, 99),
        ([7], 1, 7),
        ([7], 99, 7),
        ([], 99, None),
    ],
)
def test_c11_a_percentile_is_the_nearest_rank(milliseconds, percent, answer):
    assert percentile(milliseconds, percent) == answer


@given(st.lists(st.floats(0, 1e3), min_size=1), st.integers(1, 100))
def test_c11_no_smaller_value_has_as_many_at_or_below_it(values, percent):
    answer = percentile(values, percent)
    at_or_below = sum(value <= answer for value in values)
    below = sum(value < answer for value in values)
    assert answer in values
    assert (
        Fraction(below, len(values)) < Fraction(percent, 100) <= Fraction(at_or_below, len(values))
    )


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_there_is_no_other_percentile(percent):
    with pytest.raises(ValueError, match=f"percentile {percent}"):
        percentile([1.0], percent)


def test_c11_the_spread_of_the_decode_steps_leaves_the_prefill_out():
    run = with_steps(
        make_run([[(3, 4)]]), lambda step: {"seconds": [9.0, 0.03, 0.01, 0.02][step.forward - 1]}
    )
    assert measure(run).decode_steps == Spread(3, 0.02, 0.03, 0.03, 0.03)
    assert measure(cut(run, 2)).decode_steps == Spread(1, 0.03, 0.03, 0.03, 0.03)
    assert measure(cut(run, 1)).decode_steps == Spread()


def test_first_tokens_and_paces_are_spread_over_the_rows_that_have_them():
    figures = measure(make_run([[(2, 3), (2, 1)], [(4, 2)]], prefill=0.5, decode=0.25, pause=1.0))
    assert figures.waited == Spread(3, 0.0, 2.0, 2.0, 2.0)
    assert figures.ttft == Spread(3, 0.5, 0.5, 0.5, 0.5)
    assert figures.tpot == Spread(2, 0.25, 0.25, 0.25, 0.25)
    before_the_second_batch = cut(make_run([[(2, 3)], [(4, 2)]]), 3)
    assert measure(before_the_second_batch).ttft.count == 1


def test_what_no_forward_took_is_told_apart():
    figures = measure(make_run([[(2, 3)], [(4, 2)]], prefill=0.5, decode=0.25, pause=0.125))
    assert figures.between_seconds == 0.125
    assert figures.wall_seconds == (
        figures.prefill_seconds + figures.decode_seconds + figures.between_seconds
    )
    third = make_run([[(2, 9)]], prefill=0.1, decode=0.3)  # adds up to a hair more than it took
    assert measure(third).between_seconds == pytest.approx(0, abs=1e-12)
    assert all(measure(cut(third, k)).between_seconds >= 0 for k in range(10))


def test_the_wait_in_line_comes_before_the_wall_time():
    figures = measure(replace(WORKED, queued_seconds=3.0))
    assert figures.queued_seconds == 3.0
    assert figures == replace(measure(WORKED), queued_seconds=3.0)


def test_device_time_is_told_only_where_it_was_measured_throughout():
    on_device = with_steps(WORKED, lambda step: {"device_seconds": 0.125})
    assert measure(on_device).device_seconds == 1.25
    assert measure(cut(on_device, 2)).device_seconds == 0.25
    assert measure(WORKED).device_seconds is None
    in_part = with_steps(
        WORKED, lambda step: {"device_seconds": 0.125 if step.forward > 1 else None}
    )
    assert measure(in_part).device_seconds is None


def test_c7_steps_last_until_their_tokens_are_there_and_add_up_to_the_wall_time():
    delay = 0.05
    lm = scripted_lm([[65]], seconds=delay)
    run = StaticBatchEngine(lm, batch_size=2).run(make_requests(["a", "b", "c"], max_new_tokens=8))
    figures = measure(run)
    assert len(run.steps) == 16
    assert min(step.seconds for step in run.steps) >= delay
    assert figures.between_seconds <= 0.02 * figures.wall_seconds


def test_c8_a_recorded_run_was_warmed_up_in_its_own_shape(monkeypatch, tmp_path):
    asked = []

    def run(requests):
        asked.append(requests)
        return replace(WORKED, texts=(f"run {len(asked)}", "", ""))

    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(runfile, "save", lambda run, path: path.write_text(run.texts[0]))
    record._record("name", SimpleNamespace(run=run), ["the requests"])
    assert asked == [["the requests"]] * 2
    assert (tmp_path / "name.json").read_text() == "run 2"


# Several batches


def test_wastes_of_several_batches_are_sums_over_sums():
    run = make_run([[(3, 4), (5, 10)], [(12, 1), (2, 3)], [(9, 2)]])
    figures = measure(run)
    assert figures.padding == Waste(2 + 10 + 0, 10 + 24 + 9)
    assert figures.idle == Waste(6 + 2 + 0, 20 + 6 + 2)
    assert figures.prompt_tokens == 31
    assert figures.generated_tokens == 20


def test_rates_of_several_batches_use_all_tokens_and_all_time():
    figures = measure(make_run([[(2, 3), (2, 1)], [(4, 2)]], prefill=0.5, decode=0.25, pause=1.0))
    # Batch 0 takes 0.5 + 2 * 0.25, then 1.0 passes, then 0.5 + 0.25.
    assert figures.wall_seconds == pytest.approx(2.75)
    assert figures.prefill_seconds == pytest.approx(1.0)
    assert figures.decode_seconds == pytest.approx(0.75)
    assert figures.output_tokens_per_second == pytest.approx(6 / 2.75)
    assert figures.decode_tokens_per_second == pytest.approx(3 / 0.75)
    assert figures.prompt_tokens_per_second == pytest.approx(8.0)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.randoms(),
)
def test_rows_and_their_statistics_are_those_of_the_tokens(batches, chance):
    """Each row told apart, without what the rows of a forward have in common."""
    run = with_steps(make_run(batches), lambda _: {"seconds": chance.uniform(0.01, 0.1)})
    run = cut(run, chance.randint(0, len(run.steps)), chance.choice(["running", "stopped"]))
    table = rows(run)
    for row in table:
        mine = [
            (step, step.ends[row.slot])
            for step in run.steps
            if step.batch == row.batch.index and step.tokens[row.slot] is not None
        ]
        times = [step.finished for step, _ in mine]
        assert row.generated == len(mine)
        assert (row.first_token_at, row.last_token_at) == (
            (times[0], times[-1]) if times else (None, None)
        )
        ended = mine[-1][1] if mine else None
        assert row.end == (ended or ("cancelled" if run.status == "stopped" else None))
    figures, paces = measure(run), sorted(row.tpot for row in table if row.tpot is not None)
    assert figures.rows == table
    assert (figures.paced_rows, figures.tpot.count) == (len(paces), len(paces))
    assert figures.tpot.median == percentile(paces, 50)
    assert figures.tpot.p90 == percentile(paces, 90)
    if paces:
        assert figures.mean_tpot == pytest.approx(sum(paces) / len(paces))
    assert figures.generated_tokens == sum(row.generated for row in table)


def test_a_second_batch_waits_and_its_ttft_starts_with_the_batch():
    table = rows(make_run([[(2, 3)], [(4, 2)]], prefill=0.5, decode=0.25))
    assert [row.waited for row in table] == [0.0, 1.0]
    assert [row.ttft for row in table] == [0.5, 0.5]
    assert [row.first_token_at for row in table] == [0.5, 1.5]


def test_columns_are_the_steps_of_one_batch():
    run = make_run([[(2, 3)], [(4, 2)]])
    assert [step.forward for step in columns(run, 0)] == [1, 2, 3]
    assert [(step.batch, step.forward) for step in columns(run, 1)] == [(1, 1), (1, 2)]


# Runs under way


@pytest.mark.parametrize(
    ("steps", "idle"), [(1, None), (2, (0, 6)), (4, (0, 12)), (5, (1, 15)), (9, (5, 27))]
)
def test_figures_of_a_running_run_are_those_of_its_steps_so_far(steps, idle):
    figures = measure(cut(WORKED, steps))
    assert figures.idle == (idle or Waste(0, 0))
    assert figures.padding == (16, 36)
    assert figures.wall_seconds == pytest.approx(0.5 + (steps - 1) * 1.5 / 9)
    assert figures.generated_tokens == 3 * min(steps, 4) + 2 * max(steps - 4, 0)


def test_kv_bytes_are_the_last_steps_and_the_peak_is_the_largest():
    run = make_run([[(2, 6)], [(4, 2)]])
    assert measure(run).kv_bytes == KVBytes(live=2, padding=2, dead=3)
    assert measure(run).peak_kv_bytes == 6 + 2 + 3
    assert measure(cut(run, 0)).kv_bytes.total == measure(cut(run, 0)).peak_kv_bytes == 0


# The tutorials


def test_the_tutorials_wastes_from_lengths_alone():
    assert padding_waste([(10, 30, 5, 20)]) == (55, 120)
    assert idle_waste([(15, 10, 20, 12)]) == (23, 80)


def test_the_tutorials_wastes_come_out_of_the_engine():
    prompts = [[1] * length for length in (10, 30, 5, 20)]
    requests = make_requests(prompts, max_new_tokens=[15, 10, 20, 12])
    figures = measure(StaticBatchEngine(scripted_lm([[65]])).run(requests))
    assert figures.padding == (55, 120)
    assert figures.idle == (23, 80)


def test_wastes_of_nothing_are_not_available():
    assert padding_waste([]).fraction is None
    assert idle_waste([]).fraction is None
    assert idle_waste([(1, 1), ()]).fraction is None


def test_a_batch_of_one_column_counts_where_another_decoded():
    assert idle_waste([(1, 1), (1, 3)]) == (2, 8)

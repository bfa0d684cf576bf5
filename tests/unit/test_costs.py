"""The cost model: prices that are known are found again, and what can't be told is said."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.costs import CostModel, FitError, _non_negative, fit, priced
from engine.errors import RequestError
from engine.lanes import lane_of
from engine.run import KVBytes
from engine.schedules import Job, Stretch, continuous, jobs_of, serial, static
from tests.unit import sweeps
from tests.unit.paper import WORKED, cut, make_run

STEPS = {1: 0.030, 2: 0.035, 3: 0.036, 4: 0.045, 8: 0.06}
PREFILL, TOKEN, COLUMN = 0.05, 0.001, 0.00002
COLUMN_BYTES = 100
KNOWN = CostModel(
    tuple(STEPS.items()), PREFILL, TOKEN, COLUMN, FitError(1, 0.0, 0.0, 0.0), (), COLUMN_BYTES
)


def timed(batches, *, noise=lambda: 1.0, prices=KNOWN):
    """A run on paper whose steps take what they cost, times some noise, and whose columns all hold
    as many bytes."""
    run = make_run(batches)
    steps, clock, starts = [], 0.0, {}
    for step in run.steps:
        batch = run.batches[step.batch]
        rows = len(batch.requests)
        columns = rows * (batch.padded_length + step.forward - 1)
        starts.setdefault(batch.index, clock)
        if step.forward == 1:
            seconds = prices.prefill + columns * prices.prompt_token
        else:
            seconds = dict(prices.steps)[rows] + columns * prices.column
        seconds *= noise()
        held = KVBytes(columns * COLUMN_BYTES, 0, 0)
        steps.append(replace(step, started=clock, seconds=seconds, kv_bytes=held))
        clock += seconds
    return replace(
        run,
        batches=tuple(replace(batch, started=starts[batch.index]) for batch in run.batches),
        steps=tuple(steps),
    )


def alone(run):
    """The same requests one after another."""
    jobs = jobs_of(run)
    serial_run = timed([[(job.prompt, job.generated)] for job in jobs])
    settings = replace(serial_run.settings, engine="serial")
    return replace(serial_run, settings=settings)


MIXED = timed(
    [[(12, 8), (40, 60), (7, 24), (25, 48)], [(60, 12), (18, 40), (133, 32), (9, 30)], [(5, 9)]]
)


# What is fitted


def test_known_prices_are_found_again():
    costs = fit([MIXED, alone(MIXED)])
    assert [rows for rows, _ in costs.steps] == [1, 4]
    for rows, seconds in costs.steps:
        assert seconds == pytest.approx(STEPS[rows], rel=1e-6)
    found = (costs.prefill, costs.prompt_token, costs.column)
    assert found == pytest.approx((PREFILL, TOKEN, COLUMN), rel=1e-6)
    assert costs.error.steps == len(MIXED.steps) + len(alone(MIXED).steps)
    assert max(costs.error[1:]) < 1e-6
    assert costs.assumed == ()


def test_noise_and_hiccups_leave_the_prices_and_are_in_the_error():
    """Every step is up to 5 % off, and one in twenty takes four times as long."""
    draw = random.Random(0)

    def noise():
        return draw.uniform(0.95, 1.05) * (4 if draw.random() < 0.05 else 1)

    run = timed(
        [[(12, 8), (40, 200), (7, 24), (25, 48)], [(60, 12), (133, 300)], [(9, 20)] * 8],
        noise=noise,
    )
    costs = fit([run])
    for rows, seconds in costs.steps:
        assert seconds == pytest.approx(STEPS[rows], rel=0.05)
    assert costs.column == pytest.approx(COLUMN, rel=0.1)
    assert 0.01 < costs.error.median < 0.05 < -costs.error.wall


def test_hiccups_alone_change_no_price():
    """One step in five takes half as long again; plain least squares would be 5 % off."""
    draw = random.Random(0)
    run = timed(
        [[(12, 90), (40, 200)], [(133, 300), (9, 200)]],
        noise=lambda: 1.5 if draw.random() < 0.2 else 1.0,
    )
    costs = fit([run])
    assert costs.step(2) == pytest.approx(STEPS[2], rel=1e-3)
    assert costs.error.median < 1e-3 < -costs.error.wall


def test_the_run_s_own_settings_give_its_steps_and_its_seconds_within_the_stated_error():
    draw = random.Random(1)
    run = timed(
        [[(12, 8), (40, 60), (7, 24)], [(60, 12), (18, 40)]], noise=lambda: draw.uniform(0.9, 1.3)
    )
    costs = fit([run])
    computed = priced(static(jobs_of(run), batch_size=3), costs).figures
    measured = lane_of(run).figures
    assert computed.forwards == measured.forwards == len(run.steps)
    assert (computed.padding, computed.idle) == (measured.padding, measured.idle)
    assert computed.peak_kv_bytes == measured.peak_kv_bytes
    off = computed.wall_seconds / measured.wall_seconds - 1
    assert off == pytest.approx(costs.error.wall)


def test_without_noise_the_own_lane_is_the_measured_one():
    computed, measured = priced(static(jobs_of(MIXED), batch_size=4), fit([MIXED])), lane_of(MIXED)
    assert [span[:3] for span in computed.spans] == [span[:3] for span in measured.spans]
    for ours, theirs in zip(computed.spans, measured.spans, strict=True):
        assert ours[3:] == pytest.approx(theirs[3:], rel=1e-6)
    assert (computed.computed, measured.computed) == (True, False)
    for name in ("first_token", "latency"):
        ours, theirs = (getattr(lane.figures, name) for lane in (computed, measured))
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_what_passes_between_two_forwards_is_part_of_the_later_one():
    run = make_run([[(3, 30)], [(9, 30)]], pause=0.25)
    costs = fit([run])
    assert abs(costs.error.wall) < 0.05
    assert costs.error.median < 1e-6


def test_a_sweep_adds_its_sizes():
    """Its runs of 1 and 2 rows decode 9 tokens in 0.9 and 1.125 s, those of 4 in 1.8 s."""
    run = replace(timed([[(12, 8), (40, 60)]]), model=sweeps.MODEL)
    costs = fit([run], sweeps.WHOLE)
    assert [rows for rows, _ in costs.steps] == [1, 2, 4, 8]
    assert costs.step(4) == pytest.approx(1.8 / 9, rel=0.02)


def test_an_error_is_said_in_words():
    costs = replace(KNOWN, error=FitError(1234, 0.0213, 0.06, -0.008))
    assert costs.words == (
        "Seconds are computed from 1,234 measured steps. On these they are off by 2.1% (median; "
        "9 of 10 steps by at most 6.0%), and the wall time comes out 0.8% too short."
    )


def test_the_form_is_said_with_its_prices():
    costs = replace(KNOWN, steps=((1, 0.03), (4, 0.045)))
    assert costs.formula == (
        "A decode step of 1 row 30 ms, 4 rows 45 ms, and 20 µs for each cached column that its "
        "rows attend to; a prefill 50 ms, and 1 ms for each of its tokens."
    )


# What can't be told


def test_one_size_of_batch_says_what_is_assumed_of_others():
    run = timed([[(12, 8), (40, 60), (7, 24), (25, 48)], [(60, 12), (18, 40), (133, 32), (9, 30)]])
    costs = fit([run])
    assert costs.step(6) == pytest.approx(STEPS[4] + 2 * TOKEN, rel=1e-6)
    assert costs.step(3) == pytest.approx(STEPS[4] - TOKEN, rel=1e-6)
    shrinking = priced(static(jobs_of(run), batch_size=4, shrinking=True), costs)
    assert "Steps of 1 to 3 rows were not measured" in shrinking.error
    own = priced(static(jobs_of(run), batch_size=4), costs)
    assert own.error == " ".join([costs.words, *costs.assumed])


def test_a_step_of_fewer_rows_costs_no_less_than_its_share():
    costs = replace(KNOWN, steps=((8, 0.06),), prompt_token=0.5)
    assert costs.step(2) == 0.06 * 2 / 8


def test_between_two_measured_sizes_a_step_is_interpolated():
    costs = fit([MIXED, alone(MIXED)])
    assert costs.step(2) == pytest.approx(STEPS[1] + (STEPS[4] - STEPS[1]) / 3, rel=1e-6)
    assert (
        "Steps of 2 rows are interpolated."
        in priced(static(jobs_of(MIXED), batch_size=2), costs).error
    )


def test_the_sizes_that_were_not_measured_are_named():
    """Batches of 6 whose rows end one by one, where 2 and 4 rows were measured."""
    costs = replace(KNOWN, steps=((2, 0.035), (4, 0.045)))
    jobs = [Job(row, 5, 9, 2 + row) for row in range(6)]
    error = priced(static(jobs, batch_size=6, shrinking=True), costs).error
    assert "Steps of 3 rows are interpolated." in error
    assert "Steps of 1, 5 to 6 rows were not measured" in error


def test_a_price_of_a_prompt_token_that_is_small_is_kept():
    """Only the price of a column is given up where it is lost in the noise."""
    draw = random.Random(3)
    prices = replace(KNOWN, prompt_token=1e-5, column=0.0)
    run = timed(
        [[(5, 20)], [(50, 20)], [(9, 20)]], prices=prices, noise=lambda: draw.uniform(0.9, 1.1)
    )
    costs = fit([run])
    assert costs.column == 0
    assert costs.prompt_token > 0


def test_prefills_of_one_size_have_the_fixed_part_of_a_step():
    costs = fit([timed([[(20, 30), (10, 20)]])])
    assert costs.prefill == pytest.approx(costs.step(2) - 2 * costs.prompt_token)
    assert costs.prefill + 40 * costs.prompt_token == pytest.approx(PREFILL + 40 * TOKEN)
    assert "All prefills were of about the same size" in costs.assumed[0]


def test_a_price_of_columns_that_is_only_noise_is_none():
    """Twelve steps, each up to 10 % off, of which the later ones happen to be slow."""
    off = iter([1.0, 0.95, 1.05, 0.92, 1.02, 0.97, 1.08, 0.94, 1.04, 1.0, 1.06, 0.99])
    costs = fit([timed([[(4, 12)]], noise=lambda: next(off), prices=replace(KNOWN, column=0.0))])
    assert costs.column == 0
    assert "made no difference that stood out from the noise" in costs.assumed[-1]


def test_a_forward_for_newcomers_and_others_says_what_is_assumed():
    jobs = [Job(0, 5, 9, 3), Job(1, 5, 9, 9), Job(2, 5, 9, 4)]
    lane = priced(continuous(jobs, slots=2), KNOWN)
    assert "assumed to cost what this engine's forwards do, the fixed part once" in lane.error
    assert "the fixed part once" not in priced(serial(jobs), KNOWN).error
    mixed = Stretch(steps=1, prompt_tokens=10, decoding=4, columns=100)
    assert KNOWN.seconds(mixed) == pytest.approx(PREFILL + 10 * TOKEN + 100 * COLUMN)
    crowded = mixed._replace(decoding=8)
    assert KNOWN.seconds(crowded) == pytest.approx(STEPS[8] + 10 * TOKEN + 100 * COLUMN)


def test_windows_leave_the_bytes_of_a_column_unknown():
    """The paper run's cache does not grow with its columns."""
    costs = fit([WORKED])
    assert costs.column_bytes is None
    assert priced(static(jobs_of(WORKED), batch_size=3), costs).figures.peak_kv_bytes is None


def test_without_decode_steps_there_is_no_price():
    with pytest.raises(RequestError, match="No decode step was measured"):
        fit([make_run([[(3, 1), (5, 1)]])])
    with pytest.raises(RequestError, match="No decode step was measured"):
        fit([cut(WORKED, 1)])
    with pytest.raises(RequestError, match="No decode step was measured"):
        fit([])


def test_a_continuous_run_is_not_fitted():
    other = replace(WORKED, settings=replace(WORKED.settings, engine="continuous"))
    assert fit([WORKED, other]) == fit([WORKED])


def test_runs_of_different_models_are_refused():
    other = replace(WORKED, model=replace(WORKED.model, dtype="bfloat16"))
    with pytest.raises(RequestError, match="different models or devices"):
        fit([WORKED, other])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"steps": ()}, "Steps need a price"),
        ({"steps": ((2, 0.1), (1, 0.1))}, "Steps need a price"),
        ({"steps": ((0, 0.1),)}, "Steps need a price"),
        ({"steps": ((1, -0.1),)}, "A price must be from 0"),
        ({"prefill": float("nan")}, "A price must be from 0"),
        ({"column": float("inf")}, "A price must be from 0"),
    ],
)
def test_prices_that_are_none_are_refused(changed, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(KNOWN, **changed)


# Sums


@given(
    st.integers(1, 300),
    st.integers(1, 9),
    st.integers(1, 2000),
)
def test_a_stretch_costs_what_its_forwards_cost_one_by_one(steps, decoding, columns):
    one_by_one = sum(
        KNOWN.seconds(Stretch(1, 0, decoding, columns + done * decoding)) for done in range(steps)
    )
    assert KNOWN.seconds(Stretch(steps, 0, decoding, columns)) == pytest.approx(one_by_one)


def test_slots_and_spans_of_a_priced_schedule():
    """Two requests of 2 and 4 tokens: a prefill of 2 x 5 tokens, then steps of 2 rows at 6, 7 and
    8 columns each."""
    lane = priced(static([Job(0, 5, 9, 2), Job(1, 3, 9, 4)], batch_size=2), KNOWN)
    prefill = PREFILL + 10 * TOKEN
    at = [prefill + sum(STEPS[2] + 2 * k * COLUMN for k in (6, 7, 8)[:n]) for n in range(4)]
    assert [(s.slot, s.request, s.state) for s in lane.spans] == [
        (0, 0, "prefill"),
        (0, 0, "active"),
        (0, 0, "idle"),
        (1, 1, "prefill"),
        (1, 1, "active"),
    ]
    assert [span.end for span in lane.spans] == pytest.approx([at[0], at[1], at[3], at[0], at[3]])
    assert lane.figures.wall_seconds == pytest.approx(at[3])
    assert lane.figures.output_tokens_per_second == pytest.approx(6 / at[3])
    assert lane.figures.peak_kv_bytes == 2 * 8 * COLUMN_BYTES


@given(st.data())
def test_the_least_squares_are_the_best_that_are_not_negative(data):
    """Against every choice of which unknowns are 0."""
    draw = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    matrix, target = draw.normal(size=(9, 4)), draw.normal(size=9)
    found = _non_negative(matrix, target)
    assert found.min() >= 0

    def left(x):
        return np.linalg.norm(matrix @ x - target)

    for chosen in product((False, True), repeat=4):
        x = np.zeros(4)
        mask = np.array(chosen)
        x[mask] = np.linalg.lstsq(matrix[:, mask], target, rcond=None)[0]
        if x.min() >= 0:
            assert left(found) <= left(x) + 1e-9

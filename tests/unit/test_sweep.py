"""A sweep as data: its figures, its JSON, and what is refused as one."""

import json
from dataclasses import replace

import pytest

from engine import sweepfile
from engine.errors import RecordError
from engine.run import ModelInfo
from engine.sweep import Floor, Rates, Sample, Series, Size, Sweep
from engine.sweepfile import dumps, loads, report
from viz.terminal_sweep import milliseconds, sweep_report

MODEL = ModelInfo("tiny", None, 1000, "float32", "sdpa", "CPU", 2, "2.13.0", "5.24.0")
TOP = {"model", "device", "dtype", "runs", "warmup", "batch_size", "prompt_tokens"}
"""Names of nanoLLMServe's benchmark: at the top, of one request, of a batch."""
ONE = {
    "generated_tokens",
    "mean_elapsed_seconds",
    "mean_tokens_per_second",
    "mean_ttft_seconds",
    "mean_tpot_seconds",
    "mean_prefill_seconds",
    "mean_decode_seconds",
}
BATCH = {
    "batch_size",
    "generated_tokens",
    "mean_batch_elapsed_seconds",
    "mean_batch_tokens_per_second",
    "mean_prompt_tokens",
    "mean_generated_tokens",
    "mean_ttft_seconds",
    "mean_tpot_seconds",
    "mean_prefill_seconds",
    "mean_decode_seconds",
}


def sample(elapsed: float, tokens: int) -> Sample:
    return Sample(elapsed, tokens, elapsed / 5, elapsed * 4 / 5, elapsed / 5, elapsed / 5)


def size(rows: int, *elapsed: float, **more) -> Size:
    """Rows of five tokens each, timed so often."""
    engine = Series("engine", tuple(sample(seconds, 5 * rows) for seconds in elapsed), 100 * rows)
    floor = Floor(8000, 500 * rows, 2000 * rows, (8000 + 500 * rows) / 1e6, 2000 * rows / 1e6)
    return Size(rows, tuple(range(3, 3 + rows)), engine, floor=floor, **more)


def timed(way: str, *elapsed: float, **more) -> Series:
    return Series(way, tuple(Sample(seconds, 5) for seconds in elapsed), **more)


SWEEP = Sweep(
    model=MODEL,
    device="cpu",
    batch_sizes=(1, 4),
    max_new_tokens=5,
    runs=3,
    warmup=1,
    started_at="2026-11-30T00:00:00+00:00",
    status="done",
    rates=Rates(1e6, 1e6, "float32"),
    sizes=(
        size(
            1,
            *(1.0, 4.0, 1.5),
            baselines=(
                timed("generate", 2.0, 2.0, 5.0, ids_equal=True, peak_bytes=7),
                Series("naive", (sample(3.0, 5), sample(3.0, 5), sample(7.0, 5)), ids_equal=True),
            ),
        ),
        size(4, 2.0, 2.0, 3.0),
    ),
    versions={"python": "3.11.7"},
)


def test_medians_means_and_spread_are_of_the_runs():
    one = SWEEP.sizes[0].engine
    assert one.elapsed == (1.5, pytest.approx(6.5 / 3), 1.0, 4.0)
    assert one.elapsed.spread == pytest.approx(2.0)
    assert one.tokens_per_second.median == pytest.approx(5 / 1.5)
    assert one.tokens_per_second.mean == pytest.approx((5 / 1 + 5 / 4 + 5 / 1.5) / 3)
    assert timed("generate", 2.0).ttft is None
    assert replace(one, samples=one.samples[:2]).elapsed.median == 2.5


def test_both_ratios_to_a_baseline():
    one, four = SWEEP.sizes
    assert one.median_of_ratios("generate") == pytest.approx(0.5)  # of 0.5, 2.0 and 0.3
    assert one.ratio_of_medians("generate") == pytest.approx(1.5 / 2.0)
    assert four.median_of_ratios("generate") is None
    assert four.ratio_of_medians("generate") is None


def test_ratios_while_a_pair_is_half_done():
    one = SWEEP.sizes[0]
    half = replace(one, baselines=(timed("generate", 2.0),))
    assert half.median_of_ratios("generate") == pytest.approx(0.5)


def test_speedup_is_over_batch_size_1():
    one, four = SWEEP.sizes
    assert SWEEP.speedup(one) == 1.0
    assert SWEEP.speedup(four) == pytest.approx((20 / 2.0) / (5 / 1.5))
    assert replace(SWEEP, batch_sizes=(4,), sizes=(four,)).speedup(four) is None


def test_the_floor_is_the_longer_of_reading_and_arithmetic():
    floor = Floor(8000, 500, 2000, memory_seconds=0.0085, compute_seconds=0.002)
    assert (floor.seconds, floor.bound) == (0.0085, "memory")
    slow = replace(floor, compute_seconds=0.01)
    assert (slow.seconds, slow.bound) == (0.01, "compute")
    one = SWEEP.sizes[0]
    assert one.floor_fraction == pytest.approx(0.0085 / 0.3)


def test_arithmetic_takes_longer_from_the_size_on_that_is_told():
    edge = SWEEP.compute_bound_from
    assert size(edge).floor.bound == "compute"
    assert size(edge - 1).floor.bound == "memory"
    # As told from another size: the floors are linear in the rows.
    assert replace(SWEEP, sizes=SWEEP.sizes[1:]).compute_bound_from == edge


def test_arithmetic_never_takes_longer_where_each_row_brings_more_reading():
    floor = Floor(8000, 500, 100, memory_seconds=0.0085, compute_seconds=0.0001)
    one = replace(SWEEP.sizes[0], floor=floor)
    assert replace(SWEEP, sizes=(one,)).compute_bound_from is None
    assert replace(SWEEP, rates=None).compute_bound_from is None


def test_c12_what_is_saved_is_read_again_and_strict():
    text = dumps(SWEEP)
    assert loads(text) == SWEEP
    assert loads(dumps(SWEEP, indent=2).encode()) == SWEEP
    assert "\n" not in text
    begun = replace(SWEEP, sizes=(size(1),), status="running")
    assert loads(dumps(begun)) == begun
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(replace(SWEEP, rates=Rates(float("inf"), 1.0, "float32")))


def test_the_report_has_the_names_of_the_other_benchmark():
    told = report(SWEEP)
    assert told.keys() >= TOP
    assert set(told["kv_cache_decode"]) == ONE
    assert set(told["static_batch"]) == BATCH
    assert set(told["v0_0_naive_baseline"]) == ONE
    assert told["comparison"] == {
        "elapsed_speedup": pytest.approx((13 / 3) / (6.5 / 3)),
        "tpot_speedup": pytest.approx((13 / 3) / (6.5 / 3)),
    }
    assert (told["model"], told["device"], told["dtype"]) == ("tiny", "cpu", "float32")
    assert (told["batch_size"], told["prompt_tokens"]) == (4, 3)
    assert told["kv_cache_decode"]["generated_tokens"] == [5, 5, 5]
    assert told["kv_cache_decode"]["mean_elapsed_seconds"] == pytest.approx(6.5 / 3)
    assert told["static_batch"]["batch_size"] == 4
    assert told["static_batch"]["generated_tokens"] == [5] * 12
    assert told["static_batch"]["mean_batch_elapsed_seconds"] == pytest.approx(7 / 3)
    assert told["static_batch"]["mean_prompt_tokens"] == 4.5
    assert all(entry.keys() >= BATCH for entry in told["sizes"])


def test_the_report_of_part_of_a_sweep():
    only_four = report(replace(SWEEP, batch_sizes=(4,), sizes=SWEEP.sizes[1:]))
    assert only_four["kv_cache_decode"] is None
    assert "comparison" not in only_four
    nothing = report(replace(SWEEP, sizes=(), rates=None, status="stopped"))
    assert (nothing["batch_size"], nothing["static_batch"], nothing["sizes"]) == (None, None, [])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda record: record.update(schema_version=2), "schema version 2, this program reads 1"),
        (lambda record: record.update(extra=1), "extra: Unexpected"),
        (lambda record: record.update(runs="3"), "runs: Input should be a valid integer"),
        (lambda record: record.update(runs=2), "more runs than were asked for"),
        (lambda record: record.update(warmup=-1), "a count is below 1"),
        (lambda record: record.update(batch_sizes=[4, 1]), "not those that it names, in order"),
        (lambda record: record["sizes"][0].update(prompt_tokens=[]), "a prompt for each row"),
        (lambda record: record["rates"].update(flops_per_second=0.0), "a rate is not above 0"),
        (
            lambda record: record["sizes"][0]["engine"]["samples"][0].update(elapsed_seconds=0),
            "took no time",
        ),
        (
            lambda record: record["sizes"][0]["engine"]["samples"][0].update(tpot_seconds=1e308),
            "too long",
        ),
        (
            lambda record: record["sizes"][0]["engine"]["samples"][0].update(
                generated_tokens=10**30
            ),
            "without tokens",
        ),
        (lambda record: record["rates"].update(flops_per_second=1e300), "no possible one"),
        (lambda record: record["batch_sizes"].extend(range(10, 100)), "more than 64 sizes"),
        (lambda record: record["batch_sizes"].append(5000), "more than 4,096 rows"),
        (lambda record: record["batch_sizes"].append(record["batch_sizes"][0]), "a size twice"),
        (lambda record: record.update(started_at="9999-99-99"), "when it began"),
        (lambda record: record.update(max_new_tokens=10**40), "no possible one"),
    ],
)
def test_what_is_no_sweep_is_refused_with_a_sentence(change, sentence):
    told = json.loads(dumps(SWEEP))
    change(told["record"])
    with pytest.raises(RecordError, match=sentence):
        loads(json.dumps(told))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "no record"),
        ('{"record": 1}', "no record"),
        ('{"record": NaN}', "NaN is not a number"),
        ("[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_what_is_no_report_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(RecordError, match=sentence):
        loads(text)


def test_a_number_beyond_all_numbers_is_refused():
    text = dumps(SWEEP).replace(
        '"read_bytes_per_second": 1000000.0', '"read_bytes_per_second": 1e999'
    )
    with pytest.raises(RecordError):
        loads(text)


def test_a_file_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(sweepfile, "MAX_BYTES", 100)
    with pytest.raises(RecordError, match="larger than"):
        loads(dumps(SWEEP))


def test_the_table_of_a_sweep_fits_a_terminal():
    text = sweep_report(SWEEP)
    assert max(map(len, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines()]
    [four] = [row for row in rows if row[:1] == ["4"]]
    assert " ".join(four) == "4 10.0 33 % 3.00 400 ms 400 ms 10.0 ms 2 % n/a 400 B"


def test_c8_c15_the_table_says_what_was_left_out_and_what_was_sent():
    text = sweep_report(SWEEP)
    assert "3 runs of 5 new tokens in every row, greedy; 1 warm-up discarded" in text
    assert "prompt tokens: min 3, mean 4.2, max 6" in text
    assert "no warm-up" in sweep_report(replace(SWEEP, warmup=0))


def test_the_table_of_a_sweep_that_was_cut_short():
    text = sweep_report(replace(SWEEP, sizes=SWEEP.sizes[:1], status="stopped"))
    assert "1 of 2 sizes measured" in text
    nothing = sweep_report(replace(SWEEP, sizes=(), rates=None, status="stopped"))
    assert nothing.endswith("\n\nstopped: nothing measured")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.000123, "0.123 ms"),
        (0.0099949, "9.99 ms"),
        (0.0099951, "10.0 ms"),
        (0.0208, "20.8 ms"),
        (0.118, "118 ms"),
        (2.104, "2.10 s"),
        (None, "n/a"),
    ],
)
def test_three_digits_of_a_time(seconds, shown):
    assert milliseconds(seconds) == shown

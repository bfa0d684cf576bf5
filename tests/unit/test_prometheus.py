"""What is counted of a run, and what the gauges say of one under way."""

from contextlib import closing
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from engine import StaticBatchEngine, make_requests
from engine.comparison import Comparison
from engine.errors import RunError
from engine.prometheus import Metrics, Now, now
from engine.served import Served
from tests.tiny import EOS, scripted_lm, token_ids
from tests.watched import samples

MODEL = "scripted"
SCRIPT = [token_ids("abcdefgh"), [*token_ids("ab"), EOS]]


@pytest.fixture
def metrics():
    return Metrics([MODEL])


def stream_of(prompts=("Hi", "there"), *, budget=6, batch_size=4, **model):
    lm = scripted_lm(SCRIPT, **model)
    requests = make_requests(list(prompts), max_new_tokens=budget)
    return StaticBatchEngine(lm, batch_size=batch_size).stream(requests)


def run_of(*asked, **how):
    with closing(stream_of(*asked, **how)) as stream:
        list(stream)
        return stream.record()


def read(metrics):
    """Samples without their prefix."""
    found = samples(generate_latest(metrics._registry).decode())
    return {
        (name.removeprefix("batchscope:"), *rest): value for (name, *rest), value in found.items()
    }


def test_every_series_is_there_from_the_start_and_is_zero(metrics):
    found = read(metrics)
    ours = {key: value for key, value in found.items() if not key[0].startswith("process_")}
    assert {
        key for key, value in ours.items() if value and not key[0].endswith("_created")
    } == set()
    for end in ("eos", "length", "stop", "cancelled", "error"):
        assert found["request_success_total", end, MODEL] == 0
    assert found["num_requests_waiting", MODEL] == 0


def test_a_run_is_counted_in_tokens_slots_ends_and_batches(metrics):
    run = replace(run_of(), queued_seconds=2.0)
    metrics.count_record(run)
    found = read(metrics)
    # Prompts of 2 and 5 tokens in a rectangle of 10; 6 and 3 new tokens in one of 12.
    assert found["prompt_tokens_total", MODEL] == 7
    assert found["generation_tokens_total", MODEL] == 9
    assert found["slots_total", MODEL, "prompt", "active"] == 7
    assert found["slots_total", MODEL, "prompt", "padded"] == 3
    assert found["slots_total", MODEL, "column", "active"] == 9
    assert found["slots_total", MODEL, "column", "idle"] == 3
    assert found["request_success_total", "length", MODEL] == 1
    assert found["request_success_total", "eos", MODEL] == 1
    assert found["runs_total", MODEL, "done"] == found["batches_total", MODEL] == 1
    assert found["batch_rows_sum", MODEL] == 2
    assert found["batch_fill_sum", MODEL] == 0.5
    first, started = run.steps[0].finished, run.batches[0].started
    assert found["request_queue_time_seconds_sum", MODEL] == pytest.approx(2 * (2.0 + started))
    assert found["time_to_first_token_seconds_sum", MODEL] == pytest.approx(2 * (2.0 + first))
    ends = run.steps[5].finished + run.steps[2].finished
    assert found["e2e_request_latency_seconds_sum", MODEL] == pytest.approx(4.0 + ends)
    paces = (run.steps[5].finished - first) / 5 + (run.steps[2].finished - first) / 2
    name = "request_time_per_output_token_seconds_sum"
    assert found[name, MODEL] == pytest.approx(paces)


def test_a_row_of_one_token_has_no_time_per_token(metrics):
    metrics.count_record(run_of(budget=1))
    found = read(metrics)
    assert found["request_time_per_output_token_seconds_count", MODEL] == 0
    assert found["slots_total", MODEL, "column", "idle"] == 0


def test_a_stopped_run_counts_what_it_did_and_its_rows_as_cancelled(metrics):
    with closing(stream_of(budget=9, batch_size=1)) as stream:
        next(stream)
        stream.stop()
        list(stream)
    metrics.count_record(stream.record())
    found = read(metrics)
    assert found["runs_total", MODEL, "stopped"] == 1
    assert found["request_success_total", "cancelled", MODEL] == 2
    assert found["batches_total", MODEL] == found["generation_tokens_total", MODEL] == 1
    assert found["request_prompt_tokens_count", MODEL] == 1  # the second was never read
    assert found["e2e_request_latency_seconds_count", MODEL] == 0


def test_a_run_that_failed_counts_until_then(metrics):
    def fail(column):
        if column == 4:
            raise ValueError("no")

    stream = stream_of(before_forward=fail)
    with closing(stream), pytest.raises(RunError):
        list(stream)
    metrics.count_record(stream.record())
    found = read(metrics)
    assert found["runs_total", MODEL, "error"] == 1
    assert found["request_success_total", "error", MODEL] == 1
    assert found["request_success_total", "eos", MODEL] == 1
    assert found["generation_tokens_total", MODEL] == 6
    assert found["slots_total", MODEL, "column", "idle"] == 0


def test_a_collected_batch_has_its_own_waits_and_who_left(metrics):
    run = run_of()
    metrics.count_served(Served(1, run, waited=(0.5, 0.25), left=(None, 0.1)))
    found = read(metrics)
    assert found["clients_left_total", MODEL] == 1
    assert found["request_queue_time_seconds_sum", MODEL] == 0.75
    ttft = 2 * (run.steps[0].finished - run.batches[0].started)
    assert found["time_to_first_token_seconds_sum", MODEL] == pytest.approx(0.75 + ttft)


def test_a_comparison_is_a_measurement_and_who_leaves_a_visitor(metrics):
    metrics.count_record(Comparison(entries=(), started_at="", status="done"))
    metrics.count_record(None)
    found = read(metrics)
    assert found["measurements_total", "comparison"] == found["visitors_left_total",] == 1
    assert found["generation_tokens_total", MODEL] == 0


def test_the_gauges_follow_a_run_forward_by_forward(metrics):
    with closing(stream_of(["Hi", "there", "x"], batch_size=2)) as stream:
        seen = [now(stream.record())]
        for _ in stream:
            seen.append(now(stream.record()))
        seen.append(now(stream.record()))
    assert [each[:3] for each in seen[:5]] == [
        (0, 0, 3),
        (2, 0, 1),
        (2, 0, 1),
        (1, 1, 1),
        (1, 1, 1),
    ]
    assert seen[4].kv_bytes.dead > 0
    assert seen[-1] == Now()
    metrics._sources.append(lambda: [(MODEL, seen[4]), (MODEL, Now(waiting=5))])
    found = read(metrics)
    assert found["num_requests_running", MODEL] == found["num_slots_idle", MODEL] == 1
    assert found["num_requests_waiting", MODEL] == 6
    assert found["kv_cache_bytes", "dead", MODEL] == seen[4].kv_bytes.dead

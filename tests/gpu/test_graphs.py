"""Captured decode steps on CUDA: the same ids, no waiting, nothing left; skipped where there is
none."""

import logging

import pytest
import torch

from engine.bench import eager
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.cuda import (
    DENSE,
    MIXTURES,
    OPTIONS,
    READS,
    both_ways,
    compare_ids,
    counting,
    few_places,
    watch,
    watched_requests,
)
from tests.families import FAMILIES, prove
from tests.tiny import row_ids, tiny_lm
from tests.unit.test_equals_solo import assert_holds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


def on_cuda(family="llama", device=CUDA, **config):
    lm = tiny_lm(family, **config)
    lm.model.to(device)
    return lm


def requests_of(rows=4, tokens=40, **options):
    return make_requests(
        [[65 + row] * (3 + row) for row in range(rows)],
        max_new_tokens=tokens,
        ignore_eos=True,
        **options,
    )


# The same ids


@pytest.mark.parametrize("family", DENSE)
def test_captured_and_eager_steps_give_the_same_ids(family):
    """With sliding windows, samples, penalties, stop strings, and rows that end by themselves."""
    found = compare_ids(family, *both_ways(family, CUDA), batches=12)
    assert found.first is None
    assert found.reason is None
    assert found.captures > 6
    assert found.replays > 50


@pytest.mark.parametrize("family", DENSE)
def test_rows_on_the_device_equal_their_solo_runs_and_generate_on_the_cpu(family):
    on_device = FAMILIES[family]()
    on_device.model.to(CUDA)
    with few_places():
        assert_holds(prove(FAMILIES[family](), batches=12, seed=17, batched=on_device))
    assert on_device.graphs.reason is None


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_steps_are_captured_once_for_every_number_of_places(family, options):
    """The first step of each number of places is run as it is."""
    lm = on_cuda(family)
    with counting() as captures, few_places():
        run = StaticBatchEngine(lm, batch_size=4).run(requests_of(tokens=42, **options))
    assert len(run.steps) == 42
    columns = range(7, 6 + 42)
    places = {-(-column // 16) for column in columns} if family == "llama" else {1}
    assert lm.graphs.reason is None
    assert len(captures.seconds) == len(places)
    assert captures.replays == len(columns) - len(places)
    assert lm.decode_path == "eager, CUDA graphs"


def test_a_step_ahead_changes_nothing_at_the_end_of_a_run():
    lm = on_cuda()
    whole = row_ids(StaticBatchEngine(lm, batch_size=4).run(requests_of(tokens=30)))
    for tokens in (1, 2, 3, 4, 17):
        cut = row_ids(StaticBatchEngine(lm, batch_size=4).run(requests_of(tokens=tokens)))
        assert cut == [ids[:tokens] for ids in whole]


# What can't be captured


@pytest.mark.parametrize("family", [*MIXTURES, READS])
def test_where_a_step_cant_be_captured_the_run_goes_on_without(family, caplog):
    """In float32 experts are picked on the host. What was broken off leaves the stream and the
    allocator as they were."""
    stream = torch.cuda.current_stream()
    lm, plain = both_ways(family, CUDA)
    with caplog.at_level(logging.WARNING, "batchscope.engine"):
        found = compare_ids(family, lm, plain, batches=4)
    assert found.first is None
    assert torch.cuda.current_stream() == stream
    if family == READS:
        assert "captur" in found.reason
        assert found.replays == 0
        assert "decodes without CUDA graphs" in caplog.text
        assert lm.decode_path == "eager"
    other = on_cuda("qwen3")
    ids = row_ids(StaticBatchEngine(other, batch_size=4).run(requests_of()))
    assert other.graphs.reason is None
    assert ids == row_ids(StaticBatchEngine(eager(other), batch_size=4).run(requests_of()))


# No waiting, nothing left


@pytest.mark.parametrize("options", [*OPTIONS, "mixed"])
def test_the_host_waits_once_in_a_step_for_the_tokens_and_nothing_is_left(options):
    found = watch(on_cuda(), watched_requests(options), options)
    assert found.problem is None
    assert found.calls["cudaGraphLaunch"] == found.steps
    assert found.calls["cudaEventSynchronize"] <= found.steps


def test_eager_steps_wait_for_nothing_else_either():
    found = watch(eager(on_cuda()), watched_requests("mixed"), "mixed")
    assert found.waits == 0


def test_device_seconds_are_positive_and_no_more_than_the_run():
    lm = on_cuda()
    steps = StaticBatchEngine(lm, batch_size=4).run(requests_of(tokens=60)).steps
    assert all(step.device_seconds > 0 for step in steps)
    assert sum(step.device_seconds for step in steps) <= steps[-1].finished


def test_memory_is_back_after_a_run_and_after_a_stop():
    lm = on_cuda()
    engine = StaticBatchEngine(lm, batch_size=4)
    engine.run(requests_of())
    before = torch.cuda.memory_allocated()
    with few_places():
        engine.run(requests_of(tokens=100))
    assert torch.cuda.memory_allocated() == before
    stream = engine.stream(requests_of(tokens=100))
    for step in stream:
        if step.forward == 9:
            stream.stop()
    stream.close()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_another_device_than_the_first_has_graphs_and_clocks_of_its_own():
    lm = on_cuda(device=torch.device("cuda:1"))
    run = StaticBatchEngine(lm, batch_size=4).run(requests_of())
    assert lm.graphs.reason is None
    assert row_ids(run) == row_ids(StaticBatchEngine(eager(lm), batch_size=4).run(requests_of()))
    assert all(step.device_seconds > 0 for step in run.steps)

"""Decode steps: on a static cache, captured, one ahead, compiled: the ids are the same."""

import logging
import shutil

import pytest
import torch
from torch._dynamo.utils import counters

import engine.graphs
import engine.static_cache
from engine.decode import Decoder
from engine.masks import attention_mask
from engine.models import with_compiled_steps
from engine.requests import make_requests
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from engine.static_cache import capacity, round_up
from tests.captured import captured, record
from tests.families import FAMILIES, ends_often, prove
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm
from tests.unit.streams import A, B
from tests.unit.test_equals_solo import assert_holds


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(engine.graphs, "capture", record)


def few_places(monkeypatch, places):
    """Steps are captured for so many places at a time, so that even short runs outgrow them."""
    monkeypatch.setattr(
        engine.static_cache, "round_up", lambda columns: -(-columns // places) * places
    )


# captured


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_captured_steps_equal_their_solo_runs_and_generate(family, monkeypatch):
    few_places(monkeypatch, 16)
    lm = FAMILIES[family]()
    on_device = captured(lm)
    assert_holds(prove(lm, batches=8, seed=17, batched=on_device))
    assert on_device.graphs.captured > 6
    assert on_device.graphs.reason is None


def test_rows_of_captured_steps_equal_their_solo_runs_with_eager_attention(monkeypatch):
    few_places(monkeypatch, 16)
    lm = ends_often(tiny_lm("gemma3"))
    lm.model.set_attn_implementation("eager")
    assert_holds(prove(lm, batches=12, seed=18, batched=captured(lm)))


def test_a_step_is_captured_once_for_every_round_number_of_places(monkeypatch):
    few_places(monkeypatch, 16)
    lm = captured(tiny_lm())
    requests = make_requests([[A] * 10, [B] * 3], max_new_tokens=42, ignore_eos=True)
    record = StaticBatchEngine(lm).run(requests)
    assert len(record.steps) == 42
    # For 16, 32, 48 and 64 places, each at the second step, from column 11 to column 51.
    assert lm.graphs.captured == 4


def test_where_a_step_cant_be_captured_the_run_goes_on_without_and_the_log_says_why(
    monkeypatch, caplog
):
    def refuse(_step):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    requests = make_requests(["one", "and two"], max_new_tokens=12)
    plain = tiny_lm()
    lm = captured(plain)
    monkeypatch.setattr(engine.graphs, "capture", refuse)
    with caplog.at_level(logging.WARNING, "batchscope.engine"):
        ids = row_ids(StaticBatchEngine(lm).run(requests))
        again = row_ids(StaticBatchEngine(lm).run(requests))
    assert ids == again == row_ids(StaticBatchEngine(plain).run(requests))
    assert len(caplog.messages) == 1
    assert "without CUDA graphs: RuntimeError: operation not permitted" in caplog.messages[0]
    assert "\n" not in caplog.messages[0]
    assert lm.graphs.captured == 1  # and is not tried again
    assert lm.decode_path == "eager, replayed"


def test_a_step_that_reads_from_the_device_cant_be_captured():
    lm = captured(tiny_lm())
    layer = lm.layers[0]
    layer.register_forward_pre_hook(lambda _layer, given: given[0].max().item() and None)
    StaticBatchEngine(lm).run(make_requests(["a"], max_new_tokens=4))
    assert "operation not permitted" in lm.graphs.reason


def test_off_cuda_nothing_is_captured():
    lm = tiny_lm()
    assert lm.graphs.reason == "not on a CUDA device"
    assert lm.graphs.capture(lambda: torch.zeros(1)) is None
    assert lm.decode_path == "eager, replayed"
    assert not lm.rounds_columns
    assert not lm.runs_ahead


def test_a_model_that_counts_the_places_is_not_captured():
    """One that has a mask of its own, made from how many places it is given."""
    lm = tiny_lm()

    def count(_model, _given, named):
        named["position_ids"] = named["position_ids"] + named["attention_mask"].shape[-1]
        return _given, named

    hook = lm.model.register_forward_pre_hook(count, with_kwargs=True)
    assert "depend on places that hold nothing" in engine.graphs.reason_against_rounding(lm)
    hook.remove()
    assert engine.graphs.reason_against_rounding(lm) is None


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma3", "mixtral", "qwen3_moe"])
def test_the_families_can_be_captured(family):
    assert engine.graphs.reason_against_rounding(tiny_lm(family)) is None


# one ahead


def test_the_next_step_is_launched_before_the_tokens_of_this_one_are_read():
    """But not before the first tokens are, nor beyond the last column."""
    seen = []
    plain = scripted_lm([[A], [B]], before_forward=lambda column: seen.append(f"launch {column}"))
    lm = captured(plain)
    engine = StaticBatchEngine(lm)
    for step in engine.stream(make_requests(["a", "b"], max_new_tokens=5)):
        seen.append(f"read {step.forward}")
    launches_and_reads = ["launch 1", "read 1", "launch 2", "launch 3", "read 2"]
    # From then on steps are repeated without their Python.
    assert seen == [*launches_and_reads, "read 3", "read 4", "read 5"]


def test_a_step_too_many_is_in_no_record():
    plain = scripted_lm([[A, A, EOS], [B, EOS]])
    requests = make_requests(["a", "b"], max_new_tokens=9)
    ahead, known = (StaticBatchEngine(lm).run(requests) for lm in (captured(plain), plain))
    assert [step.tokens for step in ahead.steps] == [step.tokens for step in known.steps]
    assert [step.kv_bytes for step in ahead.steps] == [step.kv_bytes for step in known.steps]
    assert ahead.texts == known.texts
    assert ahead.status == "done"


def test_positions_stay_in_the_table_one_step_ahead():
    """Row 1 fills the table to its last place and waits for row 2."""
    lm = captured(tiny_lm("gpt2", max_position_embeddings=32))
    requests = make_requests([[A] * 28, [B] * 2], max_new_tokens=[4, 30], ignore_eos=True)
    ids = row_ids(StaticBatchEngine(lm).run(requests))
    assert [len(row) for row in ids] == [4, 30]


def test_stop_ends_a_run_that_is_one_ahead():
    lm = captured(tiny_lm())
    stream = StaticBatchEngine(lm).stream(make_requests(["a"], max_new_tokens=50, ignore_eos=True))
    for step in stream:
        if step.forward == 5:
            stream.stop()
    stream.close()
    record = stream.record()
    assert (record.status, len(record.steps)) == ("stopped", 5)


# the cache


def test_numbers_of_places_are_round_and_at_most_a_quarter_too_many():
    for columns in range(1, 20_000):
        places = round_up(columns)
        assert columns <= places
        assert places - columns < 256 or places <= 1.25 * columns + 1
    assert len({round_up(columns) for columns in range(1, 20_000)}) < 32


def test_a_window_allocates_no_more_places_than_it_shows():
    assert capacity(1000, None) == 1008 + 16
    assert capacity(1000, 8) == 16 + 16
    assert capacity(5, 4096) == 16 + 16


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_a_decode_step_moves_no_tensor(family):
    lm = tiny_lm(family)
    cache = lm.new_cache()
    real = torch.ones(2, 12, dtype=torch.bool)
    ids = torch.full((2, 12), A)
    with torch.inference_mode():
        positions = torch.arange(12).expand(2, 12)
        mask = attention_mask(lm.model, cache, real, queries=12)
        lm.forward(ids, mask=mask, position_ids=positions, cache=cache, last=[11, 11])
        decoder = Decoder(lm, cache, real, has_pads=False, columns=30)
        addresses = []
        for _ in range(18):
            decoder.step(torch.tensor([A, B]))
            tensors = [t for layer in cache.layers for t in (layer.keys, layer.values)]
            addresses.append([tensor.data_ptr() for tensor in tensors])
    assert all(addresses[0] == later for later in addresses)


# compiled


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_rows_of_compiled_steps_equal_their_solo_runs():
    """For one row and for any number of them nothing is compiled again. Products that inductor
    writes are of constants alone, so no weight is read from the model."""
    counters.clear()
    lm = ends_often(tiny_lm(num_hidden_layers=1))
    requests = make_requests(["a", "and b", "and then c"], max_new_tokens=[9, 30, 140])
    alone = row_ids(SerialEngine(lm).run(requests))
    quick = with_compiled_steps(lm)
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in (3, 2, 1):
            assert row_ids(StaticBatchEngine(quick, batch_size=size).run(requests)) == alone
    assert quick.decode_path == "compiled"
    packed = counters["inductor"]["mkldnn_linear_weight_pack_matcher_count"]
    assert packed == counters["inductor"]["cpp_templated_kernel_counter"] > 0


@pytest.mark.parametrize("prompt", [3, 8, 12])
def test_in_a_window_a_column_lies_at_its_place_in_the_ring(prompt):
    """A window of 8: the columns that the next query sees are those of the growing cache."""
    lm = tiny_lm("mistral")
    real, ids = torch.ones(1, prompt, dtype=torch.bool), torch.full((1, prompt), A)
    fed = torch.arange(60, 70)
    growing, ring = lm.new_cache(), lm.new_cache()
    with torch.inference_mode():
        positions = torch.arange(prompt)[None]
        for cache in (growing, ring):
            mask = attention_mask(lm.model, cache, real, queries=prompt)
            lm.forward(ids, mask=mask, position_ids=positions, cache=cache, last=[prompt - 1])
        decoder = Decoder(lm, ring, real, has_pads=False, columns=prompt + len(fed))
        for done, token in enumerate(fed):
            seen = prompt + done
            real = torch.ones(1, seen + 1, dtype=torch.bool)
            lm.forward(
                token[None, None],
                mask=attention_mask(lm.model, growing, real, queries=1),
                position_ids=torch.tensor([[seen]]),
                cache=growing,
                last=[0],
            )
            decoder.step(token[None])
            for layer, expected in zip(ring.layers, growing.layers, strict=True):
                held = expected.keys.shape[2]
                places = torch.arange(seen + 1 - held, seen + 1) % 8
                torch.testing.assert_close(layer.all_keys[:, :, places], expected.keys)
                torch.testing.assert_close(layer.all_values[:, :, places], expected.values)

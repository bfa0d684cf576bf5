"""What a decode step must read and compute is what it does read and compute."""

from contextlib import closing
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from engine import roofline
from engine.batching import pad
from engine.masks import attention_mask
from engine.models import LanguageModel
from engine.randomweights import SHAPES, read_shape
from engine.requests import make_requests
from engine.roofline import count_weights, floor, measure_rates, product_rate, read_rate
from engine.static import StaticBatchEngine
from engine.sweep import Rates
from tests.tiny import SIZE, VOCABULARY, tiny_config, tiny_lm

CPU = torch.device("cpu")
RATES = Rates(read_bytes_per_second=1e9, flops_per_second=1e10, dtype="float32")
EMBEDDING = VOCABULARY * SIZE["hidden_size"]


def numbers_of(lm: LanguageModel) -> int:
    return sum(weight.numel() for weight in lm.model.parameters())


# Weights


@pytest.mark.parametrize(
    ("shape", "layers", "hidden", "heads", "inner", "tied"),
    [("qwen3-0.6b", 28, 1024, 16, 3072, True), ("qwen3-8b", 36, 4096, 32, 12288, False)],
)
def test_the_weights_of_a_shipped_shape_by_hand(shape, layers, hidden, heads, inner, tied):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read_shape(shape), dtype=torch.bfloat16)
    attention = 128 * hidden * (2 * heads + 2 * 8) + 2 * 128  # q, o; k, v; norms of q and k
    layer = attention + 3 * hidden * inner + 2 * hidden
    output = 151936 * hidden
    read = layers * layer + hidden + output
    assert count_weights(model) == (2 * read, read, 0, 0)
    in_all = sum(weight.numel() for weight in model.parameters())
    assert in_all == (read if tied else read + output)


def test_all_shipped_shapes_were_looked_at():
    assert set(SHAPES) == {"qwen3-0.6b", "qwen3-8b"}


def test_an_input_embedding_counts_where_it_is_the_output_layer_too():
    untied, tied = tiny_lm("llama"), tiny_lm("llama", tie_word_embeddings=True)
    assert numbers_of(tied) == numbers_of(untied) - EMBEDDING
    assert count_weights(untied.model).numbers == numbers_of(untied) - EMBEDDING
    assert count_weights(tied.model).numbers == numbers_of(tied)


def test_positions_that_are_looked_up_are_not_read():
    lm = tiny_lm("gpt2")  # tied
    assert count_weights(lm.model).numbers == numbers_of(lm) - 512 * 32


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_of_a_mixture_the_experts_of_one_token_are_read_at_least(rows):
    lm = tiny_lm("qwen3_moe")
    expert = 3 * 32 * 32
    others = numbers_of(lm) - EMBEDDING - 2 * 4 * expert
    found = floor(lm, RATES, prompt_tokens=[5] * rows, new_tokens=2)
    assert found.weight_bytes == 4 * (others + 2 * 2 * expert)  # two experts in each of two layers
    one = floor(lm, RATES, prompt_tokens=[5], new_tokens=2)
    assert found.flops == rows * one.flops  # two experts for every row, whoever calls them too


# Steps


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3", "mistral"])
def test_the_kv_bytes_are_those_of_a_real_run(family):
    lm, lengths = tiny_lm(family), [12, 3, 3]
    requests = make_requests([[65] * n for n in lengths], max_new_tokens=9, ignore_eos=True)
    with closing(StaticBatchEngine(lm, batch_size=1).stream(requests)) as stream:
        steps = [step for step in stream if step.phase == "decode"]
    live = [sum(s.kv_bytes.live for s in steps if s.forward == forward) for forward in range(2, 10)]
    assert floor(lm, RATES, prompt_tokens=lengths, new_tokens=9).kv_bytes == pytest.approx(
        mean(live), abs=4
    )


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_arithmetic_is_what_torch_counts_in_a_decode_step(family, rows):
    config = tiny_config(family)
    config.hidden_size = 128  # so that norms, which are no products, are few of its weights
    torch.manual_seed(0)
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}  # all is counted
    model = AutoModelForCausalLM.from_config(config, **plain).eval()
    lm = LanguageModel(model, tiny_lm().tokenizer, "tiny")
    padded = pad([[65] * 40] * rows, pad_id=0, side="left", device=CPU)
    real, cache = padded.real, lm.new_cache()

    def forward(ids, positions):
        mask = attention_mask(lm.model, cache, real, queries=ids.shape[1])
        lm.forward(
            ids, mask=mask, position_ids=positions, cache=cache, last=[ids.shape[1] - 1] * rows
        )

    with torch.inference_mode():
        forward(padded.input_ids, padded.position_ids)
        real = torch.cat([real, real.new_ones(rows, 1)], dim=1)
        with FlopCounterMode(display=False) as counter:
            forward(padded.input_ids[:, :1], torch.full((rows, 1), 40))
    told = floor(lm, RATES, prompt_tokens=[40] * rows, new_tokens=2).flops
    assert counter.get_total_flops() <= told <= 1.02 * counter.get_total_flops()


def test_the_times_of_a_floor_follow_from_the_rates():
    lm = tiny_lm()
    found = floor(lm, RATES, prompt_tokens=[5, 9], new_tokens=4)
    assert found.memory_seconds == (found.weight_bytes + found.kv_bytes) / 1e9
    assert found.compute_seconds == found.flops / 1e10


# Rates


@pytest.fixture(autouse=True)
def _no_longer_than_it_takes(monkeypatch):
    monkeypatch.setattr(roofline, "TRY_SECONDS", 0.0)


def test_rates_are_measured_in_the_dtype(monkeypatch):
    monkeypatch.setattr(roofline, "READ_BYTES_ELSEWHERE", 2**22)
    monkeypatch.setattr(roofline, "LONG_ENOUGH", 1e-6)
    rates = measure_rates(CPU, torch.bfloat16)
    assert rates.read_bytes_per_second > 0
    assert rates.flops_per_second > 0
    assert rates.dtype == "bfloat16"


def test_the_bandwidth_is_that_of_the_fastest_read(monkeypatch):
    monkeypatch.setattr(roofline, "READ_BYTES_ELSEWHERE", 2**20)
    times = iter([9.0] * 7 + [0.5] + [9.0] * 100)
    monkeypatch.setattr(roofline, "seconds_of", lambda work, device: next(times))
    assert read_rate(CPU) == 2**20 / 0.5


def test_a_device_has_a_moment_to_run_fast(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(roofline, "TRY_SECONDS", 7.0)
    monkeypatch.setattr(roofline, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    times = iter([9.0] * 8 + [0.5] + [9.0] * 100)
    monkeypatch.setattr(roofline, "seconds_of", lambda work, device: next(times))
    assert roofline.shortest(lambda: None, CPU) == 0.5


def test_no_more_is_read_than_a_part_of_what_is_free(monkeypatch):
    monkeypatch.setattr(roofline, "free_bytes", lambda device: 2**20)
    monkeypatch.setattr(roofline, "seconds_of", lambda work, device: 1.0)
    assert read_rate(CPU) == 2**18


def test_products_grow_until_they_keep_the_device_busy(monkeypatch):
    asked = []

    def seconds_of(work, device):
        side = len(work())
        asked.append(side)
        return roofline.LONG_ENOUGH * {256: 0.5, 512: 0.9, 1024: 8.0}[side]

    monkeypatch.setattr(roofline, "seconds_of", seconds_of)
    assert product_rate(CPU, torch.float32) == 2 * 512**3 / (0.9 * roofline.LONG_ENOUGH)
    assert set(asked) == {256, 512, 1024}


def test_a_product_takes_no_more_than_a_part_of_what_is_free(monkeypatch):
    asked = set()
    monkeypatch.setattr(roofline, "free_bytes", lambda device: 4 * 12 * 512**2)
    monkeypatch.setattr(roofline, "seconds_of", lambda work, device: asked.add(len(work())) or 1e-3)
    assert product_rate(CPU, torch.float32) == 2 * 512**3 / 1e-3
    assert asked == {256, 512}

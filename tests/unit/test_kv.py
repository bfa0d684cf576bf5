"""KV bytes: what holds the cache, counted on its tensors."""

import random
from contextlib import closing

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, cache_utils

from engine.kv import column_bytes_by_extent, kv_bytes
from engine.metrics import measure
from engine.requests import make_requests
from engine.run import Batch, KVBytes
from engine.static import StaticBatchEngine
from tests.tiny import EOS, SIZE, scripted_lm, tiny_lm
from tests.unit.streams import A, B, kept_caches, stream_of

COLUMN = 2 * 2 * 2 * 8 * 4
"""Bytes of one column of one row: 2 layers, keys and values, 2 heads of 8, float32."""


@pytest.mark.parametrize("side", ["left", "right"])
def test_kv_bytes_of_a_small_batch_worked_out_by_hand(side):
    lm = scripted_lm([[EOS], [A, A, EOS]])
    engine = StaticBatchEngine(lm, padding_side=side)
    record = engine.run(make_requests(["abc", "x"], max_new_tokens=9))
    assert [step.kv_bytes for step in record.steps] == [
        # Both rows are worked for: 3 + 1 real tokens, 2 pads.
        KVBytes(live=4 * COLUMN, padding=2 * COLUMN, dead=0),
        # Row 1 has ended and holds its 3 columns and the pad it is fed.
        KVBytes(live=2 * COLUMN, padding=2 * COLUMN, dead=4 * COLUMN),
        KVBytes(live=3 * COLUMN, padding=2 * COLUMN, dead=5 * COLUMN),
    ]


def test_kv_bytes_of_an_ended_rows_pads_are_dead():
    record = StaticBatchEngine(scripted_lm([[A, A], [EOS]])).run(
        make_requests(["abc", "x"], max_new_tokens=2)
    )
    assert record.steps[1].kv_bytes == KVBytes(live=4 * COLUMN, padding=0, dead=4 * COLUMN)


def test_kv_bytes_of_a_sliding_window_lose_their_left_pads_first():
    # A window of 8 keeps 7 columns; 10 and 6 tokens, so 4 pads in row 2.
    lm = tiny_lm("mistral")
    record = StaticBatchEngine(lm).run(
        make_requests([[A] * 10, [B] * 6], max_new_tokens=3, ignore_eos=True)
    )
    assert [step.kv_bytes for step in record.steps] == [
        KVBytes(live=13 * COLUMN, padding=1 * COLUMN, dead=0),
        KVBytes(live=14 * COLUMN, padding=0, dead=0),
        KVBytes(live=14 * COLUMN, padding=0, dead=0),
    ]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma3"])
def test_kv_bytes_add_up_to_the_tensors_of_the_cache(family, monkeypatch):
    lm = tiny_lm(family)
    assert not lm.has_sliding_window or family in ("mistral", "gemma3")
    caches = kept_caches(monkeypatch)
    prompts = ["a", "two more", "the longest of them"]
    options = {"max_new_tokens": [12, 2, 5], "ignore_eos": True}
    with closing(stream_of(lm, prompts, **options)) as stream:
        for step in stream:
            [cache] = caches
            held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
            assert step.kv_bytes.total == held
            assert held > 0
            assert (step.kv_bytes.dead > 0) == (step.forward > 2)
    assert measure(stream.record()).peak_kv_bytes == held


def test_kv_bytes_count_pads_by_length_and_not_by_id():
    lm = scripted_lm([[A]])
    record = StaticBatchEngine(lm).run(make_requests([[lm.pad_id] * 3, [A]], max_new_tokens=1))
    assert record.steps[0].kv_bytes == KVBytes(live=4 * COLUMN, padding=2 * COLUMN, dead=0)


@pytest.mark.parametrize(
    ("family", "side"),
    [(family, "left") for family in ("llama", "gpt2", "mistral", "gemma3", "qwen3_moe")]
    + [(family, "right") for family in ("llama", "gpt2", "qwen3_moe")],
)
def test_kv_bytes_of_random_batches_equal_a_book_kept_column_by_column(family, side, monkeypatch):
    lm = tiny_lm(family)
    caches = kept_caches(monkeypatch)
    chance = random.Random(f"{family}/{side}")
    seen_kinds = set()
    for _ in range(12):
        prompts = [[A] * chance.randint(1, 20) for _ in range(chance.randint(1, 6))]
        budgets = [chance.randint(1, 16) for _ in prompts]
        requests = make_requests(prompts, max_new_tokens=budgets, ignore_eos=True)
        caches.clear()
        with closing(StaticBatchEngine(lm, padding_side=side).stream(requests)) as stream:
            for step in stream:
                assert step.kv_bytes == kept_book(caches[0], prompts, budgets, side, step.forward)
                kinds = {"padding": step.kv_bytes.padding, "dead": step.kv_bytes.dead}
                seen_kinds |= {kind for kind, held in kinds.items() if held}
    assert seen_kinds == {"padding", "dead"}


def kept_book(cache, prompts, budgets, side, forward) -> KVBytes:
    """What each number in the cache's tensors is for, told row by row and column by column."""
    width = max(map(len, prompts))
    held = {"live": 0, "padding": 0, "dead": 0}
    for layer in cache.layers:
        for tensor in (layer.keys, layer.values):
            newest = range(width + forward - 1)[-tensor.shape[2] :]
            for row, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
                for at, column in enumerate(newest):
                    pads = width - len(prompt)
                    pad = column < pads if side == "left" else len(prompt) <= column < width
                    kind = "dead" if forward > budget else "padding" if pad else "live"
                    held[kind] += tensor[row, :, at].nbytes
    return KVBytes(**held)


@pytest.mark.skipif(not hasattr(cache_utils, "DummyLayer"), reason="has no placeholders in caches")
def test_a_layer_that_reuses_anothers_keys_holds_nothing():
    cache = DynamicCache(config=LlamaConfig(**SIZE))
    states = torch.zeros(1, 2, 3, 8)
    cache.update(states, states, 0)
    cache.layers[1] = cache_utils.DummyLayer()
    batch = Batch(0, (0,), ((A, A, A),), "left")
    held = column_bytes_by_extent(cache)
    assert kv_bytes(held, batch, [True]) == KVBytes(live=3 * COLUMN // 2, padding=0, dead=0)

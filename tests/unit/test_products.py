"""Weights laid out for products with few rows: faster, and the ids are the same."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from engine import products
from engine.continuous import ContinuousEngine
from engine.errors import RunError
from engine.models import load_model
from engine.products import MOST_ROWS, product_of
from engine.requests import make_requests
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.families import FAMILIES, prove
from tests.tiny import row_ids, tiny_lm
from tests.unit.test_equals_solo import assert_holds

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.cpu.get_capabilities().get("avx2")),
    reason="needs oneDNN and AVX2",
)


def laid_out(lm):
    packed = replace(lm)
    packed.products.lay_out()
    assert packed.products
    return packed


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_their_solo_runs_and_generate(family):
    lm = FAMILIES[family]()
    assert_holds(prove(lm, batches=8, seed=23, batched=laid_out(lm)))


@pytest.mark.parametrize("engine", [SerialEngine, StaticBatchEngine, ContinuousEngine])
def test_every_engine_multiplies_with_them(engine, monkeypatch):
    lm = tiny_lm()
    requests = make_requests(["a", "and b", "and then c"], max_new_tokens=30, ignore_eos=True)
    ids = row_ids(engine(lm).run(requests))
    rows = []

    def counted(linear):
        product = product_of(linear)
        return lambda states: rows.append(states.shape[:-1].numel()) or product(states)

    monkeypatch.setattr(products, "product_of", counted)
    assert row_ids(engine(laid_out(lm)).run(requests)) == ids
    assert rows


def test_with_many_rows_the_weight_itself_is_taken():
    torch.manual_seed(0)
    linear = nn.Linear(48, 32)
    product = product_of(linear)
    for rows in (MOST_ROWS + 1, 3 * MOST_ROWS):
        states = torch.randn(rows, 48)
        assert torch.equal(product(states), functional.linear(states, linear.weight, linear.bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 3, 8, MOST_ROWS])
def test_a_product_is_that_of_the_weight(rows, bias):
    torch.manual_seed(rows)
    linear = nn.Linear(48, 32, bias=bias)
    states = torch.randn(rows, 5, 48)[:, -1:]
    with torch.inference_mode():
        torch.testing.assert_close(product_of(linear)(states), linear(states))


def test_the_model_knows_nothing_of_them_outside_a_forward():
    lm = laid_out(tiny_lm())
    modules = [module for module in lm.model.modules() if type(module) is nn.Linear]

    def fail(*_):
        during.append(all("forward" in vars(module) for module in modules))
        raise RuntimeError("in the middle")

    during = []
    lm.model.register_forward_hook(fail)
    with pytest.raises(RunError, match="in the middle"):
        StaticBatchEngine(lm).run(make_requests(["a"]))
    assert during == [True]
    assert not any("forward" in vars(module) for module in modules)


def test_what_somebody_else_has_changed_stays_as_it_is():
    lm = tiny_lm()
    theirs = lm.model.get_output_embeddings()
    theirs.forward = forward = lambda states: functional.linear(states, theirs.weight)
    lm = laid_out(lm)
    with lm.products.in_use():
        assert theirs.forward is forward
    assert theirs.forward is forward


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"free": 100_000}, "copies of 0.0 GB would take more than half of the free memory"),
        ({"capabilities": {"neon": True}}, "the processor has no AVX2"),
        ({"dtype": torch.bfloat16}, "they are not float32"),
    ],
)
def test_where_they_are_not_laid_out_the_log_says_why(changed, reason, monkeypatch, caplog):
    lm = tiny_lm()
    if "free" in changed:
        monkeypatch.setattr(products, "free_bytes", lambda _device: changed["free"])
    if "capabilities" in changed:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: changed["capabilities"])
    lm.model.to(changed.get("dtype", torch.float32))
    with caplog.at_level(logging.INFO):
        lm.products.lay_out()
    assert not lm.products
    assert reason in caplog.text


def test_a_loaded_model_has_them_and_its_steps_are_replayed(tmp_path):
    lm = tiny_lm()
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu", dtype="float32")
    assert loaded.decode_path == "eager, laid-out weights, replayed"
    requests = make_requests(["a", "and b"], max_new_tokens=60, ignore_eos=True)
    assert row_ids(StaticBatchEngine(loaded).run(requests)) == row_ids(
        StaticBatchEngine(lm).run(requests)
    )
    assert loaded.tapes.reason is None
    assert len(loaded.tapes) == 1


def test_where_torch_has_no_such_operation_the_weights_stay_as_they_are(monkeypatch, caplog):
    def fail(_linear):
        raise AttributeError("no attribute '_linear_pointwise'")

    monkeypatch.setattr(products, "product_of", fail)
    lm = tiny_lm()
    with caplog.at_level(logging.INFO):
        lm.products.lay_out()
    assert not lm.products
    assert "no attribute '_linear_pointwise'" in caplog.text

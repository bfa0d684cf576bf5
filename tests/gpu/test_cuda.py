"""The same promises on CUDA; skipped where there is none."""

import random

import pytest
import torch

from engine.batching import pad
from engine.errors import RequestError, RunError
from engine.requests import make_requests
from engine.serial import SerialEngine
from engine.static import RunStream, StaticBatchEngine
from tests.tiny import row_ids, tiny_lm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def on_cuda(family, dtype=torch.float32, **config):
    lm = tiny_lm(family, **config)
    lm.model.to("cuda", dtype)
    return lm


OPTIONS = {
    "greedy": {},
    "changed logits": {"repetition_penalty": 1.3, "min_new_tokens": 4},
    "sampled": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 3},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "mistral", "gemma3", "qwen3_moe"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_equals_its_solo_run(family, side, options, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    lm, chance = on_cuda(family), random.Random(7)
    if lm.has_sliding_window and side == "right":
        pytest.skip("right padding is refused for sliding windows")
    for _ in range(8):
        prompts = [
            [chance.randrange(256) for _ in range(chance.randint(1, 40))]
            for _ in range(chance.randint(2, 6))
        ]
        budgets = [chance.randint(4, 24) for _ in prompts]
        requests = make_requests(prompts, max_new_tokens=budgets, **options)
        together = StaticBatchEngine(lm, padding_side=side).run(requests)
        assert row_ids(together) == row_ids(SerialEngine(lm).run(requests))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a2_half_precision_with_pads_stays_finite(dtype):
    lm = on_cuda("llama", dtype)
    run = StaticBatchEngine(lm).run(make_requests(["a", "b" * 200], max_new_tokens=20))
    assert run.status == "done"
    assert all(run.texts)


def test_c7_steps_add_up_to_the_wall_time_and_the_device_works_for_no_longer():
    lm = on_cuda("llama")
    engine = StaticBatchEngine(lm)
    engine.run(make_requests(["warm up"], max_new_tokens=4))
    steps = engine.run(make_requests(["hello"] * 4, max_new_tokens=64, ignore_eos=True)).steps
    assert sum(step.seconds for step in steps) == pytest.approx(steps[-1].finished, rel=0.02)
    # One step alone may show more: it began while the step before it was read.
    assert all(step.device_seconds > 0 for step in steps)
    assert sum(step.device_seconds for step in steps) <= steps[-1].finished


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [8, 256])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_d4_a_run_takes_no_more_than_its_forecast(options, rows, dtype):
    """Sorts of fewer than 128 rows hold more for each."""
    lm = on_cuda("llama", dtype, vocab_size=100_000)
    engine = StaticBatchEngine(lm, batch_size=rows)
    requests = make_requests([[65] * 100] * rows, max_new_tokens=5, ignore_eos=True, **options)
    told = engine.forecast(requests)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    engine.run(requests)
    assert told.kv_bytes < torch.cuda.max_memory_allocated() - before <= told.bytes


def test_d3_d9_memory_is_back_after_a_stop_and_after_running_out(monkeypatch):
    lm = on_cuda("llama")
    engine = StaticBatchEngine(lm)
    engine.run(make_requests(["warm up"], max_new_tokens=4))
    before = torch.cuda.memory_allocated()
    stream = engine.stream(make_requests(["hello"] * 8, max_new_tokens=200, ignore_eos=True))
    for step in stream:
        if step.forward == 5:
            stream.stop()
    stream.close()
    del stream, step
    assert torch.cuda.memory_allocated() <= before + 2**20
    free = torch.cuda.mem_get_info()[0]
    hog = torch.empty(int(free * 0.98), dtype=torch.uint8, device="cuda")
    too_large = StaticBatchEngine(lm, batch_size=20_000)
    requests = make_requests([[1] * 500] * 20_000, max_new_tokens=2)
    numbers = r"GB for 20,000 rows of up to 501 tokens, .* GB to compute with\), and .* are free\."
    with pytest.raises(RequestError, match=numbers):
        too_large.run(requests)
    monkeypatch.setattr(RunStream, "check_memory", lambda run: None)
    with pytest.raises(RunError, match=r"^Out of memory in forward 1: 20000 rows x 500 "):
        too_large.run(requests)
    monkeypatch.undo()
    del hog
    assert torch.cuda.memory_allocated() <= before + 2**20
    assert engine.run(make_requests(["Hi"], max_new_tokens=3)).status == "done"


def test_pads_are_laid_out_on_the_device():
    assert pad([[1], [2, 3]], pad_id=0, side="left", device=torch.device("cuda")).real.is_cuda

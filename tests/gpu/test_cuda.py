"""The same promises on CUDA; skipped where there is none."""

import random

import pytest
import torch

from engine.batching import pad
from engine.errors import RunError
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import tiny_lm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def on_cuda(family, dtype=torch.float32):
    lm = tiny_lm(family)
    lm.model.to("cuda", dtype)
    return lm


def ids_of(run, request):
    return [
        step.tokens[batch.requests.index(request)]
        for batch in run.batches
        if request in batch.requests
        for step in run.steps
        if step.batch == batch.index and step.tokens[batch.requests.index(request)] is not None
    ]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "mistral"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_equals_its_solo_run(family, side):
    if family == "mistral" and side == "right":
        pytest.skip("right padding is refused for sliding windows")
    torch.backends.cuda.matmul.allow_tf32 = False
    lm, draw = on_cuda(family), random.Random(7)
    for _ in range(20):
        prompts = [
            [draw.randrange(256) for _ in range(draw.randint(1, 40))]
            for _ in range(draw.randint(2, 6))
        ]
        budgets = [draw.randint(1, 24) for _ in prompts]
        together = StaticBatchEngine(lm, padding_side=side).run(
            make_requests(prompts, max_new_tokens=budgets)
        )
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            alone = StaticBatchEngine(lm).run(make_requests([prompt], max_new_tokens=budget))
            assert ids_of(together, index) == ids_of(alone, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a2_half_precision_with_pads_stays_finite(dtype):
    lm = on_cuda("llama", dtype)
    run = StaticBatchEngine(lm).run(make_requests(["a", "b" * 200], max_new_tokens=20))
    assert run.status == "done"
    assert all(run.texts)


def test_c7_steps_add_up_to_the_wall_time():
    lm = on_cuda("llama")
    StaticBatchEngine(lm).run(make_requests(["warm up"], max_new_tokens=4))
    run = StaticBatchEngine(lm).run(
        make_requests(["hello"] * 4, max_new_tokens=64, ignore_eos=True)
    )
    assert sum(step.seconds for step in run.steps) == pytest.approx(
        run.steps[-1].finished, rel=0.25
    )


def test_d3_d9_memory_is_back_after_a_stop_and_after_running_out():
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
    with pytest.raises(RunError, match="Out of memory"):
        too_large.run(make_requests([[1] * 500] * 20_000, max_new_tokens=2))
    del hog
    assert torch.cuda.memory_allocated() <= before + 2**20
    assert engine.run(make_requests(["Hi"], max_new_tokens=3)).status == "done"


def test_pads_are_laid_out_on_the_device():
    assert pad([[1], [2, 3]], pad_id=0, side="left", device=torch.device("cuda")).real.is_cuda

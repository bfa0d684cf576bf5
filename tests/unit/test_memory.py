"""What a run needs is told before it, and is what it takes; what it took it gives back."""

import gc
import os
import random
import subprocess
import sys
import weakref
from collections import namedtuple
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma3nTextConfig,
    Gemma4TextConfig,
    LlamaConfig,
    MistralConfig,
    cache_utils,
)

from engine import free as device
from engine import memory
from engine.errors import RequestError, RunError
from engine.free import cgroup_bytes_left, free_bytes, is_out_of_memory
from engine.masks import holds_keys, sliding_window
from engine.memory import (
    Forecast,
    check_memory,
    forecast,
    kv_bytes_at,
    kv_bytes_per_token,
)
from engine.models import LanguageModel
from engine.requests import make_requests
from engine.shapes import layer_kinds
from engine.static import StaticBatchEngine
from tests.tiny import SIZE, byte_tokenizer, scripted_lm, tiny_lm
from tests.unit.streams import A, kept_caches, stream_of, works

GB = 10**9
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"] * 2


def latent_config() -> DeepseekV3Config:
    """Multi-head latent attention, and a mixture of experts in the second layer."""
    size = {name: value for name, value in SIZE.items() if name != "head_dim"}
    return DeepseekV3Config(
        **(size | {"num_key_value_heads": 4}),
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=12,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        n_shared_experts=1,
    )


def sharing_config(family: type, **more) -> Gemma3nTextConfig | Gemma4TextConfig:
    """Six layers, the last three of which reuse the keys and values of the first three."""
    size = SIZE | {"num_hidden_layers": 6, "sliding_window": 8, "layer_types": list(LAYERS)}
    per_layer = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 257}
    return family(**size, **per_layer, num_kv_shared_layers=3, **more)


def lm_of(config, **options) -> LanguageModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, **options).eval()
    return LanguageModel(model, byte_tokenizer(), name="tiny")


MODELS = {
    "llama": lambda: tiny_lm("llama"),
    "bfloat16": lambda: lm_of(LlamaConfig(**SIZE), dtype=torch.bfloat16),
    "qwen3 with its own head_dim": lambda: lm_of(tiny_lm("qwen3", head_dim=24).model.config),
    "gpt2": lambda: tiny_lm("gpt2"),
    "mistral": lambda: tiny_lm("mistral"),
    "gemma3": lambda: tiny_lm("gemma3"),
    "qwen3_moe": lambda: tiny_lm("qwen3_moe"),
    "deepseek_v3": lambda: lm_of(latent_config()),
    "gemma3n": lambda: lm_of(sharing_config(Gemma3nTextConfig, laurel_rank=4)),
    "gemma4": lambda: lm_of(sharing_config(Gemma4TextConfig, global_head_dim=16)),
    "eager": lambda: lm_of(LlamaConfig(**SIZE), attn_implementation="eager"),
}


@pytest.fixture(scope="module", params=MODELS)
def lm(request) -> LanguageModel:
    return MODELS[request.param]()


def cache_of(config, dtype) -> SimpleNamespace:
    """As much of a LanguageModel as its cache follows from."""
    return SimpleNamespace(model=SimpleNamespace(config=config, dtype=dtype))


def forecast_of(lm, requests, *, batch_size=8, side="left") -> Forecast:
    engine = StaticBatchEngine(lm, batch_size=batch_size, padding_side=side)
    with closing(engine.stream(requests)) as stream:
        return forecast(lm, stream.record().batches, requests)


def peak_bytes(work) -> int:
    """The most that was allocated at once while `work` ran, counted by torch's own profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    assert peak > 0
    return peak


@pytest.fixture
def living_tensors():
    """Counts the tensors that were made since the test began and are alive."""
    gc.collect()
    gc.freeze()  # what was there before is neither searched nor counted

    def count() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    yield count
    gc.unfreeze()


# The KV cache


@pytest.mark.parametrize(
    ("size", "dtype", "per_token"),
    [
        # 32 layers x keys and values x 8 heads x 128 numbers x 2 bytes, whatever asks.
        ({"hidden_size": 4096, "num_attention_heads": 32}, torch.bfloat16, 131_072),
        # The head_dim of the config, and not 5120 / 32.
        ({"hidden_size": 5120, "num_attention_heads": 32}, torch.bfloat16, 131_072),
        ({"hidden_size": 4096, "num_attention_heads": 32}, torch.float32, 262_144),
    ],
)
def test_d4_d6_kv_bytes_per_token(size, dtype, per_token):
    config = LlamaConfig(num_hidden_layers=32, num_key_value_heads=8, head_dim=128, **size)
    assert kv_bytes_per_token(cache_of(config, dtype)) == per_token


def test_d4_a_config_without_head_dim_shares_the_hidden_size_among_its_heads():
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=256, num_attention_heads=8, num_key_value_heads=4
    )
    assert kv_bytes_per_token(cache_of(config, torch.float32)) == 2 * 2 * 4 * 32 * 4


def test_d4_a_window_bounds_what_a_row_holds():
    lm = cache_of(MistralConfig(**SIZE, sliding_window=8), torch.float32)
    token = kv_bytes_per_token(lm)
    held = [kv_bytes_at(lm, rows=3, columns=columns) for columns in (1, 7, 8, 1000)]
    assert held == [3 * token, 21 * token, 21 * token, 21 * token]


def test_d4_the_estimate_equals_the_tensors_of_the_cache_after_every_step(lm, monkeypatch):
    caches = kept_caches(monkeypatch)
    requests = make_requests([[A] * 12, [A] * 3], max_new_tokens=[9, 4], ignore_eos=True)
    with closing(StaticBatchEngine(lm).stream(requests)) as stream:
        for step in stream:
            tensors = [
                tensor
                for layer in caches[0].layers
                for tensor in (layer.keys, layer.values)
                if tensor is not None
            ]
            columns = 12 + step.forward - 1
            held = sum(tensor.nbytes for tensor in tensors)
            assert kv_bytes_at(lm, rows=2, columns=columns) == held == step.kv_bytes.total
            assert {tensor.dtype for tensor in tensors} == {lm.model.dtype}
    assert step.forward == 9


def test_the_models_differ_in_what_their_layers_keep():
    """Else the test above would show less than it says."""
    made = {name: MODELS[name]() for name in ("gemma3n", "gemma4", "deepseek_v3")}
    layers = {name: lm.new_cache().layers for name, lm in made.items()}
    holding = list(filter(holds_keys, layers["gemma3n"]))
    assert [sliding_window(layer) for layer in holding] == [8, 8, None]
    # transformers before 5.24 leaves the layers that reuse others out of the cache.
    placeholders = [layer for layer in layers["gemma3n"] if not holds_keys(layer)]
    assert len(placeholders) == (3 if hasattr(cache_utils, "DummyLayer") else 0)
    kinds = layer_kinds(made["gemma4"].model)
    assert sorted((kind.keys, kind.window or 0) for kind in kinds) == [(16, 8), (32, 0)]
    [kind] = layer_kinds(made["deepseek_v3"].model)
    assert (kind.keys, kind.values) == (16, 4)


# The forecast


def test_the_forecast_is_for_the_largest_batch_if_every_row_uses_its_budget():
    lm = tiny_lm()
    requests = make_requests(
        [[A] * 3, [A] * 9, [A] * 4, [A] * 5], max_new_tokens=[20, 2, 3, 4], ignore_eos=True
    )
    told = forecast_of(lm, requests, batch_size=2)
    # Row 2 of the first batch has 9 prompt tokens; row 1 makes 20 tokens, the last is not cached.
    assert (told.rows, told.columns) == (2, 9 + 20 - 1)
    assert told.kv_bytes == kv_bytes_at(lm, rows=2, columns=28)
    record = StaticBatchEngine(lm, batch_size=2).run(requests)
    assert max(step.kv_bytes.total for step in record.steps) == told.kv_bytes == record.kv_estimate


def test_the_largest_cache_and_the_largest_moment_may_be_of_different_batches():
    lm = tiny_lm()
    long, wordy = [A] * 300, [A] * 3
    requests = make_requests([long, wordy], max_new_tokens=[2, 400])
    both = forecast_of(lm, requests, batch_size=1)
    alone = [forecast_of(lm, [replace(request, index=0)]) for request in requests]
    assert alone[0].bytes > alone[1].bytes
    assert alone[0].kv_bytes < alone[1].kv_bytes == both.kv_bytes
    assert both.bytes == alone[0].bytes
    assert both.columns == 402


SHAPES = {
    "short": ([30] * 8, 2, {}),
    "one long prompt": ([200, 20, 20, 20], 4, {}),
    "long": ([300] * 8, 2, {}),
    "long answers": ([5] * 8, 60, {}),
    "sampled": ([20] * 8, 3, {"temperature": 1.0}),
    "everything": (
        [20] * 8,
        3,
        {"temperature": 1.0, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.2, "min_p": 0.1},
    ),
    "penalty": ([20] * 8, 3, {"repetition_penalty": 1.2, "min_new_tokens": 2}),
}


@pytest.mark.parametrize("shape", ["short", "one long prompt", "long", "long answers"])
def test_a_run_takes_no_more_than_its_forecast_and_not_much_less(lm, shape):
    lengths, budget, options = SHAPES[shape]
    check_peak(lm, lengths, budget, options)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_of_a_wide_vocabulary_takes_no_more_than_its_forecast(shape):
    lengths, budget, options = SHAPES[shape]
    # How often transformers' processors copy the logits is not the same in every version.
    check_peak(tiny_lm(vocab_size=20_000), lengths, budget, options, most=2.5)


def test_a_run_padded_on_the_right_takes_no_more_than_its_forecast():
    check_peak(tiny_lm(vocab_size=20_000), [20, 30, 40, 50], 3, {}, side="right")


def check_peak(lm, lengths, budget, options, *, most=2.0, **engine):
    prompts = [[A] * length for length in lengths]
    requests = make_requests(prompts, max_new_tokens=budget, **{"ignore_eos": True} | options)
    told = forecast_of(lm, requests, **engine)
    side = engine.get("side", "left")
    taken = peak_bytes(lambda: StaticBatchEngine(lm, padding_side=side).run(requests))
    assert taken <= told.bytes <= most * taken


def test_d1_the_peak_has_no_term_in_prompt_length_times_vocabulary():
    prompts = [[A] * 2000, [A] * 4, [A] * 5, [A] * 6]
    lm = tiny_lm(vocab_size=50_000, max_position_embeddings=4096)
    requests = make_requests(prompts, max_new_tokens=2)
    told = forecast_of(lm, requests)
    taken = peak_bytes(lambda: StaticBatchEngine(lm).run(requests))
    every_logit = 4 * 2000 * 50_000 * 4
    assert taken <= told.bytes < every_logit / 10


def test_a_model_that_computes_every_logit_is_said_to():
    lm = tiny_lm(vocab_size=20_000)
    requests = make_requests([[A] * 100], max_new_tokens=1)
    lean = forecast_of(lm, requests)
    forward = type(lm.model).forward

    class Wasteful(type(lm.model)):
        def forward(self, input_ids, attention_mask, position_ids, cache, use_cache):
            return forward(
                self,
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                cache=cache,
                use_cache=use_cache,
            )

    lm.model.__class__ = Wasteful
    wasteful = LanguageModel(lm.model, lm.tokenizer, name="wasteful")
    told = forecast_of(wasteful, requests)
    assert told.bytes > 100 * 20_000 * 4 > lean.bytes
    assert peak_bytes(lambda: StaticBatchEngine(wasteful).run(requests)) <= told.bytes


def test_a_sort_on_cuda_needs_more():
    for options, more in [({"top_p": 0.9}, True), ({"top_k": 5}, True), ({}, False)]:
        [request] = make_requests([[A]], temperature=1.0, **options)
        on_cpu, on_cuda = (memory.sampling_bytes(request, on_cuda=cuda) for cuda in (False, True))
        assert (on_cuda > on_cpu) == more
    [greedy] = make_requests([[A]])
    assert memory.sampling_bytes(greedy, on_cuda=True) == 0


# What fits


def test_without_word_of_free_memory_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    told = forecast_of(tiny_lm(), make_requests([[A] * 9] * 4, max_new_tokens=5))
    assert (told.free_bytes, told.largest_batch, told.fits) == (None, None, True)
    check_memory(told)


def test_the_search_for_the_largest_batch_is_no_scan_of_all_sizes(monkeypatch):
    lm, asked = tiny_lm(), 2000
    requests = make_requests([[A] * 9] * asked, max_new_tokens=5)
    free = forecast_of(lm, requests[:77], batch_size=77).bytes
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    shapes = []
    shape_of = memory.shape_of
    monkeypatch.setattr(
        memory, "shape_of", lambda *args, **side: shapes.append(1) or shape_of(*args, **side)
    )
    assert forecast_of(lm, requests, batch_size=asked).largest_batch == 77
    assert len(shapes) < 100


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", range(20))
def test_the_largest_batch_fits_and_no_larger_one_does(seed, side, monkeypatch):
    chance = random.Random(seed)
    lm = tiny_lm()
    prompts = [[A] * chance.randint(1, 60) for _ in range(chance.randint(1, 12))]
    budgets = [chance.randint(1, 40) for _ in prompts]
    requests = make_requests(prompts, max_new_tokens=budgets)
    asked = chance.randint(1, len(prompts))
    needed = {
        size: forecast_of(lm, requests, batch_size=size, side=side).bytes
        for size in range(1, asked + 1)
    }
    for free in {0, *needed.values(), *(bytes_ - 1 for bytes_ in needed.values())}:
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        told = forecast_of(lm, requests, batch_size=asked, side=side)
        assert told.largest_batch == max([size for size in needed if needed[size] <= free] or [0])
        assert told.fits == (told.largest_batch == asked)


def test_a_smaller_batch_may_need_more_and_is_not_offered(monkeypatch):
    """Four short rows and a long one: by threes the long one shares its batch, by twos and by
    fours it does not."""
    lm = tiny_lm()
    requests = make_requests([[A]] * 4 + [[A] * 60], max_new_tokens=2)
    by_fours = forecast_of(lm, requests, batch_size=4)
    assert by_fours.bytes < forecast_of(lm, requests, batch_size=3).bytes
    monkeypatch.setattr(memory, "free_bytes", lambda device: by_fours.bytes)
    assert forecast_of(lm, requests, batch_size=5).largest_batch == 4
    assert forecast_of(lm, requests, batch_size=3).largest_batch == 2


NEEDED = Forecast(
    rows=32,
    columns=4608,
    kv_bytes=101 * GB // 10,
    working_bytes=22 * GB // 10,
    free_bytes=8 * GB,
    largest_batch=12,
)


def test_a_run_that_does_not_fit_is_refused_with_the_numbers_and_the_largest_batch():
    with pytest.raises(RequestError) as caught:
        check_memory(NEEDED)
    assert str(caught.value) == (
        "This run needs about 12.3 GB (KV cache 10.1 GB for 32 rows of up to 4,608 tokens, 2.2 GB "
        "to compute with), and 8.0 GB are free. At most 12 of its rows fit a batch: make the batch "
        "smaller, the prompts shorter or the budgets lower."
    )


def test_a_run_of_which_no_row_fits_is_refused_with_another_sentence():
    with pytest.raises(RequestError) as caught:
        check_memory(replace(NEEDED, rows=1, largest_batch=0, free_bytes=40_000_000))
    assert "for 1 row of up to 4,608 tokens" in str(caught.value)
    assert "and 40.0 MB are free. Not even one row at a time fits:" in str(caught.value)


def test_a_run_that_just_fits_is_not_refused():
    check_memory(replace(NEEDED, free_bytes=NEEDED.bytes))
    with pytest.raises(RequestError):
        check_memory(replace(NEEDED, free_bytes=NEEDED.bytes - 1))


def test_an_engine_refuses_what_does_not_fit_before_any_forward(monkeypatch):
    lm = scripted_lm([[A]])
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with closing(stream_of(lm)) as stream, pytest.raises(RequestError, match=r"1\.0 kB are free"):
        next(stream)
    assert lm.model.calls == []
    monkeypatch.undo()
    assert works(lm)


# What is free


def test_on_a_cpu_no_more_is_free_than_the_machine_can_give():
    free = free_bytes(torch.device("cpu"))
    assert 0 < free <= psutil.virtual_memory().total


def test_on_cuda_what_the_allocator_holds_unused_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 * GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1 * GB)
    assert free_bytes(torch.device("cuda")) == 7 * GB
    # On ZeroGPU the process that was not forked has no device, whatever torch is made to say.
    monkeypatch.setattr(device, "ON_ZERO_GPU", True)
    assert free_bytes(torch.device("cuda")) is None
    monkeypatch.setattr(device, "PROCESS", os.getpid() + 1)
    assert free_bytes(torch.device("cuda")) == 7 * GB


def test_on_apple_what_the_driver_recommends_and_has_not_given_is_free(monkeypatch):
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 10 * GB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 4 * GB)
    assert free_bytes(torch.device("mps")) == 6 * GB
    assert free_bytes(torch.device("meta")) is None


def test_a_containers_limit_counts_if_less_is_left_below_it(monkeypatch):
    machine = namedtuple("machine", ["available"])
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine(8 * GB))
    monkeypatch.setattr(device, "cgroup_bytes_left", lambda: [9 * GB, 2 * GB])
    assert free_bytes(torch.device("cpu")) == 2 * GB
    monkeypatch.setattr(device, "cgroup_bytes_left", list)
    assert free_bytes(torch.device("cpu")) == 8 * GB


VERSION_2 = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def group(folder, names, *, limit, used, inactive):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used, inactive), strict=True):
        if name.endswith("inactive_file"):
            (folder / "memory.stat").write_text(f"anon 1\n{name} {value}\n")
        else:
            (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("names", "line", "mount"), [(VERSION_2, "0::", ""), (VERSION_1, "4:cpu,memory:", "memory")]
)
def test_what_is_left_below_the_limits_of_a_group_and_of_those_around_it(
    tmp_path, names, line, mount
):
    own = tmp_path / "own"
    own.write_text(f"7:pids:/elsewhere\n{line}/pod/box\n")
    root = tmp_path / "cgroup"
    group(root / mount / "pod", names, limit=900, used=600, inactive=100)
    group(root / mount / "pod/box", names, limit=700, used=300, inactive=50)
    assert cgroup_bytes_left(root, own) == [450, 400]
    group(root / mount / "pod", names, limit=500, used=700, inactive=100)
    assert cgroup_bytes_left(root, own) == [450, 0]


def test_a_container_that_sees_the_hosts_path_has_its_limit_at_the_root(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/system.slice/docker-1234.scope\n")
    group(tmp_path / "cgroup", VERSION_2, limit=1000, used=300, inactive=0)
    assert cgroup_bytes_left(tmp_path / "cgroup", own) == [700]


def test_without_a_limit_nothing_is_said(tmp_path):
    own = tmp_path / "own"
    assert cgroup_bytes_left(tmp_path, own) == []
    own.write_text("0::/\n")
    assert cgroup_bytes_left(tmp_path, own) == []
    group(tmp_path, VERSION_2, limit="max", used=300, inactive=0)
    assert cgroup_bytes_left(tmp_path, own) == []


# Running out of it


OUT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 9."),
    RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT, ids=lambda error: f"{error!r:.24}")
def test_d3_whoever_runs_out_of_memory_says_so(error):
    assert is_out_of_memory(error)


def test_d3_other_errors_are_not_taken_for_it():
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize("forward", [1, 3])
@pytest.mark.parametrize("error", OUT[:2], ids=["cuda", "cpu"])
def test_d3_out_of_memory_gives_all_back_and_the_next_run_works(
    forward, error, monkeypatch, living_tensors
):
    lm = tiny_lm()
    assert works(lm)
    caches = kept_caches(monkeypatch)
    attention = type(lm.model.model.layers[1].self_attn)
    real_forward, layers_run, held = attention.forward, [], []

    def run_out(self, *args, **kwargs):
        layers_run.append(1)
        if len(layers_run) == 2 * forward:  # in the second layer, when the first has its tensors
            [cache] = caches
            held.append(weakref.ref(cache.layers[0].keys))
            caches.clear()
            raise type(error)(*error.args)
        return real_forward(self, *args, **kwargs)

    before = living_tensors()
    with monkeypatch.context() as patched:
        patched.setattr(attention, "forward", run_out)
        with closing(stream_of(lm, ignore_eos=True)) as stream:
            with pytest.raises(
                RunError, match=rf"^Out of memory in forward {forward}: 2 rows x 5 "
            ):
                list(stream)
            assert [keys() for keys in held] == [None]
            assert living_tensors() == before
            assert len(stream.record().steps) == forward - 1
    assert works(lm)


BEYOND_A_LIMIT = """
import resource, torch
from engine.errors import RunError
from engine.requests import make_requests
from engine.static import RunStream, StaticBatchEngine
from tests.tiny import tiny_lm

torch.set_num_threads(1)
lm = tiny_lm(max_position_embeddings=100_000)
engine = StaticBatchEngine(lm)
engine.run(make_requests(["warm up"], max_new_tokens=2))
RunStream.check_memory = lambda run: None
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 200_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    engine.run(make_requests([[65] * 6000] * 3 + [[65]], max_new_tokens=2))
except RunError as error:
    print(error)
print(engine.run(make_requests(["one", "three"], max_new_tokens=3)).status)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")
def test_d3_an_allocation_that_fails_ends_its_run_and_the_next_one_works():
    done = subprocess.run(
        [sys.executable, "-c", BEYOND_A_LIMIT], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.splitlines() == [
        "Out of memory in forward 1: 4 rows x 6000 prompt tokens; try fewer or shorter prompts.",
        "done",
    ], done.stderr[-2000:]


# Giving it back


def test_d7_twenty_runs_of_different_prompts_leave_nothing_behind(lm, living_tensors):
    chance = random.Random(0)
    alive = []
    for number in range(1, 21):
        prompts = [[A] * chance.randint(1, 30) for _ in range(chance.randint(1, 5))]
        requests = make_requests(prompts, max_new_tokens=chance.randint(1, 8), seed=1)
        StaticBatchEngine(lm, batch_size=2).run(requests)
        if number in (2, 10, 20):
            alive.append(living_tensors())
    assert len(set(alive)) == 1


def test_d9_stop_at_step_5_frees_the_cache(lm, monkeypatch, living_tensors):
    caches = kept_caches(monkeypatch)
    before = living_tensors()
    with closing(stream_of(lm, max_new_tokens=50, ignore_eos=True)) as stream:
        for _ in range(5):
            next(stream)
        held = [weakref.ref(layer.keys) for layer in caches.pop().layers if layer.keys is not None]
        assert held
        assert living_tensors() > before
        stream.stop()
        assert list(stream) == []
        assert [keys() for keys in held] == [None] * len(held)
        assert living_tensors() == before

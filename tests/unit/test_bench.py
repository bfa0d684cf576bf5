"""The benchmark: what is timed, what is left out, beside what, and what it does when cut short."""

import json
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

import engine
from engine import baselines, bench, benchoptions
from engine.__main__ import main
from engine.baselines import run_baseline
from engine.bench import measure_sweep
from engine.errors import RequestError
from engine.peak import with_peak
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from engine.sweep import DEFAULT_PROMPT, Progress, Rates, Sweep
from engine.sweepfile import loads
from engine.turns import turns_on
from tests.tiny import row_ids, scripted_lm, tiny_lm, token_ids

CPU = torch.device("cpu")
RATES = Rates(read_bytes_per_second=1e9, flops_per_second=1e10, dtype="float32")
FAMILIES = ["llama", "qwen3", "gpt2", "gemma3", "mistral", "qwen3_moe"]
PROMPTS = [token_ids("hello there"), token_ids("hi")]


def measure(lm, **asked) -> tuple[list[Progress], list[Sweep]]:
    """All news of a sweep, without the peak of memory and with known rates unless asked."""
    defaults = {"prompts": PROMPTS, "max_new_tokens": 4, "rates": RATES, "memory": False}
    news = list(measure_sweep(lm, **(defaults | asked)))
    progress = [one for one in news if isinstance(one, Progress)]
    return progress, [one for one in news if isinstance(one, Sweep)]


# What is timed


def test_c8_warm_ups_have_the_same_shape_and_are_in_no_figure(monkeypatch):
    """The first forwards take 100 s by a clock of the test's own, all others 1 s."""
    clock, tokens, warmup, runs = [0.0], 4, 2, 3

    def before_forward(_column: int) -> None:
        clock[0] += 100.0 if len(lm.model.calls) <= warmup * tokens else 1.0

    lm = scripted_lm([[65]], before_forward=before_forward)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    _, sweeps = measure(lm, batch_sizes=[2], max_new_tokens=tokens, warmup=warmup, runs=runs)
    ours = sweeps[-1].sizes[0].engine
    assert [sample.elapsed_seconds for sample in ours.samples] == [4.0] * runs
    assert ours.tpot == (1.0, 1.0, 1.0, 1.0)
    assert (ours.ttft.most, ours.prefill.most, ours.decode.most) == (1.0, 1.0, 3.0)
    assert ours.tokens_per_second.mean == 2.0
    shapes = [tuple(call.ids.shape) for call in lm.model.calls]
    assert shapes == [(2, 11), (2, 1), (2, 1), (2, 1)] * (warmup + runs)


def test_c8_a_run_has_decode_steps_to_measure():
    with pytest.raises(RequestError, match="at least 2, not 1"):
        measure_sweep(tiny_lm(), max_new_tokens=1)


def test_c15_empty_prompts_are_refused():
    lm = tiny_lm()
    with pytest.raises(RequestError, match="No prompt has more than 1 token"):
        measure_sweep(lm, prompts=["a", [65]])
    with pytest.raises(RequestError, match="Prompt 1 is empty"):
        measure_sweep(lm, prompts=[""])
    with pytest.raises(RequestError, match="no prompts"):
        measure_sweep(lm, prompts=[])
    assert measure_sweep(lm, prompts=["a", "to"])


def test_c15_the_default_prompt_is_one():
    _, sweeps = measure(tiny_lm(), prompts=[DEFAULT_PROMPT], batch_sizes=[1], runs=1)
    assert sweeps[-1].sizes[0].prompt_tokens == (len(DEFAULT_PROMPT),)  # a token is a byte


def test_rows_beyond_the_prompts_repeat_them_in_turn():
    _, sweeps = measure(tiny_lm(), batch_sizes=[1, 5], runs=1)
    assert [size.prompt_tokens for size in sweeps[-1].sizes] == [(11,), (11, 2, 11, 2, 11)]


def test_the_chat_template_is_put_round_the_prompts_if_asked():
    for chat, tokens in ((True, 4), (False, 2)):
        _, sweeps = measure(
            tiny_lm(chat=True), prompts=["hi"], batch_sizes=[1], runs=1, chat_template=chat
        )
        assert sweeps[-1].sizes[0].prompt_tokens == (tokens,)
        assert sweeps[-1].chat_template is chat


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"batch_sizes": []}, "no batch sizes"),
        ({"batch_sizes": [0]}, "The batch size must be at least 1, not 0"),
        ({"runs": 0}, "The number of runs must be at least 1, not 0"),
        ({"warmup": -1}, "warm-up runs must be at least 0, not -1"),
        ({"max_new_tokens": 600}, "Prompt 1 does not fit the model's context"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(asked, sentence):
    with pytest.raises(RequestError, match=sentence):
        measure_sweep(tiny_lm(), **asked)


def test_baselines_run_in_turn_before_and_after_the_engine():
    progress, sweeps = measure(
        tiny_lm(), batch_sizes=[1, 2], runs=3, warmup=1, baselines=["generate", "naive"]
    )
    pair, triple = ["engine", "generate"], ["engine", "generate", "naive"]
    assert [one.what for one in progress] == [
        *("warm-up", *triple, *reversed(triple), *triple),
        *("warm-up", *pair, *reversed(pair), *pair),
    ]
    assert [one.number for one in progress][:4] == [1, 1, 1, 1]
    assert {one.of for one in progress if one.what == "engine"} == {3}
    for size in sweeps[-1].sizes:
        for series in (size.engine, *size.baselines):
            assert len(series.samples) == 3
            assert all(s.generated_tokens == 4 * size.batch_size for s in series.samples)
            assert series.way == "engine" or series.ids_equal


def test_the_sweep_so_far_grows_run_by_run():
    _, sweeps = measure(tiny_lm(), batch_sizes=[1, 2], runs=2)
    counts = [[len(size.engine.samples) for size in sweep.sizes] for sweep in sweeps]
    assert counts == sorted(counts)
    assert all(one in counts for one in ([1], [2], [2, 0], [2, 1], [2, 2]))
    assert {sweep.status for sweep in sweeps[:-1]} == {"running"}
    last = sweeps[-1]
    assert (last.status, last.batch_sizes, last.warmup) == ("done", (1, 2), 1)
    assert last.sizes[1].floor.weight_bytes == last.sizes[0].floor.weight_bytes > 0


def test_a_size_that_is_named_twice_is_measured_once():
    _, sweeps = measure(tiny_lm(), batch_sizes=[2, 1, 2], runs=1)
    assert sweeps[-1].batch_sizes == (2, 1)


# Baselines


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_takes_the_same_steps_and_gives_the_same_ids(family):
    lm = tiny_lm(family)
    requests = make_requests(PROMPTS, max_new_tokens=12, ignore_eos=True)
    ours = row_ids(StaticBatchEngine(lm).run(requests))
    # An end token in the middle of a text, and settings that a real model brings along.
    settings = GenerationConfig(
        eos_token_id=ours[0][3], pad_token_id=1, do_sample=True, top_k=3, repetition_penalty=1.3
    )
    lm.model.generation_config = settings
    timed = run_baseline("generate", lm, PROMPTS, max_new_tokens=12)
    assert timed.ids == ours
    assert timed.sample.generated_tokens == 24
    assert lm.model.generation_config is settings


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_cache_the_ids_are_the_same(family):
    lm = tiny_lm(family)
    requests = make_requests(PROMPTS[:1], max_new_tokens=12, ignore_eos=True)
    timed = run_baseline("naive", lm, PROMPTS[:1], max_new_tokens=12)
    assert timed.ids == row_ids(StaticBatchEngine(lm).run(requests))
    sample = timed.sample
    assert sample.elapsed_seconds == pytest.approx(sample.ttft_seconds + 11 * sample.tpot_seconds)


def test_without_a_cache_every_forward_has_the_whole_text():
    lm = tiny_lm()
    lengths = []
    forward = lm.model.forward
    lm.model.forward = lambda **given: (
        lengths.append(given["input_ids"].shape[1]) or forward(**given)
    )
    run_baseline("naive", lm, PROMPTS[:1], max_new_tokens=4)
    assert lengths == [11, 12, 13, 14]


def test_the_engine_itself_can_run_beside_as_it_is(monkeypatch):
    lm, ran = tiny_lm(), []
    run = StaticBatchEngine.stream

    def stream(self, *args, **kwargs):
        ran.append((self.lm is lm, self.lm.model is lm.model, self.lm.graphs.reason))
        return run(self, *args, **kwargs)

    monkeypatch.setattr(StaticBatchEngine, "stream", stream)
    _, sweeps = measure(lm, batch_sizes=[2], runs=1, warmup=0, baselines=["eager"])
    [size] = sweeps[-1].sizes
    assert size.baseline("eager").ids_equal is True
    assert ran == [
        (True, True, "not on a CUDA device"),
        (False, True, "not asked to"),
    ]
    assert sweeps[-1].decode_path == "eager, replayed"


def test_other_ids_are_told(monkeypatch):
    real = baselines.with_generate

    def other(*args, **kwargs):
        timed = real(*args, **kwargs)
        timed.ids[0][2] += 1
        return timed

    monkeypatch.setattr(baselines, "with_generate", other)
    _, sweeps = measure(tiny_lm(), batch_sizes=[1], runs=1, baselines=["generate"])
    assert sweeps[-1].sizes[0].baseline("generate").ids_equal is False


# Memory


def test_the_peak_is_what_lives_at_once():
    def work():
        first = torch.ones(1000)
        second = first + 1
        del first
        return float((second + 1)[0])

    assert with_peak(work, CPU) == (3.0, pytest.approx(8000, abs=64))


def test_the_peak_of_a_run_grows_with_its_rows_and_takes_no_timed_run():
    progress, sweeps = measure(
        tiny_lm(), batch_sizes=[1, 8], runs=1, baselines=["generate"], memory=True
    )
    assert [one.what for one in progress].count("memory") == 4
    one, eight = sweeps[-1].sizes
    assert 0 < 4 * one.engine.peak_bytes < eight.engine.peak_bytes
    assert eight.baseline("generate").peak_bytes > 0
    assert len(eight.engine.samples) == 1
    _, sweeps = measure(tiny_lm(), batch_sizes=[1], runs=1)
    assert sweeps[-1].sizes[0].engine.peak_bytes is None


def test_on_cuda_the_allocator_counts_in_the_timed_runs(monkeypatch):
    peaks = iter([700, 900, 800])
    monkeypatch.setattr(bench, "counted_while_timed", lambda device: True)
    monkeypatch.setattr(bench, "with_peak", lambda work, device: (work(), next(peaks)))
    progress, sweeps = measure(tiny_lm(), batch_sizes=[1], runs=3, memory=True)
    assert [one.what for one in progress] == ["warm-up", "engine", "engine", "engine"]
    assert sweeps[-1].sizes[0].engine.peak_bytes == 900
    _, sweeps = measure(tiny_lm(), batch_sizes=[1], runs=1)
    assert sweeps[-1].sizes[0].engine.peak_bytes is None
    assert next(peaks, None) is None


def test_memory_is_counted_once_the_device_is_held(monkeypatch):
    held = []

    def counted(work, device):
        held.append(len(turns_on(device)))
        return work(), 1

    monkeypatch.setattr(bench, "with_peak", counted)
    measure(tiny_lm(), batch_sizes=[1], runs=1, baselines=["generate"], memory=True)
    assert held == [1, 1]


# Cut short


def test_stop_ends_the_sweep_and_keeps_what_was_measured():
    stop = threading.Event()
    lm = scripted_lm([[65]], before_forward=lambda _: len(lm.model.calls) > 9 and stop.set())
    _, sweeps = measure(lm, batch_sizes=[1, 2], runs=1, warmup=1, stop=stop)  # 8 forwards a size
    last = sweeps[-1]
    assert last.status == "stopped"
    assert [len(size.engine.samples) for size in last.sizes] == [1, 0]


def test_a_sweep_waits_in_line_and_can_be_stopped_there():
    looks = iter([False, True])
    stop, before = SimpleNamespace(is_set=lambda: next(looks)), turns_on("cpu").join()
    news = measure_sweep(tiny_lm(), prompts=PROMPTS, max_new_tokens=2, stop=stop)
    assert next(news) == Progress(0, "rates", 1, 1)
    assert next(news).status == "stopped"
    assert next(looks, None) is None
    before.leave()


def test_a_model_that_fails_ends_the_sweep_with_a_sentence():
    def before_forward(_column: int) -> None:
        if lm.model.calls[-1].ids.shape[0] == 2:
            raise ValueError("no pairs")

    lm = scripted_lm([[65]], before_forward=before_forward)
    _, sweeps = measure(lm, batch_sizes=[1, 2], runs=1)
    last = sweeps[-1]
    assert (last.status, last.error) == (
        "error",
        "The model failed in forward 1: ValueError: no pairs.",
    )
    assert len(last.sizes[0].engine.samples) == 1


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("odd"), "ValueError: odd"),
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory"),
    ],
)
def test_a_baseline_that_fails_ends_the_sweep_with_a_sentence(error, cause, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(baselines, "with_generate", fail)
    _, sweeps = measure(tiny_lm(), batch_sizes=[3], runs=1, baselines=["generate"])
    assert sweeps[-1].status == "error"
    assert sweeps[-1].error == f'The baseline "generate" at batch size 3 failed: {cause}.'


def test_a_device_that_cannot_be_measured_ends_the_sweep_with_a_sentence(monkeypatch):
    def fail(device, dtype):
        raise RuntimeError("no such product")

    monkeypatch.setattr(bench, "measure_rates", fail)
    _, sweeps = measure(tiny_lm(), rates=None)
    assert [sweep.error for sweep in sweeps] == [
        "Measuring the device failed: RuntimeError: no such product."
    ]


def test_a_sweep_that_is_closed_gives_the_device_back():
    news = measure_sweep(tiny_lm(), prompts=PROMPTS, max_new_tokens=2, rates=RATES)
    for one in news:
        if isinstance(one, Progress) and one.what == "engine":
            break
    news.close()
    assert len(turns_on("cpu")) == 0


# In a shell


@pytest.fixture
def shell(monkeypatch, capsys):
    """`python -m engine bench` on a tiny model -> exit status, stdout, stderr."""
    monkeypatch.setattr(bench, "measure_rates", lambda device, dtype: RATES)

    def run(*arguments, lm=None):
        lm = lm or tiny_lm()
        monkeypatch.setattr(engine, "load_model", lambda *_, **__: lm, raising=False)
        status = main(["bench", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


FEW = ("--batch-size", 1, 2, "--max-new-tokens", 3, "--runs", 2)


def test_c8_c15_the_shell_prints_a_table_and_one_line_of_json(shell, tmp_path):
    path = tmp_path / "sweep.json"
    status, out, err = shell(*FEW, "--baseline", "generate", "eager", "--json", path)
    assert status == 0
    assert out.count("\n") == 1
    sweep = loads(out)
    assert loads(path.read_text()) == sweep
    assert path.read_text().count("\n") > 50
    assert (sweep.status, sweep.batch_sizes, sweep.runs) == ("done", (1, 2), 2)
    assert [series.way for series in sweep.sizes[0].baselines] == [*("generate", "eager", "naive")]
    assert "2 runs of 3 new tokens in every row, greedy; 1 warm-up discarded" in err
    assert "prompt tokens: min 33, mean 33.0, max 33" in err
    assert "the same ids at batch size 1 and 2" in err
    assert err.startswith("batch size 1: ")
    assert json.loads(out)["kv_cache_decode"]["generated_tokens"] == [3, 3]


def test_the_shell_takes_prompts_from_options_and_a_file(shell, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("four\nfifth\n")
    _, out, _ = shell(
        *("--batch-size", 3, "--max-new-tokens", 2, "--runs", 1, "--skip-memory"),
        *("--skip-naive-baseline", "--prompt", "one", "--prompts-file", path),
    )
    [size] = loads(out).sizes
    assert size.prompt_tokens == (3, 4, 5)
    assert size.baselines == ()
    assert size.engine.peak_bytes is None


def test_the_shell_makes_a_model_of_a_shape(shell, tmp_path):
    config = tmp_path / "small.json"
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32}
    config.write_text(json.dumps(shape | {"model_type": "llama", "vocab_size": 300}))
    _, out, err = shell(*FEW, "--random-weights", config, "--device", "cpu", "--dtype", "float32")
    sweep = loads(out)
    assert sweep.model.name == "small, random weights"
    assert sweep.random_weights
    assert "its texts are noise" in err


def test_the_shell_asks_nobody_if_told_to(shell, monkeypatch):
    environment = {}
    monkeypatch.setattr(benchoptions, "os", SimpleNamespace(environ=environment))
    shell(*FEW, "--local-files-only")
    assert environment == {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}


def test_c8_the_shell_refuses_a_run_without_decode_steps(shell):
    status, out, err = shell("--max-new-tokens", 1)
    assert (status, out) == (2, "")
    assert err == "error: The new tokens of a benchmark must be at least 2, not 1.\n"


def test_c15_the_shell_refuses_prompts_of_a_token(shell):
    status, out, err = shell("--prompt", "x")
    assert (status, out) == (2, "")
    assert "No prompt has more than 1 token" in err


def test_ctrl_c_keeps_what_was_measured(shell):
    def before_forward(_column: int) -> None:
        if len(lm.model.calls) > 10:
            raise KeyboardInterrupt

    lm = scripted_lm([[65]], before_forward=before_forward)
    status, out, err = shell(*FEW, "--skip-naive-baseline", "--skip-memory", lm=lm)
    sweep = loads(out)
    assert status == 130
    assert sweep.status == "stopped"
    assert [len(size.engine.samples) for size in sweep.sizes] == [2, 0]
    assert "1 of 2 sizes measured" in err
    assert len(turns_on("cpu")) == 0


def test_a_failure_is_told_after_what_was_measured(shell):
    def before_forward(_column: int) -> None:
        if lm.model.calls[-1].ids.shape[0] == 2:
            raise ValueError("no pairs")

    lm = scripted_lm([[65]], before_forward=before_forward)
    status, out, err = shell(*FEW, "--skip-naive-baseline", "--skip-memory", lm=lm)
    assert status == 2
    assert loads(out).error in err.splitlines()[-1]
    assert len(loads(out).sizes[0].engine.samples) == 2

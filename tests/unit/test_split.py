"""One model over several devices: pretended ones, one that is there, and two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import dispatch_model

from engine import StaticBatchEngine, load_model, make_requests, memory, split
from engine.__main__ import main
from engine.errors import ModelError
from engine.memory import Need
from engine.models import LanguageModel, with_compiled_steps
from engine.paged import reason_against
from engine.ranks import processes
from engine.split import check_heads, check_spread, free_together, placement, shares, spread
from tests.tiny import byte_tokenizer, row_ids, tiny_lm

ROOT = Path(__file__).parents[2]
GPUS = tuple(torch.device("cuda", number) for number in range(3))
PROMPTS = ["Hello there", "Why", "x"]
BUDGETS = [12, 5, 20]


def under_torchrun(monkeypatch, count):
    """As the first of so many processes."""
    for name, value in torchrun_variables(count).items():
        monkeypatch.setenv(name, value)


def torchrun_variables(count):
    return {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": str(count)}


def requests():
    return make_requests(PROMPTS, max_new_tokens=BUDGETS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    lm = tiny_lm(vocab_size=258)  # transformers before 5.24 shares out no odd number
    lm.model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def over(*devices, processes=1):
    """What engine.split asks of a model, with its layers on these devices."""
    return SimpleNamespace(
        name="wide",
        device=devices[0],
        layer_devices=devices,
        processes=processes,
        model=SimpleNamespace(hf_device_map={str(at): each for at, each in enumerate(devices)}),
    )


# Devices that are not there


def test_no_step_mixes_two_devices():
    """With layers on both of two, full attention and windows, rotary positions and learned ones."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.pretend", "llama", "gemma3", "gpt2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("right over two devices") == 3


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_ids_are_those_of_the_whole_model(family):
    """accelerate's hooks, which move what goes in and out, on the one device that there is."""
    whole = StaticBatchEngine(tiny_lm(family), batch_size=3).run(requests())
    model = tiny_lm(family).model
    parts = {
        "model.embed_tokens": "cpu",
        "model.layers": "cpu",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    parts |= {name: "cpu" for name, _ in model.model.named_children() if name not in str(parts)}
    dispatch_model(model, parts, force_hooks=True, skip_keys=model._skip_keys_device_placement)
    lm = LanguageModel(model, tiny_lm(family).tokenizer, family)
    assert row_ids(StaticBatchEngine(lm, batch_size=3).run(requests())) == row_ids(whole)


def test_a_model_over_two_devices_says_so_and_decodes_as_it_is(monkeypatch, caplog):
    lm = tiny_lm()
    monkeypatch.setattr(LanguageModel, "layer_devices", GPUS[:2])
    assert lm.split == "2 devices"
    assert lm.info.device.endswith(", over 2 devices")
    assert lm.tapes.reason == "it lies over 2 devices"
    assert lm.decode_path == "eager"
    assert "over 2 devices" in reason_against(lm)
    with caplog.at_level("WARNING"):
        assert not with_compiled_steps(lm).compiled
    assert "decodes as it is, not compiled: it lies over 2 devices" in caplog.text


# Memory


def test_the_device_whose_share_fits_least_often_decides():
    lm = over(*[GPUS[0]] * 3, GPUS[1])
    free = {GPUS[0]: 90, GPUS[1]: 40}.get
    assert shares(lm) == {GPUS[0]: 0.75, GPUS[1]: 0.25}
    assert free_together(lm, free) == 120  # of which 90 are the first one's share
    assert spread(lm) == 4
    assert free_together(lm, {GPUS[0]: 90}.get) is None


def test_one_device_is_what_it_always_was():
    lm = over(GPUS[0], GPUS[0])
    assert free_together(lm, {GPUS[0]: 90}.get) == 90
    assert spread(lm) == 1
    need = Need(kv_bytes=10, total=25, rows=1, columns=1)
    assert need.where_split(1.0) == need


def test_only_the_cache_is_shared_out():
    """Two halves of the cache, beside which either device holds 15 at its largest moment."""
    need = Need(kv_bytes=10, total=25, rows=1, columns=1)
    assert need.where_split(2.0).total == 10 + 2 * 15


def test_a_run_over_two_devices_is_refused_where_one_of_them_is_full(monkeypatch):
    need = StaticBatchEngine(tiny_lm(), batch_size=3).forecast(requests())
    monkeypatch.setattr(LanguageModel, "layer_devices", GPUS[:2])
    each = need.kv_bytes // 2 + need.working_bytes
    for free, fits in ((each + 1, True), (each - 1, False)):
        monkeypatch.setattr(memory, "free_bytes", {GPUS[0]: 10**9, GPUS[1]: free}.get)
        assert StaticBatchEngine(tiny_lm(), batch_size=3).forecast(requests()).fits == fits


# What can't be


def test_without_a_map_nothing_is_spread():
    assert placement(None, "cuda:1", "m") == {}


@pytest.mark.parametrize(
    ("device_map", "device", "processes", "said"),
    [
        ("balanced", "auto", 1, "The device map must be auto, not 'balanced'."),
        ("auto", "cuda:1", 1, "With --device-map, m is spread over all devices: leave out --dev"),
        ("auto", "auto", 2, "Under torchrun each process has its own device: leave out --device-"),
        (None, "cuda:1", 2, "With torchrun, m is spread over all devices: leave out --device."),
    ],
)
def test_a_map_that_makes_no_sense(monkeypatch, device_map, device, processes, said):
    if processes > 1:
        under_torchrun(monkeypatch, processes)
    with pytest.raises(ModelError) as raised:
        placement(device_map, device, "m")
    assert said in str(raised.value)


def test_a_missing_accelerate_is_a_sentence(monkeypatch):
    monkeypatch.setattr(split, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="needs accelerate: pip install accelerate"):
        load_model("nowhere", device_map="auto")


@pytest.mark.parametrize("away", ["cpu", "disk"])
def test_a_model_that_the_devices_have_no_room_for(away):
    with pytest.raises(ModelError, match="wide does not fit into the memory of the devices"):
        check_spread(over(GPUS[0], away))


def test_heads_that_can_t_be_shared_out(monkeypatch):
    config = tiny_lm().model.config
    check_heads(config, "m")
    under_torchrun(monkeypatch, 2)
    check_heads(config, "m")
    under_torchrun(monkeypatch, 4)
    with pytest.raises(ModelError, match="m has 2 key and value heads"):
        check_heads(config, "m")


def test_the_page_does_not_run_under_torchrun():
    environment = os.environ | torchrun_variables(2)
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "The page runs in one process" in done.stderr


def test_what_a_cluster_has_left_in_the_environment_makes_no_processes(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes() == (0, 1)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert processes() == (1, 2)


def test_processes_that_sample_need_a_seed(monkeypatch, capsys):
    under_torchrun(monkeypatch, 2)
    assert main(["run", "--prompt", "Hi", "--temperature", "1"]) == 2
    assert "All processes must draw the same numbers: name a --seed." in capsys.readouterr().err


# What is there


def test_a_map_over_one_device_is_that_device(folder):
    whole = load_model(str(folder), device="cpu", dtype="float32")
    lm = load_model(str(folder), dtype="float32", device_map="auto")
    assert lm.split is None
    assert set(lm.layer_devices) == {lm.device}
    ids = [row_ids(StaticBatchEngine(each, batch_size=3).run(requests())) for each in (whole, lm)]
    assert torch.cuda.is_available() or ids[0] == ids[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="its processes would want a GPU each")
def test_two_processes_share_the_heads_of_each_layer(folder, tmp_path):
    """And one of them speaks for both: the same ids as in one process."""
    order = ["--raw", "--dtype", "float32", "--max-new-tokens", ",".join(map(str, BUDGETS))]
    for prompt in PROMPTS:
        order += ["--prompt", prompt]
    out = tmp_path / "run.json"
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", *torchrun, "-m", "engine", "run", *order),
            *("--model", str(folder), "--json", str(out)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Decode idle") == 1
    record = json.loads(out.read_text())
    assert record["model"]["device"] == "CPU, over 2 processes"
    lm = load_model(str(folder), device="cpu", dtype="float32")
    alone = StaticBatchEngine(lm, batch_size=3).run(requests())
    tokens = [list(step["tokens"]) for step in record["steps"]]
    assert tokens == [list(step.tokens) for step in alone.steps]

"""Loading a model by name: what is loaded, what is refused, and how that is said (cases F1-F3)."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BertConfig,
    BloomConfig,
    MambaConfig,
    PretrainedConfig,
    T5Config,
)

from engine.embedded import DEFAULT_MODEL, WHEEL_SHA256, cache_folder
from engine.errors import ModelError
from engine.models import LanguageModel, load_model, pick_device, pick_dtype
from engine.weights import ignore_progress
from tests.ggufs import write_gguf
from tests.tiny import EOS, VOCABULARY, byte_tokenizer, scripted_lm, tiny_config, tiny_lm

REPOSITORY = Path(__file__).parents[2]
COMMIT = "c0ffee" * 6 + "c0ff"
TOKEN = "hf_aSecretThatMustNeverBePrinted"


def save(lm: LanguageModel, folder: Path) -> Path:
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return folder


def save_config(config: PretrainedConfig, folder: Path) -> Path:
    """A folder that looks whole by its names; only the config can be read."""
    config.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (folder / "model.safetensors").touch()
    return folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A tiny model on disk. Copy it before changing it."""
    return save(tiny_lm(), tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A tiny model on disk, the test's own."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def load(name: object, **options: object) -> LanguageModel:
    return load_model(str(name), **({"device": "cpu", "dtype": "float32"} | options))


def logits(lm: LanguageModel) -> torch.Tensor:
    ids = torch.arange(10).unsqueeze(0)
    with torch.no_grad():
        return lm.model(ids).logits


def refusal(action: Callable[[], object]) -> str:
    """The ModelError that an action ends in, checked to be one plain sentence."""
    with pytest.raises(ModelError) as caught:
        action()
    text = str(caught.value)
    assert_sentence(text)
    return text


def assert_sentence(text: str) -> None:
    assert "\n" not in text
    assert text.endswith(".")
    assert not text.endswith("..")


# local files


def test_a_folder_is_loaded(saved):
    lm = load(saved)
    assert torch.equal(logits(lm), logits(tiny_lm()))
    assert (lm.name, lm.revision) == (str(saved), None)
    assert not lm.model.training
    info = lm.info
    assert (info.dtype, info.device, info.attention) == ("float32", "CPU", "sdpa")
    assert info.parameters == sum(p.numel() for p in tiny_lm().model.parameters())


def test_a_folder_is_found_below_home_and_from_here(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved.parent))
    assert load("~/tiny").max_positions == 512
    monkeypatch.chdir(saved.parent)
    assert load("tiny").max_positions == 512


def test_progress_is_told(saved):
    told = []
    load(saved, on_progress=lambda *step: told.append(step))
    assert told == [(f"Loading {saved}", None)]


def test_a_gguf_file_is_loaded(tmp_path):
    original = tiny_lm(vocab_size=VOCABULARY + 1)
    lm = load(write_gguf(original, tmp_path / "tiny.gguf"))
    torch.testing.assert_close(logits(lm), logits(original))
    assert lm.tokenizer("Hé ab")["input_ids"] == [*byte_tokenizer()("Hé ")["input_ids"], EOS + 1]
    assert lm.end_ids == {EOS}
    assert not hasattr(lm.model.config, "quantization_config")


def test_a_broken_gguf_file_is_refused(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF but not really")
    assert "bad.gguf can't be loaded" in refusal(lambda: load(tmp_path / "bad.gguf"))


def test_another_file_is_refused(saved):
    told = refusal(lambda: load(saved / "model.safetensors"))
    assert "neither a folder nor a .gguf file" in told


# device and dtype


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ({}, torch.float32),
        ({"avx512_f": True}, torch.float32),
        ({"avx512_bf16": True}, torch.float32),
        ({"avx512_bf16": True, "amx_bf16": True}, torch.bfloat16),
    ],
)
def test_auto_on_a_cpu_is_bfloat16_where_it_is_native(monkeypatch, saved, flags, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert load(saved, dtype="auto").model.dtype == dtype


def test_auto_takes_cuda_and_bfloat16_where_there_is_some(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")
    assert pick_dtype("auto", torch.device("cuda")) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_d6_weights_and_cache_have_the_dtype_that_was_chosen(saved, dtype):
    lm = load(saved, dtype=dtype)
    assert {weight.dtype for weight in lm.model.parameters()} == {getattr(torch, dtype)}
    assert (lm.info.dtype, lm.info.kv_dtype) == (dtype, dtype)
    # 2 layers, 2 kv heads of 8, keys and values
    assert lm.info.kv_bytes_per_token == 64 * getattr(torch, dtype).itemsize
    assert any("rounds by batch shape" in note for note in lm.notes) == (dtype != "float32")


def test_f5_auto_on_an_apple_gpu_is_float32_and_is_noted(monkeypatch):
    apple = torch.device("mps")
    assert pick_dtype("auto", apple) == torch.float32
    assert pick_dtype("bfloat16", apple) == torch.bfloat16
    lm = tiny_lm()
    monkeypatch.setattr(type(lm), "device", apple)
    assert "float32: bfloat16 is not right on every Apple GPU" in lm.notes


@pytest.mark.parametrize("dtype", ["fp16", "int8", "", "FLOAT32"])
def test_an_unknown_dtype_is_refused(saved, dtype):
    assert "float16, not" in refusal(lambda: load(saved, dtype=dtype))


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("gpu", "no device called 'gpu'"),
        ("", "no device called ''"),
        ("cpu:x", "no device called 'cpu:x'"),
        ("meta", "auto, cpu, cuda or mps, not 'meta'"),
        ("cuda", "no CUDA device here"),
        ("mps", "no MPS device here"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, saved, device, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert reason in refusal(lambda: load(saved, device=device))


def test_a_cuda_index_beyond_the_last_is_refused(monkeypatch, saved):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "no CUDA device 2 here" in refusal(lambda: load(saved, device="cuda:2"))
    assert pick_device("cuda:1") == torch.device("cuda", 1)


def test_a_model_that_does_not_fit_is_one_sentence(monkeypatch, saved):
    def fail(*_args: object, **_options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB.")

    monkeypatch.setattr("engine.models.read_files", fail)
    assert "does not fit into the memory" in refusal(lambda: load(saved))


# names and folders that are refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "No model was named"),
        (" \n", "No model was named"),
        ("../x", "not a model name"),
        ("-x", "not a model name"),
        ("modèle", "no file or folder"),
        ("x" * 5000, "not a model name"),
        ("a/b/c", "no file or folder 'a/b/c'"),
        ("https://hub.example/org/model", "no file or folder"),
        ("/no/such/folder", "no file or folder"),
        ("~no-such-user/x", "no file or folder"),
        ("no-such.gguf", "no file or folder"),
        ("a\0b", "no file or folder"),
        ("two\nlines", "no file or folder"),
        ("..", "has no config.json"),
    ],
)
def test_a_name_that_means_nothing_is_refused(monkeypatch, tmp_path, name, reason):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert reason in refusal(lambda: load(name))


def test_a_folder_without_a_config_is_refused(folder):
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(lambda: load(folder))


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.mark,))


def test_pickled_weights_are_refused_unread(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert "no safetensors weights" in refusal(lambda: load(folder))
    assert not (tmp_path / "exploded").exists()


def test_a_models_own_code_is_never_run_nor_asked_about(folder, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("builtins.input", lambda prompt="": asked.append(prompt) or "y")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "homemade"
    config["auto_map"] = {"AutoConfig": "homemade.C", "AutoModelForCausalLM": "homemade.M"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "homemade.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "custom code" in refusal(lambda: load(folder))
    assert not (tmp_path / "ran").exists()
    assert asked == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (T5Config(num_layers=1, vocab_size=VOCABULARY), "encoder-decoder model"),
        (BartConfig(encoder_layers=1, decoder_layers=1), "encoder-decoder model"),
        (BertConfig(num_hidden_layers=1), "is an encoder"),
    ],
    ids=["t5", "bart", "bert"],
)
def test_a_model_that_is_no_decoder_is_refused(tmp_path, config, reason):
    told = refusal(lambda: load(save_config(config, tmp_path / "model")))
    assert reason in told
    assert "only decoder-only models are run" in told


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4),
            "pads would enter its recurrent state",
        ),
        (
            BloomConfig(vocab_size=VOCABULARY, hidden_size=16, n_layer=1, n_head=2),
            "it takes no positions",
        ),
    ],
    ids=["recurrent", "alibi"],
)
def test_a_decoder_that_pads_would_change_is_refused(tmp_path, config, reason):
    lm = LanguageModel(AutoModelForCausalLM.from_config(config), byte_tokenizer(), "odd")
    assert reason in refusal(lambda: load(save(lm, tmp_path / "model")))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{ not json"),
        ("config.json", "{}"),
        ("config.json", '{"model_type": "from-the-future"}'),
        ("config.json", '{"model_type": "llama", "hidden_size": "many"}'),
        ("model.safetensors", "not safetensors"),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", None),
    ],
)
def test_a_damaged_folder_is_one_sentence(folder, file, content):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    assert "can't be loaded: " in refusal(lambda: load(folder))


def test_truncated_weights_are_one_sentence(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "can't be loaded: " in refusal(lambda: load(folder))


# what the engine needs to know of a model


@pytest.mark.parametrize(
    ("configured", "ends"),
    [(7, {7, EOS}), ([7, 9], {7, 9, EOS}), (None, {EOS}), ([], {EOS}), (0, {0, EOS})],
)
def test_end_ids_join_the_generation_config_and_the_tokenizer(configured, ends):
    assert scripted_lm([[1]], eos_token_id=configured).end_ids == ends


def test_end_ids_may_be_none_at_all():
    lm = scripted_lm([[1]], eos_token_id=None)
    lm.model.config.eos_token_id = lm.tokenizer.eos_token = None
    assert lm.end_ids == frozenset()
    assert lm.pad_id == 0
    assert "no pad token: using id 0" in lm.notes


def test_the_pad_id_is_the_tokenizers_own_if_there_is_one():
    lm = tiny_lm()
    lm.tokenizer.pad_token = "!"
    assert lm.pad_id == lm.tokenizer.convert_tokens_to_ids("!") != EOS
    assert not any("pad" in note for note in lm.notes)


def test_without_a_pad_token_eos_pads(saved):
    lm = load(saved)
    assert lm.tokenizer.pad_token_id is None
    assert lm.pad_id == EOS
    assert "no pad token: using EOS" in lm.notes


def test_a_pad_token_beyond_the_embedding_table_is_not_used():
    lm = tiny_lm()
    lm.tokenizer.add_special_tokens({"pad_token": "<pad>"})
    assert lm.tokenizer.pad_token_id >= lm.vocab_size
    assert lm.pad_id == EOS
    assert "no pad token: using EOS" in lm.notes


def test_end_ids_beyond_the_embedding_table_do_not_pad():
    lm = scripted_lm([[1]], eos_token_id=[VOCABULARY + 3, 9])
    lm.tokenizer.eos_token = None
    assert lm.pad_id == 9
    assert scripted_lm([[1]], eos_token_id=[-1]).pad_id == EOS


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "mistral"])
def test_positions_and_windows_are_read_from_the_config(family):
    lm = tiny_lm(family)
    assert lm.max_positions == 512
    assert lm.has_sliding_window == (family == "mistral")
    assert lm.vocab_size == VOCABULARY


def test_a_config_without_positions_sets_no_limit():
    lm = LanguageModel(SimpleNamespace(config=BloomConfig()), byte_tokenizer(), "bloom")
    assert lm.max_positions is None


def test_f3_a_base_model_has_a_note_instead_of_a_chat_template(tmp_path):
    base = load(save(tiny_lm("gpt2"), tmp_path / "base"))
    assert not base.has_chat_template
    assert "no chat template: raw prompt used" in base.notes
    chat = load(save(tiny_lm(chat=True), tmp_path / "chat"))
    assert chat.has_chat_template
    assert not any("template" in note for note in chat.notes)


@pytest.mark.parametrize("argument", ["cache", "past_key_values"])
def test_the_cache_is_passed_under_the_models_own_name(argument):
    class Model(torch.nn.Module):
        config = tiny_config("llama")
        exec(f"def forward(self, input_ids, position_ids, {argument}=None): ...")

    lm = LanguageModel(Model(), byte_tokenizer(), "stub")
    assert lm._cache_argument == argument
    lm.check_batchable()


def test_this_transformers_takes_the_cache_that_is_passed():
    lm = tiny_lm()
    cache = lm.new_cache()
    positions = torch.arange(3).unsqueeze(0)
    mask = torch.ones(1, 3, dtype=torch.long)
    with torch.no_grad():
        out = lm.forward(positions, mask=mask, position_ids=positions, cache=cache, last=[2])
    assert cache.get_seq_length() == 3
    torch.testing.assert_close(out, logits(lm)[:, 2])


# the hub, played by a server on this machine; its library reads its settings once per process

ASK = """
import json, os, sys, time, traceback
from engine.errors import ModelError
from engine.models import load_model
for name, token in json.loads(sys.argv[1]):
    os.environ.pop("HF_TOKEN", None)
    if token:
        os.environ["HF_TOKEN"] = token
    answer, started = {"error": None, "revision": None}, time.perf_counter()
    try:
        answer["revision"] = load_model(name, device="cpu", dtype="float32").revision
    except ModelError as error:
        answer["error"] = str(error)
        traceback.print_exc()
    print(json.dumps(answer | {"seconds": time.perf_counter() - started}))
"""


class Answer(NamedTuple):
    error: str | None
    revision: str | None
    seconds: float


def ask(home: Path, names: list[tuple[str, str | None]], **environment: str) -> list[Answer]:
    """Load each name with its token, in one other process. No token is ever printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    made = {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    process = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(names)],
        env=kept | made | environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    for _, token in names:
        assert token is None or token not in process.stdout + process.stderr
    answers = [Answer(**json.loads(line)) for line in process.stdout.splitlines()]
    for answer in answers:
        if answer.error:
            assert_sentence(answer.error)
    return answers


class Hub(ThreadingHTTPServer):
    """Answers as the hub does: `org/tiny` may be read by all, `org/gated` by no one,
    `org/silent` never answers, `org/down` answers 503, `org/pickled` has no safetensors, and
    others do not exist."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        extra = {"pytorch_model.bin": b"?", "onnx/model.safetensors": b"?", "README.md": b"?"}
        self.repos = {
            "org/tiny": files | extra,
            "org/gated": files,
            "org/pickled": {"config.json": b"{}", "pytorch_model.bin": b"?"},
        }
        self.asked: list[str] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        api = self.path.startswith("/api/models/")
        parts = self.path.removeprefix("/api/models").split("?")[0].split("/")
        repo, rest = "/".join(parts[1:3]), "/".join(parts[3:])
        files = self.server.repos.get(repo)
        if TOKEN in self.headers.get("Authorization", ""):
            message = "Invalid credentials in Authorization header"
            self.answer(401, **{"X-Error-Message": message})
        elif repo == "org/silent":
            self.server.over.wait(60)
        elif repo == "org/down":
            self.answer(503)
        elif files is None:
            self.answer(401, **{"X-Error-Code": "RepoNotFound"})
        elif api and rest.startswith("tree/"):
            tree = [
                {"type": "file", "path": path, "size": len(content), "oid": f"{path}-blob"}
                for path, content in files.items()
            ]
            self.answer(200, json.dumps(tree).encode())
        elif api:
            self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": []}).encode())
        elif repo == "org/gated":
            self.answer(403, **{"X-Error-Code": "GatedRepo"})
        else:
            name = rest.removeprefix(f"resolve/{COMMIT}/")
            tag = f'"{name}-blob"'
            self.answer(200, files[name], **{"X-Repo-Commit": COMMIT, "ETag": tag})

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def hub(saved) -> Iterator[Hub]:
    made = Hub(saved)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    thread.join()
    made.server_close()


def cache_snapshot(home: Path, name: str, folder: Path) -> None:
    """Lay a model out as the hub's library caches it."""
    repo = home / "hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, repo / "snapshots" / COMMIT)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)


def test_f1_the_hubs_refusals_are_told_apart(hub, saved, tmp_path):
    cache_snapshot(tmp_path, "org/kept", saved)
    names = {
        "not found": ("gpt2-small/gpt2-small", None),
        "gated": ("org/gated", "hf_valid"),
        "rejected": ("org/tiny", TOKEN),
        "foreign": ("org/tiny", "hf_é"),
        "pickled": ("org/pickled", None),
        "down": ("org/down", None),
        "silent": ("org/silent", None),
        "found": ("org/tiny", "hf_valid"),
        "kept": ("org/kept", None),
    }
    answered = ask(tmp_path, list(names.values()), HF_ENDPOINT=hub.url)
    answers = dict(zip(names, answered, strict=True))

    told = {key: answer.error for key, answer in answers.items()}
    assert "was not found on the hub" in told["not found"]
    assert "org/gated needs access" in told["gated"]
    assert told["rejected"] == "The hub rejected your access token."
    assert "check the access token" in told["foreign"]
    assert "no safetensors weights" in told["pickled"]
    assert "answered 503 for org/down" in told["down"]
    assert told["silent"] == "org/silent is not in the local cache and there is no network."
    assert max(answer.seconds for answer in answers.values()) < 10

    assert (told["found"], answers["found"].revision) == (None, COMMIT)
    fetched = {path.partition(f"resolve/{COMMIT}/")[2] for path in hub.asked}
    assert "model.safetensors" in fetched
    assert not {"pytorch_model.bin", "onnx/model.safetensors", "README.md"} & fetched
    # What the hub refuses but the cache has is loaded from there.
    assert (told["kept"], answers["kept"].revision) == (None, COMMIT)


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("why", ["offline", "unreachable"])
def test_f2_without_a_network_the_cache_is_used(saved, tmp_path, why):
    cache_snapshot(tmp_path, "org/kept", saved)
    blocked = {"HF_ENDPOINT": f"http://127.0.0.1:{closed_port()}"}
    environment = {"HF_HUB_OFFLINE": "1"} if why == "offline" else blocked
    kept, lacking = ask(tmp_path, [("org/kept", None), ("org/lacking", None)], **environment)
    assert (kept.error, kept.revision) == (None, COMMIT)
    assert lacking.error == "org/lacking is not in the local cache and there is no network."
    assert max(kept.seconds, lacking.seconds) < 5


def test_f2_loading_a_folder_asks_no_hub(hub, saved, tmp_path):
    (answer,) = ask(tmp_path, [(str(saved), None)], HF_ENDPOINT=hub.url)
    assert answer.error is None
    assert hub.asked == []


default_is_cached = (cache_folder() / f"{DEFAULT_MODEL}-{WHEEL_SHA256[:8]}").is_dir()


@pytest.mark.skipif(
    not default_is_cached and os.environ.get("CI") != "true",
    reason="the default model is not in the cache: load it once",
)
def test_f2_the_default_model_is_loaded():
    lm = load_model(device="cpu", dtype="float32", on_progress=ignore_progress)
    assert lm.name == DEFAULT_MODEL
    assert lm.info.parameters == 134_515_008
    assert lm.max_positions == 8192
    assert lm.has_chat_template
    assert lm.tokenizer.decode(sorted(lm.end_ids)) == "<|im_end|>"
    assert lm.notes == ()
    ids = lm.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert lm.tokenizer.decode(lm.model(ids).logits[0, -1].argmax()) == " Paris"

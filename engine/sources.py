"""Where a model's files come from: the embedded default, a local path, or a hub id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from engine.embedded import fetch_embedded
from engine.errors import ModelError
from engine.presets import DEFAULT_MODEL
from engine.weights import OnProgress

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HUB_COPIES = ["*/*", "consolidated*"]
"""The same weights once more, in formats that transformers does not read."""
CONNECT_SECONDS = 2  # for each of the hub's addresses
ANSWER_SECONDS = 5
UNREACHABLE = {
    "ConnectionError",  # HF_HUB_OFFLINE included
    "LocalEntryNotFoundError",
    "NetworkError",
    "RemoteProtocolError",
    "TimeoutException",
}


class ModelFiles(NamedTuple):
    """A folder that transformers can read; `gguf_file` names the file in it that holds all."""

    folder: Path
    gguf_file: str | None = None
    revision: str | None = None


def find_files(name: str, on_progress: OnProgress) -> ModelFiles:
    """The files of a model, fetched if need be. Raises ModelError with one sentence."""
    if name == DEFAULT_MODEL:
        embedded = fetch_embedded(on_progress)
        return ModelFiles(embedded.folder, revision=embedded.revision)
    if not name.strip():
        raise ModelError("No model was named.")
    if path := existing_path(name):
        return find_locally(name, path)
    if name.endswith(".gguf") or not HUB_ID.fullmatch(name):
        raise ModelError(f"There is no file or folder {name!r}.")
    return find_on_hub(name, on_progress)


def existing_path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, of an unknown user, not permitted
        return None


def find_locally(name: str, path: Path) -> ModelFiles:
    if path.is_dir():
        check_folder(name, path)
        return ModelFiles(path)
    if path.suffix == ".gguf":
        return ModelFiles(path.parent, gguf_file=path.name)
    raise ModelError(f"{name} is neither a folder nor a .gguf file.")


def check_folder(name: str, folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{name} is not a transformers model: it has no config.json.")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{name} has no safetensors weights, and no other format is read.")


def find_on_hub(name: str, on_progress: OnProgress) -> ModelFiles:
    """A snapshot from the hub, or from its local cache where the hub gives none."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError

    on_progress(f"Fetching {name} from the hub", None)
    try:
        # Asked first because snapshot_download itself waits for an answer without a limit.
        limits = (CONNECT_SECONDS, ANSWER_SECONDS, ANSWER_SECONDS, ANSWER_SECONDS)
        HfApi().model_info(name, timeout=limits)
        folder = Path(
            snapshot_download(
                name,
                allow_patterns=HUB_FILES,
                ignore_patterns=HUB_COPIES,
                etag_timeout=ANSWER_SECONDS,
            )
        )
    except HFValidationError as error:
        raise ModelError(f"{name} is not a model name.") from error
    except (HTTPError, OSError, ValueError, ImportError) as error:
        folder = find_in_cache(name)
        if folder is None:
            # Without its cause: some of them quote the access token.
            raise ModelError(explain(error, name)) from None
    check_folder(name, folder)
    return ModelFiles(folder, revision=folder.name)


def find_in_cache(name: str) -> Path | None:
    """The folder of a snapshot that was fetched before, as far as the hub's library can tell."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=HUB_FILES,
                ignore_patterns=HUB_COPIES,
                local_files_only=True,
            )
        )
    except LocalEntryNotFoundError:
        return None


def explain(error: Exception, name: str) -> str:
    """One sentence on why the hub gave no files."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, GatedRepoError):
        return f"{name} needs access: ask for it on its model page, then set HF_TOKEN."
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return f"{name} was not found on the hub (mistyped, or private without a token)."
    if status == 401:
        return "The hub rejected your access token."
    if status:
        return f"The hub answered {status} for {name}, which is not in the local cache."
    if is_unreachable(error):
        return f"{name} is not in the local cache and there is no network."
    if isinstance(error, OSError):
        return f"{name} can't be kept in the local cache: {error.strerror or 'it is unusable'}."
    return f"The hub can't be asked for {name}: check the access token and the proxy settings."


def is_unreachable(error: Exception) -> bool:
    """Told by names, as the hub's library moved from httpx to httpx2, which share no classes."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint(UNREACHABLE)

"""Where a model's files come from: the embedded default, a local path, or a hub id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from engine.embedded import DEFAULT_MODEL, fetch_embedded
from engine.errors import ModelError
from engine.weights import OnProgress

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HUB_TIMEOUT_SECONDS = 5


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
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return ModelFiles(path.parent, gguf_file=path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"The folder {name} holds no model: it has no config.json.")
        return ModelFiles(path)
    if path.suffix == ".gguf" or not HUB_ID.fullmatch(name):
        raise ModelError(f"There is no file or folder {name}.")
    return find_on_hub(name, on_progress)


def find_on_hub(name: str, on_progress: OnProgress) -> ModelFiles:
    """A snapshot from the hub, or from its local cache where the hub can't be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    on_progress(f"Fetching {name} from the hub", None)
    try:
        folder = snapshot_download(name, allow_patterns=HUB_FILES, etag_timeout=HUB_TIMEOUT_SECONDS)
    except GatedRepoError as error:
        raise ModelError(f"{name} needs access: ask for it on its model page.") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"{name} was not found on the hub (mistyped, or private without a token)."
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{name} is not in the local cache and there is no network.") from error
    except HFValidationError as error:
        raise ModelError(f"{name} is not a model name.") from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status == 401:
            raise ModelError("The hub rejected your access token.") from error
        raise ModelError(f"The hub answered {status} for {name}.") from error
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{name} has no config.json: it is not a transformers model.")
    return ModelFiles(folder, revision=folder.name)

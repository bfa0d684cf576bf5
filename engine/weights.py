"""A folder of weights on disk -> model and tokenizer in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

OnProgress = Callable[[str, float | None], None]
"""Called with what is being done and the fraction done, None where it can't be known."""

# Unless it is told not to, transformers asks on the terminal whether to run a model's own code.
DATA_ONLY = {"local_files_only": True, "trust_remote_code": False}


def ignore_progress(_message: str, _fraction: float | None) -> None:
    """The OnProgress of someone who doesn't care."""


def read_config(folder: Path) -> PretrainedConfig:
    return AutoConfig.from_pretrained(folder, **DATA_ONLY)


def read_files(
    folder: Path,
    gguf_file: str | None,
    dtype: torch.dtype,
    *,
    spread: Mapping[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read a model folder, or a GGUF file in it (de-quantised while loading); `spread` says over
    which devices, as `from_pretrained` takes it, None for the CPU alone."""
    transformers.utils.logging.disable_progress_bar()
    source = {"gguf_file": gguf_file} if gguf_file else {}
    # Left to itself, transformers keeps GGUF blocks packed where it can, with kernels from the hub.
    unpacked = {"quantization_config": GgufConfig(dequantize=True)}
    weights = unpacked if gguf_file else {"use_safetensors": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, **DATA_ONLY, **source)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, **DATA_ONLY, **source, **weights, **(spread or {})
    )
    return model, tokenizer

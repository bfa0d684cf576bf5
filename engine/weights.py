"""A folder of weights on disk -> model and tokenizer in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

OnProgress = Callable[[str, float | None], None]
"""Called with what is being done and the fraction done, None where it can't be known."""


def ignore_progress(_message: str, _fraction: float | None) -> None:
    """The OnProgress of someone who doesn't care."""


def read_files(
    folder: Path, gguf_file: str | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read a model folder, or a GGUF file in it (de-quantised while loading)."""
    transformers.utils.logging.disable_progress_bar()
    source = {"gguf_file": gguf_file} if gguf_file else {}
    weights = {} if gguf_file else {"use_safetensors": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **source)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, **source, **weights
    )
    return model, tokenizer

"""A model of a given shape with random weights: its speed can be measured where it can't be had.

What it says is noise. How long a step takes does not depend on the values of weights.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from string import ascii_lowercase

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from engine.errors import ModelError
from engine.models import (
    Device,
    Dtype,
    LanguageModel,
    check_family,
    one_sentence,
    pick_device,
    pick_dtype,
    with_compiled_steps,
)
from engine.threads import fit_threads

SHAPES = {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.json"))}
"""Configs that are shipped, by name."""

END = "<end>"
LETTERS = 4
"""Of a word that stands for an id: 26**4 words are more than any vocabulary."""


def random_lm(
    config: str,
    *,
    device: Device = "auto",
    dtype: Dtype = "auto",
    compile: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """A model of a shipped shape ("qwen3-0.6b"), a config.json or the folder that holds one;
    device, dtype and `compile` as `load_model` takes them.

    The weights are made on the device and in the dtype that they have in the end, so that there is
    no second copy of them at any time. Raises ModelError with one sentence.
    """
    target = pick_device(device)
    if target.type == "cpu":
        fit_threads()
    weights = pick_dtype(dtype, target)
    with one_sentence(config):
        shape = read_shape(config)
        check_family(shape, config)
        torch.manual_seed(seed)
        with torch.device(target):  # rotary tables too, which transformers fills in as it builds
            model = AutoModelForCausalLM.from_config(
                shape, dtype=weights, attn_implementation="sdpa", trust_remote_code=False
            )
        name = f"{Path(config).stem if config not in SHAPES else config}, random weights"
        lm = LanguageModel(model.eval(), word_tokenizer(shape), name)
        if compile:
            return with_compiled_steps(lm)
        lm.products.lay_out()
        return lm


def read_shape(config: str) -> PretrainedConfig:
    path = SHAPES.get(config, Path(config))
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        known = " or ".join(SHAPES)
        raise ModelError(f"{config} is neither a config.json nor a known shape ({known}).")
    fields = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise ModelError(f"{config} is no model's config: it has no model_type.")
    return AutoConfig.for_model(**fields)


def word_tokenizer(config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """One token per byte of UTF-8, ids 0 to 255; every other id of the vocabulary is a word of its
    own when it is read, and none of a prompt's. Nothing ends a text."""
    size = config.get_text_config().vocab_size
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ("Ġ" + "".join(letters) for letters in product(ascii_lowercase, repeat=LETTERS))
    vocabulary = dict(zip([*alphabet, *words], range(size), strict=False))
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)

"""A model made from a config alone: whole, in its dtype, and the same for the same seed."""

import json

import pytest
import torch

from engine import randomweights
from engine.errors import ModelError
from engine.randomweights import random_lm, read_shape, word_tokenizer
from engine.requests import make_requests
from engine.selfcheck import check_rows
from engine.static import StaticBatchEngine

SHAPE = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
    "rope_theta": 1000000,
    "max_position_embeddings": 512,
}


@pytest.fixture
def config(tmp_path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return str(tmp_path / "config.json")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_weights_are_there_and_its_rotary_tables_are_right(config, dtype):
    lm = random_lm(config, device="cpu", dtype=dtype)
    assert {str(weight.dtype) for weight in lm.model.parameters()} == {f"torch.{dtype}"}
    table = dict(lm.model.named_buffers())["model.rotary_emb.inv_freq"]
    assert table.dtype == torch.float32
    torch.testing.assert_close(table, 1e6 ** (-torch.arange(0, 16, 2) / 16))
    check_rows(lm)  # logits are finite, and those of the model alone
    assert "random weights" in lm.name
    assert lm.info.dtype == dtype


def test_it_runs_and_says_words(config):
    lm = random_lm(config, device="cpu", dtype="float32")
    run = StaticBatchEngine(lm).run(make_requests(["Hi", "Hello"], max_new_tokens=6))
    assert [len(step.tokens) for step in run.steps] == [2] * 6  # nothing ends a text
    assert all(run.texts)
    assert run.batches[0].prompt_lengths == (2, 5)


def test_its_threads_are_those_of_a_loaded_model(config, monkeypatch):
    fitted = []
    monkeypatch.setattr(randomweights, "fit_threads", lambda: fitted.append(True))
    random_lm(config, device="cpu")
    assert fitted == [True]


def test_the_seed_says_which_weights(config, tmp_path):
    def weights(seed: int) -> torch.Tensor:
        lm = random_lm(config, device="cpu", dtype="float32", seed=seed)
        return torch.cat([weight.flatten() for weight in lm.model.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_every_id_has_a_word_of_its_own_and_prompts_are_bytes():
    tokenizer = word_tokenizer(read_shape("qwen3-0.6b"))
    assert len(tokenizer) == 151_936
    assert tokenizer("é!")["input_ids"] == [
        *tokenizer("é")["input_ids"],
        tokenizer("!").input_ids[0],
    ]
    assert len(tokenizer("é")["input_ids"]) == 2
    assert tokenizer.decode(tokenizer("é!")["input_ids"]) == "é!"
    words = [tokenizer.decode([token]) for token in (256, 257, 151_935)]
    assert len({word.strip() for word in words}) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "neither a config.json nor a known shape"),
        ("[]", "no model_type"),
        ("{", "can't be loaded: Expecting property name"),
        ('{"model_type": "unheard-of"}', "can't be loaded"),
        ('{"model_type": "t5", "is_encoder_decoder": true}', "encoder-decoder"),
    ],
)
def test_what_is_no_shape_is_refused_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "shape.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelError, match=sentence):
        random_lm(str(path), device="cpu")


def test_a_folder_is_its_config(config, tmp_path):
    assert read_shape(str(tmp_path)).hidden_size == 64

"""What can't be batched rightly is refused, with the reason; what is approximate says so."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

import engine.selfcheck
from engine.errors import ModelError, RequestError
from engine.models import LanguageModel, load_model
from engine.requests import make_requests
from engine.selfcheck import check_rows, distance
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.tiny import SIZE, byte_tokenizer, row_ids, tiny_lm

MIXED = ["sliding_attention", "full_attention"]
WINDOW = {"sliding_window": 8, "layer_types": MIXED}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 16,
    "num_experts_per_tok": 2,
}

EQUAL: dict[str, dict[str, Any]] = {
    "cohere": {},
    "cohere2": WINDOW,
    "deepseek_v3": LATENT,
    "falcon": {"head_dim": ..., "alibi": False, "new_decoder_architecture": True},
    "gemma": {},
    "gemma2": WINDOW,
    "gemma3n_text": WINDOW
    | {
        "num_hidden_layers": 4,
        "layer_types": MIXED * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 257,
        "hidden_size_per_layer_input": 8,
    },
    "glm4": {},
    "gpt_bigcode": {"n_inner": 64},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "window_size": 8}
    | {"attention_types": [[["global", "local"], 1]]},
    "gpt_neox": {},
    "gpt_oss": WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gptj": {"rotary_dim": 8, "n_inner": 64},
    "granite": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": WINDOW,
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "phi": {},
    "phi3": {"sliding_window": 8},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 8},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 16},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": {"sliding_window": 8},
}

RECURRENT = "pads would enter its recurrent state"
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({"state_size": 4}, RECURRENT),
    "rwkv": ({"attention_hidden_size": 32}, RECURRENT),
    "recurrent_gemma": ({"lru_width": 32}, RECURRENT),
    "falcon_h1": (MAMBA, RECURRENT),
    "jamba": ({"num_experts": 2, "mamba_d_state": 4, "use_mamba_kernels": False}, RECURRENT),
    "lfm2": ({"layer_types": ["conv", "full_attention"]}, RECURRENT),
    "minimax": ({"num_local_experts": 2}, RECURRENT),
    "qwen3_next": ({"num_experts": 2, "num_experts_per_tok": 1}, RECURRENT),
    "bloom": ({"n_layer": 1}, "takes no positions"),
    "mpt": ({"n_layers": 1, "n_heads": 4}, "takes no positions"),
    "falcon": ({"head_dim": ..., "alibi": True}, "ALiBi"),
    "llama4_text": (
        {"layer_types": ["chunked_attention"] * 2, "num_local_experts": 2},
        "chunked attention is not supported",
    ),
    "deepseek_v32": (
        LATENT | {"index_n_heads": 2, "index_head_dim": 16},
        "more than keys and values",
    ),
    "bert-generation": ({"is_decoder": False}, "looks ahead"),
    "gemma3_text": (WINDOW | {"use_bidirectional_attention": True}, "looks ahead"),
    "hrm_text": ({}, "looks ahead"),
}


def make(kind: str, options: dict[str, Any], *, device: str = "cpu") -> LanguageModel:
    """A tiny random model; an option that is ... leaves the size out that a config won't take."""
    given = {name: value for name, value in (SIZE | options).items() if value is not ...}
    config = CONFIG_MAPPING[kind](**given)
    torch.manual_seed(3)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config).float().eval()
    if device != "meta":
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4.0)
    return LanguageModel(model, byte_tokenizer(), name=kind)


@pytest.mark.parametrize("kind", EQUAL)
def test_a_rows_ids_equal_its_solo_run(kind):
    """Prompts on both sides of the window of 8, and budgets that cross it."""
    lm = make(kind, EQUAL[kind])
    prompts = ["a", "seven..", "a prompt of twenty-two", [7, 7, 7]]
    requests = make_requests(prompts, max_new_tokens=[12, 12, 6, 12])
    alone = row_ids(SerialEngine(lm).run(requests))
    assert len({tuple(ids) for ids in alone}) == len(alone)
    sides = ["left"] if lm.has_sliding_window else ["left", "right"]
    for side in sides:
        assert row_ids(StaticBatchEngine(lm, padding_side=side).run(requests)) == alone
    check_rows(lm)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_pads_would_change_is_refused_with_the_reason(kind):
    options, reason = REFUSED[kind]
    with pytest.raises(ModelError, match=f"{kind} can't be batched: .*{reason}"):
        StaticBatchEngine(make(kind, options, device="meta"))


def test_a_config_without_layers_is_refused():
    lm = tiny_lm()
    lm.model.config.layer_types = ["homemade", "homemade"]
    with pytest.raises(ModelError, match="its cache is not of a standard kind"):
        StaticBatchEngine(lm)


def test_right_padding_is_refused_for_windows_that_only_the_model_knows():
    lm = make("gpt_neo", EQUAL["gpt_neo"], device="meta")
    with pytest.raises(RequestError, match="Use left padding"):
        StaticBatchEngine(lm, padding_side="right")


def test_rotary_positions_that_follow_the_longest_row_are_noted():
    factors = [1.0] * 4
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": factors,
        "long_factor": factors,
    }
    options = {"rope_parameters": rope, "original_max_position_embeddings": 64}
    notes = make("phi3", options, device="meta").notes
    assert any("rotary positions follow the longest row" in note for note in notes)
    assert not any("rotary" in note for note in tiny_lm().notes)


# the check on load


def saved(lm: LanguageModel, folder: Path) -> str:
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma3", "qwen3_moe"])
def test_good_models_are_loaded_in_every_dtype(tmp_path, family, dtype):
    lm = load_model(saved(tiny_lm(family), tmp_path), device="cpu", dtype=dtype)
    assert lm.dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_model_that_sees_pads_is_refused_on_load(tmp_path, monkeypatch, dtype, side):
    """It puts a causal mask of its own in the place of the one it is given."""
    name = saved(tiny_lm("llama"), tmp_path)
    real = LanguageModel._logits

    def deaf(self, forward, input_ids, mask, *arguments, **options):
        queries, keys = mask.shape[-2:]
        full = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return real(self, forward, input_ids, full.expand_as(mask), *arguments, **options)

    monkeypatch.setattr(LanguageModel, "_logits", deaf)
    monkeypatch.setattr(engine.selfcheck, "get_args", lambda _type: (side,))
    with pytest.raises(ModelError, match=f"its rows differ from their solo runs \\({side}"):
        load_model(name, device="cpu", dtype=dtype)


def test_a_window_that_the_model_does_not_keep_to_is_refused_on_load():
    """Moshi's config names a window for the cache; its own mask has none."""
    lm = make("moshi", {"sliding_window": 64, "ffn_dim": 64}, device="cpu")
    with pytest.raises(ModelError, match="its rows differ from their solo runs"):
        check_rows(lm)
    assert lm.model.config.sliding_window == 64


def test_a_model_whose_logits_are_no_numbers_is_refused_on_load():
    lm = tiny_lm()
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="gives NaN logits in float32: try another dtype"):
        check_rows(lm)


def test_the_distance_of_logits():
    reference = torch.tensor([[1.0, 2.0, -3.0], [4.0, 0.0, -4.0]])
    assert distance(reference, reference) == 0
    assert distance(reference + 5, reference) == pytest.approx(0, abs=1e-6)
    assert distance(reference * 1.1, reference) == pytest.approx(0.1)
    assert distance(-reference, reference) == pytest.approx(2)
    assert math.isnan(distance(reference * torch.nan, reference))


@pytest.mark.parametrize("least", [-torch.inf, torch.finfo(torch.float32).min])
def test_tokens_that_a_model_blocks_count_for_no_distance(least):
    reference = torch.tensor([[1.0, 2.0, -3.0, least]])
    assert distance(reference, reference) == 0
    other = torch.tensor([[1.0, 2.5, -3.0, least]])
    assert 0.05 < distance(other, reference) < 0.5

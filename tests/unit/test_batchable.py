"""What can't be batched rightly is refused, with the reason; what is approximate says so."""

import pytest
import torch
from transformers import AutoModelForCausalLM, FalconH1Config, Phi3Config, Qwen3NextConfig

from engine.errors import ModelError
from engine.models import LanguageModel
from engine.static import StaticBatchEngine
from tests.tiny import SIZE, byte_tokenizer, tiny_lm

RECURRENT = {
    "falcon-h1": FalconH1Config(
        **SIZE, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8
    ),
    "qwen3-next": Qwen3NextConfig(**SIZE, num_experts=2, num_experts_per_tok=1),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_pads_would_enter_a_recurrent_state(name):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(RECURRENT[name])
    with pytest.raises(ModelError, match="pads would enter its recurrent state"):
        StaticBatchEngine(LanguageModel(model, byte_tokenizer(), name=name))


def test_rotary_positions_that_follow_the_longest_row_are_noted():
    factors = [1.0] * 4
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": factors,
        "long_factor": factors,
    }
    config = Phi3Config(**SIZE, rope_parameters=rope, original_max_position_embeddings=64)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    notes = LanguageModel(model, byte_tokenizer(), name="phi3").notes
    assert any("rotary positions follow the longest row" in note for note in notes)
    assert not any("rotary" in note for note in tiny_lm().notes)

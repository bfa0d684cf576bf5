"""A tiny model as a GGUF file."""

from pathlib import Path

import gguf
import torch
from tokenizers import pre_tokenizers

from engine.models import LanguageModel
from tests.tiny import EOS


def unrotate(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """From transformers' order of rotary pairs, halves, to GGUF's, neighbours."""
    return weight.unflatten(0, (heads, 2, -1)).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(lm: LanguageModel, path: Path) -> Path:
    """Write a tiny llama with the byte tokenizer; GGUF wants at least one merge: 258 tokens."""
    config, writer = lm.model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<eos>", "ab"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(EOS)  # transformers 5.17 needs one
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(EOS)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in lm.model.state_dict().items():
        module = name.removesuffix(".weight")
        if count := heads.get(module.rpartition(".")[2]):
            weight = unrotate(weight, count)
        writer.add_tensor(f"{names.get_name(module)}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

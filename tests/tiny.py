"""Tiny models made on the spot: random ones of real families, and one that says what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3MoeConfig,
)

from engine.models import LanguageModel
from engine.run import Run

EOS = 256
VOCABULARY = 257
BOS = 257
"""Beyond the vocabulary: a model for a tokenizer with BOS needs `vocab_size=BOS + 1`."""
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
CHAT_TEMPLATE = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"


def byte_tokenizer(
    *, pad: bool = False, chat: bool = False, bos: bool = False, append_eos: bool = False
) -> PreTrainedTokenizerFast:
    """One token per UTF-8 byte (ids 0 to 255 in GPT-2's byte order), then EOS; no BOS, unless
    asked for. `append_eos` puts EOS behind every text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: id for id, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    if bos:
        fast.add_special_tokens({"bos_token": "<bos>"})
    if bos or append_eos:
        fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{'<bos> ' if bos else ''}$A{' <eos>' if append_eos else ''}",
            special_tokens=[("<bos>", BOS), ("<eos>", EOS)],
        )
    if pad:
        fast.pad_token = "<eos>"
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_config(family: str) -> PretrainedConfig:
    """A two-layer config of a family: llama, qwen3, qwen3_moe, mixtral, gpt2, mistral (sliding
    window of 8) or gemma3 (the same window in its first layer only)."""
    if family == "gpt2":
        return GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=512,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=EOS,
            eos_token_id=EOS,
        )
    if family == "mistral":
        return MistralConfig(**SIZE, sliding_window=8)
    if family == "gemma3":
        layers = ["sliding_attention", "full_attention"]
        return Gemma3TextConfig(**SIZE, sliding_window=8, layer_types=layers)
    if family == "qwen3_moe":
        experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        return Qwen3MoeConfig(**SIZE, **experts)
    if family == "mixtral":
        return MixtralConfig(**SIZE, num_local_experts=4, num_experts_per_tok=2)
    return {"llama": LlamaConfig, "qwen3": Qwen3Config}[family](**SIZE)


def tiny_lm(family: str = "llama", *, seed: int = 0, chat: bool = False, **config) -> LanguageModel:
    """A random float32 model with the byte tokenizer. Its logits are spread out, so that greedy
    picks have clear winners."""
    torch.manual_seed(seed)
    made = tiny_config(family)
    for name, value in config.items():
        setattr(made, name, value)
    model = AutoModelForCausalLM.from_config(made, attn_implementation="sdpa").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return LanguageModel(model, byte_tokenizer(chat=chat), name=f"tiny-{family}")


class ScriptedModel(torch.nn.Module):
    """Stands in for a model: row r emits `script[r % len(script)][k]` as its k-th new token.

    `before_forward(k)` is called first, with k = 1 for the prefill of each batch: it may wait,
    raise, or press Stop. Rows beyond the end of their script repeat its last token. Every
    forward's arguments are kept in `calls`.
    """

    def __init__(
        self,
        script: Sequence[Sequence[int]],
        *,
        before_forward: Callable[[int], None] | None = None,
        seconds: float = 0.0,
        max_positions: int = 4096,
        eos_token_id: int | list[int] | None = EOS,
        vocabulary: int = VOCABULARY,
    ) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, 4)
        self.config = LlamaConfig(**(SIZE | {"max_position_embeddings": max_positions}))
        self.config._attn_implementation = "sdpa"
        self.generation_config = SimpleNamespace(eos_token_id=eos_token_id)
        self.script = script
        self.before_forward = before_forward
        self.seconds = seconds
        self.calls: list[SimpleNamespace] = []
        self.poison: Callable[[int, torch.Tensor], torch.Tensor] | None = None
        self.dtype = torch.float32
        self.device = torch.device("cpu")

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding

    def forward(
        self, input_ids, attention_mask, position_ids, cache, use_cache, logits_to_keep
    ) -> SimpleNamespace:
        rows, queries = input_ids.shape
        column = 1 if cache.get_seq_length() == 0 else self._column + 1
        self._column = column
        given = (input_ids, attention_mask, position_ids)  # which the next step changes in place
        ids, mask, positions = (None if each is None else each.clone() for each in given)
        self.calls.append(SimpleNamespace(ids=ids, mask=mask, positions=positions))
        if self.before_forward:
            self.before_forward(column)
        if self.seconds:
            time.sleep(self.seconds)
        states = torch.zeros(rows, 2, queries, 8)
        for layer in range(self.config.num_hidden_layers):
            cache.update(states, states, layer)
        kept = logits_to_keep if isinstance(logits_to_keep, int) else len(logits_to_keep)
        logits = torch.zeros(rows, kept, self.embedding.num_embeddings)
        scripts = [self.script[row % len(self.script)] for row in range(rows)]
        said = torch.tensor([script[min(column, len(script)) - 1] for script in scripts])
        logits[torch.arange(rows), :, said] = 10.0
        if self.poison:
            logits = self.poison(column, logits)
        return SimpleNamespace(logits=logits)


def scripted_lm(script: Sequence[Sequence[int]], **options) -> LanguageModel:
    """A LanguageModel that emits the script; see ScriptedModel for the options."""
    return LanguageModel(ScriptedModel(script, **options), byte_tokenizer(), name="scripted")


def row_ids(run: Run) -> list[list[int]]:
    """The ids that each request's row emitted, its end token included."""
    ids: list[list[int]] = [[] for _ in run.requests]
    for step in run.steps:
        for request, token in zip(run.batches[step.batch].requests, step.tokens, strict=True):
            if token is not None:
                ids[request].append(token)
    return ids


def sentencepiece_tokenizer(*, strip: bool = True) -> PreTrainedTokenizerFast:
    """A SentencePiece-style tokenizer with byte fallback, as of Llama 2 and Mistral; without
    `strip` it keeps a text's first space, as Gemma's does."""
    words = ["▁Hello", "▁world", "▁a", "▁,", "Hello", "world", "▁", "▁▁▁▁", *"abcdeghilorw.,!"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, *words]
    scores = [0.0 if piece in bytes_ else -10.0 / len(piece) for piece in pieces]
    tokenizer = Tokenizer(
        models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=0, byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="first" if strip else "never", split=False
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if strip else [])
    )
    specials = [AddedToken(piece, special=True) for piece in ("<unk>", "<s>", "</s>")]
    tokenizer.add_special_tokens(specials)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def token_ids(text: str) -> list[int]:
    """The byte tokenizer's ids of a text."""
    return byte_tokenizer()(text)["input_ids"]

"""A name or a path -> a LanguageModel, or one sentence that says why not."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    Cache,
    DynamicCache,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engine.batchable import has_window, reason_against
from engine.compiled import compiled
from engine.errors import ModelError, first_line
from engine.graphs import Graphs
from engine.interrupt import decoder_layers
from engine.live import ON_ZERO_GPU
from engine.presets import DEFAULT_MODEL
from engine.products import Products
from engine.run import ModelInfo
from engine.selfcheck import check_rows, try_step
from engine.sources import find_files
from engine.split import check_heads, check_spread, placement
from engine.tape import Tapes
from engine.threads import fit_threads
from engine.weights import OnProgress, ignore_progress, read_config, read_files

log = logging.getLogger("batchscope.models")

Device = Literal["auto", "cpu", "cuda", "mps"] | str
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

PROBE = "a"
"""A text to see what a tokenizer puts round it."""


@dataclass(frozen=True)
class LanguageModel:
    """A decoder-only model with its tokenizer, and what the engine needs to know of them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str | None = None
    compiled: bool = False
    """Whether decode steps go through torch.compile; see `with_compiled_steps`."""
    captures: bool = True
    """Whether decode steps are captured where they can be: as CUDA graphs, or as their calls. A
    model whose forward keeps counts of its own in Python needs False."""

    def __post_init__(self) -> None:
        _loaded[id(self)] = self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as a reference: a process forked from this one has the model already, and its
        weights never go through a pipe."""
        return find_loaded, (id(self), self.name)

    @cached_property
    def device(self) -> torch.device:
        """Where token ids go in, and logits come out."""
        return self.model.get_input_embeddings().weight.device

    @cached_property
    def layer_devices(self) -> tuple[torch.device, ...]:
        """Where each of its layers lies."""
        weights = (next(layer.parameters(), None) for layer in self.layers)
        found = tuple(weight.device for weight in weights if weight is not None)
        return found or (self.device,)

    @property
    def processes(self) -> int:
        """So many share out each of its layers among them."""
        return getattr(self.model, "tp_size", None) or 1

    @property
    def split(self) -> str | None:
        """Over what it is spread, in words; None for one device in one process."""
        if self.processes > 1:
            return f"{self.processes} processes"
        devices = len(set(self.layer_devices))
        return f"{devices} devices" if devices > 1 else None

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Every id that ends a row: the generation config's (one, several or none), where that
        names none the config's, and the tokenizer's; of these, those that the model can emit."""
        configured = self.model.generation_config.eos_token_id
        if configured is None:
            configured = getattr(self._text_config, "eos_token_id", None)
        listed = configured if isinstance(configured, list) else [configured]
        named = {id for id in [*listed, self.tokenizer.eos_token_id] if id is not None}
        return frozenset(id for id in named if 0 <= id < self.vocab_size)

    @cached_property
    def appended_ends(self) -> int:
        """How many end tokens the tokenizer puts behind every text, as with `add_eos_token`."""
        text = self.tokenizer(PROBE, add_special_tokens=False)["input_ids"]
        ids = self.tokenizer(PROBE)["input_ids"]
        behind = (ids[at + len(text) :] for at in range(len(ids)) if ids[at:][: len(text)] == text)
        appended = next(behind, [])
        return len(appended) if self.end_ids.issuperset(appended) else 0

    @cached_property
    def pad_id(self) -> int:
        """An id inside the vocabulary to fill pads with; any will do, no row attends to it."""
        own = self.tokenizer.pad_token_id
        if own is not None and 0 <= own < self.vocab_size:
            return own
        return min(self.end_ids, default=0)

    @cached_property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        return self.model.get_input_embeddings().weight.shape[0]

    @cached_property
    def max_positions(self) -> int | None:
        """Tokens that fit the context, None where the model sets no limit."""
        return getattr(self._text_config, "max_position_embeddings", None)

    @cached_property
    def layers(self) -> nn.ModuleList:
        """The decoder's layers, which a forward goes through one after another."""
        return decoder_layers(self.model, getattr(self._text_config, "num_hidden_layers", None))

    @cached_property
    def has_chat_template(self) -> bool:
        return self.tokenizer.chat_template is not None

    @cached_property
    def has_sliding_window(self) -> bool:
        return has_window(self.model)

    @cached_property
    def keeps_logits(self) -> bool:
        """Whether its forward computes logits of the columns that are asked for alone."""
        return "logits_to_keep" in self._forward_parameters

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the picture should know about this model."""
        notes = []
        if self.pad_id != self.tokenizer.pad_token_id:
            filler = "EOS" if self.pad_id in self.end_ids else f"id {self.pad_id}"
            notes.append(f"no pad token: using {filler}")
        if self.appended_ends:
            notes.append("the tokenizer ends every prompt: that end token is not fed")
        if not self.has_chat_template:
            notes.append("no chat template: raw prompt used")
        if self.model.dtype != torch.float32:
            notes.append(f"{self.dtype} rounds by batch shape: texts may differ from a solo run")
        if self._rope_follows_length:
            notes.append("rotary positions follow the longest row: texts may differ too")
        if self.processes > 1:
            notes.append(f"KV cache: what one of {self.split} holds")
        if self.device.type == "mps" and self.model.dtype == torch.float32:
            notes.append("float32: bfloat16 is not right on every Apple GPU")
        return tuple(notes)

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @cached_property
    def info(self) -> ModelInfo:
        from engine.memory import kv_bytes_per_token  # which is about a LanguageModel

        return ModelInfo(
            name=self.name,
            revision=self.revision,
            parameters=sum(weight.numel() for weight in self.model.parameters()),
            dtype=self.dtype,
            attention=self.model.config._attn_implementation,
            device=device_name(self.device) + (f", over {self.split}" if self.split else ""),
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),  # which is of a class of torch's
            transformers=transformers.__version__,
            kv_dtype=self.dtype,  # keys and values are what the weights' products are
            kv_bytes_per_token=kv_bytes_per_token(self),
        )

    @cached_property
    def graphs(self) -> Graphs:
        return Graphs(self)

    def try_graphs(self) -> None:
        """Find out now, not in the first run, whether steps can be captured."""
        log.info("%s decodes %s", self.name, self.decode_path)

    @cached_property
    def tapes(self) -> Tapes:
        return Tapes(self)

    @cached_property
    def products(self) -> Products:
        return Products(self)

    @property
    def rounds_columns(self) -> bool:
        """Whether a decode step attends to a round number of places, so that it serves many."""
        return self.graphs.reason is None

    @property
    def runs_ahead(self) -> bool:
        """Whether a step is launched before the tokens of the one before it are read: where a
        device works while the host does something else."""
        return self.device.type == "cuda"

    @property
    def decode_path(self) -> str:
        """How decode steps are run, in words."""
        path = "compiled" if self.compiled else "eager"
        path += ", laid-out weights" if self.products else ""
        if self.graphs.reason is None:
            return f"{path}, CUDA graphs"
        return f"{path}, replayed" if self.tapes.reason is None else path

    def new_cache(self) -> Cache:
        return DynamicCache(config=self.model.config)

    def forward(
        self,
        input_ids: Tensor,
        *,
        mask: Tensor | dict[str, Tensor] | None,
        position_ids: Tensor,
        cache: Cache,
        last: list[int],
    ) -> Tensor:
        """One forward of all rows -> (B, V) logits at column `last[row]` of each row.

        Only those columns go through the output layer, so no tensor is ever
        prompt length x vocabulary.
        """
        columns = sorted(set(last))
        # The last column is asked for by count: a tensor is copied to the device, which waits.
        only_last = columns == [input_ids.shape[1] - 1]
        keep = 1 if only_last else torch.tensor(columns, device=self.device)
        logits = self._logits(self.model, input_ids, mask, position_ids, cache, keep=keep)
        if len(columns) == 1:
            return logits[:, 0 if self.keeps_logits else columns[0]]
        picked = [columns.index(column) if self.keeps_logits else column for column in last]
        return logits[torch.arange(len(last), device=self.device), picked]

    def decode(
        self,
        input_ids: Tensor,
        *,
        mask: Tensor | dict[str, Tensor] | None,
        position_ids: Tensor,
        cache: Cache,
    ) -> Tensor:
        """One forward of a token (B, 1) per row -> (B, V) logits."""
        forward = self._compiled_forward if self.compiled else self.model
        return self._logits(forward, input_ids, mask, position_ids, cache, keep=1)[:, -1]

    def check_batchable(self) -> None:
        """Refuse a model whose rows would not equal their solo runs. Raises ModelError."""
        if reason := reason_against(self.model):
            raise ModelError(f"{self.name} can't be batched: {reason}.")

    def _logits(
        self,
        forward: Callable[..., Any],
        input_ids: Tensor,
        mask: Tensor | dict[str, Tensor] | None,
        position_ids: Tensor,
        cache: Cache,
        *,
        keep: int | Tensor,
    ) -> Tensor:
        with self.products.in_use():
            return forward(
                input_ids=input_ids,
                attention_mask=mask,
                position_ids=position_ids,
                use_cache=True,
                **{self._cache_argument: cache},
                **({"logits_to_keep": keep} if self.keeps_logits else {}),
            ).logits

    @cached_property
    def _compiled_forward(self) -> Callable[..., Any]:
        return compiled(self.model, self.device)

    @property
    def _text_config(self) -> PretrainedConfig:
        return self.model.config.get_text_config()

    @property
    def _rope_follows_length(self) -> bool:
        """Whether transformers picks the rotary factors from the longest row of a batch."""
        rope = getattr(self._text_config, "rope_parameters", None) or {}
        return rope.get("rope_type") in ("dynamic", "longrope")

    @cached_property
    def _forward_parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters)

    @cached_property
    def _cache_argument(self) -> str:
        """transformers 5.24 renamed `past_key_values` to `cache`."""
        return "cache" if "cache" in self._forward_parameters else "past_key_values"


_loaded: weakref.WeakValueDictionary[int, LanguageModel] = weakref.WeakValueDictionary()


def find_loaded(key: int, name: str) -> LanguageModel:
    """The model that this process, or the one it was forked from, holds already."""
    if key not in _loaded:
        raise ModelError(f"{name} was not loaded when this process was forked.")
    return _loaded[key]


def load_model(
    name: str = DEFAULT_MODEL,
    *,
    device: Device = "auto",
    dtype: Dtype = "auto",
    compile: bool = False,
    device_map: str | None = None,
    on_progress: OnProgress = ignore_progress,
) -> LanguageModel:
    """Load the embedded default, a hub id, a local folder or a local .gguf file.

    device "auto" is CUDA where there is some, else the CPU. dtype "auto" is bfloat16 on CUDA and
    on CPUs that multiply matrices of it (AMX), else float32. Only safetensors and GGUF weights are
    read, and no code from the hub is run. A model whose rows differ from their solo runs is
    refused. `compile` has decode steps compiled, which takes minutes. `device_map` "auto" spreads
    the layers over all CUDA devices; under torchrun each of its processes has a part of every layer
    (engine.split). Raises ModelError with one sentence.
    """
    spread = placement(device_map, device, name)
    target = pick_device(device)
    if target.type == "cpu":
        fit_threads()
    weights = pick_dtype(dtype, target)
    with one_sentence(name):
        files = find_files(name, on_progress)
        on_progress(f"Loading {name}", None)
        if not files.gguf_file:
            config = read_config(files.folder)
            check_family(config, name)
            check_heads(config, name)
        model, tokenizer = read_files(files.folder, files.gguf_file, weights, spread=spread)
        model = model if spread else model.to(target)
        loaded = LanguageModel(model.eval(), tokenizer, name, files.revision)
        check_spread(loaded)
        loaded.check_batchable()
        if not ON_ZERO_GPU:  # where a load has no device to run on
            if not compile:
                loaded.products.lay_out()
            check_rows(loaded)
            loaded.try_graphs()
        if compile:
            on_progress(f"Compiling {name}: it takes some minutes", None)
            loaded = with_compiled_steps(loaded)
    return loaded


def with_compiled_steps(lm: LanguageModel) -> LanguageModel:
    """The model with its decode steps compiled, for one row and for any other number of them.
    Raises ModelError where they can't be."""
    if ON_ZERO_GPU:
        raise ModelError("There is nothing to compile for on ZeroGPU: leave out --compile.")
    if lm.split:
        log.warning("%s decodes as it is, not compiled: it lies over %s", lm.name, lm.split)
        return lm
    lm = replace(lm, compiled=True)
    for rows in (1, 2):
        try_step(lm, rows=rows)
    return lm


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Turn whatever goes wrong while loading into one sentence."""
    try:
        yield
    except ModelError:
        raise
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{name} does not fit into the memory of the device.") from error
    except Exception as error:  # a foreign file can make its readers raise anything
        raise ModelError(f"{name} can't be loaded: {first_line(error)}.") from error


def check_family(config: PretrainedConfig, name: str) -> None:
    if config.is_encoder_decoder:
        raise ModelError(f"{name} is an encoder-decoder model; only decoder-only models are run.")
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:
        raise ModelError(f"{name} is an encoder; only decoder-only models are run.")


def pick_device(device: Device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"There is no device called {device!r}.") from error
    if target.type == "cuda":
        check_cuda(target)
    elif target.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError("There is no MPS device here: use --device cpu.")
    elif target.type not in ("cpu", "mps"):
        raise ModelError(f"The device must be auto, cpu, cuda or mps, not {device!r}.")
    return target


def check_cuda(target: torch.device) -> None:
    if not torch.cuda.is_available():
        raise ModelError("There is no CUDA device here: use --device cpu.")
    if (target.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"There is no CUDA device {target.index} here.")


def pick_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        fast = device.type == "cuda" or (device.type == "cpu" and cpu_multiplies_bfloat16())
        return torch.bfloat16 if fast else torch.float32
    if dtype not in ("float32", "bfloat16", "float16"):
        raise ModelError(f"The dtype must be auto, float32, bfloat16 or float16, not {dtype!r}.")
    return getattr(torch, dtype)


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has a unit for products of bfloat16 matrices. Instructions for pairs of
    numbers alone (AVX512_BF16) make no step faster than float32 does: 35 ms against 30 with one
    row, 69 against 64 with 16, and a prefill of 8 x 64 tokens takes 1.5 times as long."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, str(device))

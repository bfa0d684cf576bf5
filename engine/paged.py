"""Requests that come and go between forwards: transformers' ContinuousBatchingManager, driven one
forward at a time.

Its scheduler decides who is served and its cache holds the keys and values in pages. Only its loop
is ours, so that every forward is timed and recorded, can be stopped, and runs in the thread that
draws the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from packaging.version import Version
from torch import Tensor, nn
from transformers import GenerationConfig, __version__
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import ContinuousBatchingManager
from transformers.generation.continuous_batching.cache import group_layers_by_attn_type

from engine.clock import working_on
from engine.errors import RunError, first_line
from engine.models import LanguageModel
from engine.pool import PAGE_TOKENS, Pool
from engine.row import ActiveRow
from engine.run import Batch, End, KVBytes, Request

OLDEST = Version("5.24")
"""Before it the manager had other names for its pages, and read them otherwise."""


def reason_against(lm: LanguageModel) -> str | None:
    """Why the manager can't run this model here; None if nothing is known against it."""
    if lm.split:
        return f"the model lies over {lm.split}"
    if Version(__version__) < OLDEST:
        return f"it takes transformers {OLDEST} or newer, and here is {__version__}"
    if not hasattr(lm.model, "init_continuous_batching"):
        return "this kind of model does not offer it"
    attention = lm.info.attention  # its config says another while the manager has it
    if attention not in ("sdpa", "eager"):
        return f"it has no pages for {attention} attention"
    try:
        group_layers_by_attn_type(lm.model.config.get_text_config())
    except (ValueError, AttributeError) as error:
        return f"it has no pages for this model ({first_line(error)})"
    return None


def reason_against_request(request: Request) -> str | None:
    """What a request asks for that the manager can't do as this engine does it."""
    sampling = request.sampling
    if sampling.temperature > 0:
        return "it draws tokens for all rows from one source: set the temperature to 0"
    if sampling.repetition_penalty != 1:
        return "it has no repetition penalty: set it to 1"
    if request.min_new_tokens:
        return "it has no least number of new tokens: set it to 0"
    return None


class Served(NamedTuple):
    """What one forward gave one request, its `number`-th token (from 1), and the bytes of its pages
    after it."""

    request: int
    number: int
    token: int
    piece: str
    end: End | None
    kv_bytes: KVBytes


class PagedRequests:
    """All requests of a run on the device, at most `pool.slots` of them at a time; `step` runs one
    forward for those that have a slot, and `close` gives everything back.

    `batch` holds them all. Of the newest forward, `served` is what it gave, and `seated` are the
    requests that got their slot with it. Setting up the pool is part of making this, not of a
    forward.
    """

    def __init__(
        self, lm: LanguageModel, batch: Batch, requests: Sequence[Request], pool: Pool
    ) -> None:
        self.batch = batch
        self.forwards = 0
        self.served: list[Served] = []
        self.seated: list[int] = []
        self._lm = lm
        self._slots = pool.slots
        self._rows = [ActiveRow(request, lm.tokenizer, lm.end_ids) for request in requests]
        self._begun: set[int] = set()  # requests that have had a forward
        self._tokens: Counter[int] = Counter()  # of each request
        self._finite: Tensor | None = None
        self._attention = lm.model.config._attn_implementation
        self._manager: ContinuousBatchingManager | None = None
        self._hook = lm.model.register_forward_hook(self._look_at_logits)
        try:
            self._manager = _manager(lm, pool)
            self._processor = self._manager.batch_processor
            for request, ids in zip(requests, batch.prompt_ids, strict=True):
                self._manager.add_request(
                    list(ids),
                    request_id=str(request.index),
                    max_new_tokens=request.max_new_tokens,
                    streaming=True,
                    eos_token_id=[] if request.ignore_eos else sorted(lm.end_ids),
                )
        except BaseException:
            self.close()
            raise

    @property
    def running(self) -> bool:
        return any(row.end is None for row in self._rows)

    @property
    def reads_prompts(self) -> bool:
        """Whether the next forward reads prompt tokens, and may be long."""
        going = [index for index, row in enumerate(self._rows) if row.end is None]
        answering = sum(index in self._tokens for index in going)
        return answering < min(len(going), self._slots)

    @property
    def reserved_bytes(self) -> int:
        """What the cache holds in memory, used or not."""
        return self._processor.cache.cache_tensor.nbytes

    @torch.inference_mode()
    def step(self) -> None:
        """One forward; what it gave is `served`. A request whose prompt it read in part got no
        token."""
        with working_on(self._lm.device):
            if not self._processor.prepare_next_batch():
                raise RuntimeError("the scheduler has nothing to run")
            fed = [int(each.state.request_id) for each in self._in_forward]
            held = dict(zip(fed, map(self._held, self._in_forward), strict=True))
            with self._lm.products.in_use():
                self._processor._generation_step(self._lm.model)
            self._check_numbers()
            self._processor.update_batch()
        self.forwards += 1
        self.seated = [index for index in fed if index not in self._begun]
        self._begun.update(fed)
        self.served = [self._take(index, token, held[index]) for index, token in self._emitted()]

    def unread(self) -> list[str]:
        """What rows that run have held back of their texts, once nothing more will come."""
        return [row.rest() if row.end is None else "" for row in self._rows]

    def close(self) -> None:
        """Give the pool back and the model its attention. Harmless if called twice."""
        self._hook.remove()
        model, manager, self._manager, self._processor = self._lm.model, self._manager, None, None
        if manager is not None:
            manager.batch_processor = None
            manager.destroy()
        if model.config._attn_implementation != self._attention:
            model.set_attn_implementation(self._attention)

    @property
    def _in_forward(self) -> list[Any]:
        """The requests of the newest forward, as the scheduler sees them."""
        return self._processor.inputs_and_outputs.requests_in_batch

    def _held(self, scheduled: Any) -> KVBytes:
        """What a request's pages hold after the forward, and the places in them that are free."""
        live = pages = 0
        for allocator in self._processor.cache.cache_allocators.values():
            token_bytes = allocator.bytes_per_block // allocator.tokens_per_page
            blocks = len(allocator.block_table[scheduled.state.request_id])
            window = getattr(allocator, "sliding_window", None)
            tokens = scheduled.state.current_len()
            live += token_bytes * (tokens if window is None else min(tokens, window))
            pages += allocator.bytes_per_block * blocks
        return KVBytes(live=live, padding=pages - live, dead=0)

    def _emitted(self) -> list[tuple[int, int]]:
        """Whom the forward gave a token, and which."""
        emitted = []
        while (output := self._manager.get_result()) is not None:
            emitted.append((int(output.request_id), output.generated_tokens[-1]))
        return emitted

    def _take(self, index: int, token: int, held: KVBytes) -> Served:
        row = self._rows[index]
        piece = row.take(token)
        self._tokens[index] += 1
        if row.end == "stop":  # which the manager does not know; its pages are free before the next
            self._manager.cancel_request(str(index))
        return Served(index, self._tokens[index], token, piece, row.end, held)

    def _look_at_logits(self, _model: nn.Module, _arguments: object, output: Any) -> None:
        self._finite = output.logits.amax(-1).isfinite().all()

    def _check_numbers(self) -> None:
        if not self._finite.item():
            info = self._lm.info
            raise RunError(
                f"The model produced NaN logits ({info.dtype}, {info.attention} attention)."
            )


@torch.inference_mode()
def _manager(lm: LanguageModel, pool: Pool) -> ContinuousBatchingManager:
    """Set up, its loop not started. Pages are not shared between prompts that begin alike: every
    engine reads every prompt. A forward is neither captured nor launched before the last one is
    read; both take flash attention, which is for a GPU and no part of transformers."""
    config = ContinuousBatchingConfig(
        page_size=PAGE_TOKENS,
        num_blocks=pool.blocks,
        max_batch_tokens=pool.tokens_per_forward,
        max_requests_per_batch=pool.slots,
        max_blocks_per_request=0,
        max_memory_percent=1.0,  # what is free was looked at before
        safety_margin=0.0,  # there are pages for whoever has a slot
        allow_block_sharing=False,
        use_async_batching=False,
        use_cuda_graph=False,
        auto_switch_to_flash=False,
        seed=0,
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1)
    # It seeds the random numbers of the whole process.
    with torch.random.fork_rng([lm.device] if lm.device.type == "cuda" else []):
        manager = lm.model.init_continuous_batching(greedy, config)
        manager.batch_processor = manager._create_batch_processor()
    return manager

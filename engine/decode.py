"""Decode steps: forwards of one token per row, over tensors that stay where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import Cache

from engine.kv import Extent, column_bytes_by_extent
from engine.masks import attention_mask, by_kind
from engine.static_cache import StaticLayer, move_into_place
from engine.tape import TapedSteps

if TYPE_CHECKING:
    from engine.models import LanguageModel


class Decoder:
    """Takes the newest tokens and gives the next logits, step after step.

    A step changes nothing but tensors, in place, so the same step serves all columns: as it is, as
    its calls made again, compiled, or as a captured graph, which is replayed until it must attend
    to more places than it was captured for. The numbers of places are round then.
    """

    def __init__(
        self,
        lm: LanguageModel,
        cache: Cache,
        real: Tensor,
        *,
        has_pads: bool,
        columns: int,
        rounded: bool | None = None,
    ) -> None:
        """Go on from the prefill of prompts that is in the cache; `real` is (B, S) bool, False on
        pads if it `has_pads`, and the cache will hold `columns` of each row. `rounded` defaults to
        what suits the model."""
        self._lm = lm
        self._cache = cache
        self._real = real
        self._kinds = move_into_place(lm.model, cache, real, columns=columns)
        self._rounded = bool(self._kinds) and (lm.rounds_columns if rounded is None else rounded)
        only_full = [kind.window for kind in self._kinds] == [None]
        # Steps with a mask and without would be compiled apart.
        self._sees_all = only_full and not (has_pads or self._rounded or lm.compiled)
        self._position_ids = real.sum(-1, keepdim=True) - 1
        self._running = real.new_ones(len(real))
        self._tokens = torch.zeros_like(self._position_ids[:, 0])
        self._columns = columns
        self._taped = self._taped_steps() if self._kinds else None
        self._replay: Callable[[], Tensor] | None = None
        self._ran_for: tuple[int, ...] = ()
        self._captured_for: tuple[int, ...] = ()

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """(B,) tokens of the last column -> (B, V) logits of the next, to be read before the next
        step. Rows that have ended are fed pads and keep their last position: going on counting
        could leave the model's position table."""
        self._tokens.copy_(tokens)
        for kind in self._kinds:
            kind.begin(rounded=self._rounded)
        if not self._kinds:
            self._real = torch.cat([self._real, self._real.new_ones(len(self._real), 1)], dim=1)
            return self._run()
        return self._captured()() if self._rounded else self._replayed()

    def held(self) -> Counter[Extent]:
        """As `column_bytes_by_extent`, which asks every layer."""
        if not self._kinds:
            return column_bytes_by_extent(self._cache)
        held: Counter[Extent] = Counter()
        for kind in self._kinds:
            held[kind.held] += kind.column_bytes
        return held

    def end_rows(self, running: Tensor) -> None:
        """(B,) bool: which rows still run."""
        self._running.copy_(running, non_blocking=True)

    def _taped_steps(self) -> TapedSteps:
        counters = [self._position_ids, *(kind.place for kind in self._kinds)]
        layers = [layer for layer in self._cache.layers if isinstance(layer, StaticLayer)]
        states = [states for layer in layers for states in (layer.all_keys, layer.all_values)]
        masks = [kind.mask for kind in self._kinds]
        run = [*counters, self._running, self._tokens, *masks, *states]
        return TapedSteps(self._lm.tapes, run=run, counters=counters)

    def _replayed(self) -> Tensor:
        """The step as its calls, once it is known that they are always the same: while a window is
        not yet full, and after."""
        seen = self._kinds[0].seen
        kinds = [(kind.window, kind.extent < seen) for kind in self._kinds]
        shape = (len(self._tokens), self._sees_all, *kinds)
        return self._taped.take(self._run, seen=seen, left=self._columns - seen, shape=shape)

    def _captured(self) -> Callable[[], Tensor]:
        """The step as a graph, captured anew where it attends to more places than before: at the
        second such step, since what libraries set up at the first can't be captured."""
        extents = tuple(kind.extent for kind in self._kinds)
        if extents != self._ran_for:
            self._ran_for, self._replay = extents, None  # its memory goes to the next graph
            return self._run
        if extents != self._captured_for:
            self._captured_for, self._replay = extents, self._lm.graphs.capture(self._run)
        return self._replay or self._run

    def _run(self) -> Tensor:
        for kind in self._kinds:
            kind.open()
        self._position_ids += self._running[:, None]
        fed = torch.where(self._running, self._tokens, self._lm.pad_id)
        logits = self._lm.decode(
            fed[:, None], mask=self._mask(), position_ids=self._position_ids, cache=self._cache
        )
        for kind in self._kinds:
            kind.advance()
        return logits

    def _mask(self) -> Tensor | dict[str, Tensor] | None:
        if self._sees_all:
            return None
        if not self._kinds:
            return attention_mask(self._lm.model, self._cache, self._real, queries=1)
        return by_kind({kind.window: kind.visible() for kind in self._kinds})

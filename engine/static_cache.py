"""A static cache: after the prefill, keys and values move into tensors of their final size, which
every decode step writes in place. Nothing is copied any more as they grow, and since no address
changes, a step can be captured as a CUDA graph, or compiled.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from engine.kv import Extent
from engine.masks import holds_keys, sliding_window, takes_ready_masks

ALIGNED = 16
"""Columns are allocated in multiples of this many: attention kernels on CUDA want rows of masks to
begin at multiples of 16 bytes."""


def capacity(columns: int, window: int | None) -> int:
    """Columns that are allocated for a layer that will have seen `columns`. The last ALIGNED of
    them stay empty: a step that attended to all would be compiled anew, for being that simple."""
    kept = columns if window is None else min(columns, window)
    return -(-kept // ALIGNED) * ALIGNED + ALIGNED


def round_up(columns: int) -> int:
    """So many columns or a little more, a number that holds for many steps: a multiple of 256, from
    2,048 on of 512, ...: from 1,024 on at most a quarter too many."""
    every = max(256, 2 ** (columns.bit_length() - 3))
    return -(-columns // every) * every


class Columns:
    """The columns of all layers of one kind: of one sliding window, or of none.

    Column c lies at place c; in a sliding window at place c modulo its width, where it takes the
    place of the one that the next query can't see. `place` (1,) long is where the next column goes;
    `mask` (B, 1, 1, capacity) is 0 where a query may look and -inf elsewhere. Both are changed on
    the device, where a captured step finds them. `extent` is how many places a step attends to,
    `column_bytes` are those of a column of one row in all layers of the kind.
    """

    def __init__(
        self, real: Tensor, window: int | None, *, columns: int, dtype: torch.dtype
    ) -> None:
        """`real` is (B, S) bool for the columns of the prompts; the layers will see `columns`."""
        rows, seen = real.shape
        self.window = window
        self.size = columns if window is None else min(columns, window)
        self.seen = seen
        self.extent = 0
        self.column_bytes = 0
        self.kept = torch.arange(max(seen - self.size, 0), seen, device=real.device)
        self.places = self.kept if window is None else self.kept % window
        self.place = torch.full((1,), seen if window is None else seen % window, device=real.device)
        self._place_on = {real.device: self.place}
        allocated = capacity(columns, window)
        self.mask = torch.full(
            (rows, 1, 1, allocated), float("-inf"), dtype=dtype, device=real.device
        )
        visible = torch.zeros_like(real, dtype=dtype).masked_fill_(~real, float("-inf"))
        self.mask[:, 0, 0, self.places] = visible[:, self.kept]

    @property
    def allocated(self) -> int:
        return self.mask.shape[-1]

    @property
    def held(self) -> Extent:
        """Columns that the next query can see beside its own, as in transformers' own layers."""
        held = self.seen if self.window is None else min(self.seen, max(self.window - 1, 1))
        return Extent(held, self.seen - held)

    def begin(self, *, rounded: bool) -> None:
        """A step begins. It attends to the places that are filled; `rounded`, to a round number of
        places, of which those that are not filled are masked."""
        self.seen += 1
        if rounded:
            self.extent = min(round_up(self.seen), self.allocated - ALIGNED)
        else:
            self.extent = min(self.seen, self.size)

    def open(self) -> None:
        """The column of this step can be seen; on the device."""
        self.mask.index_fill_(3, self.place, 0.0)

    def advance(self) -> None:
        """The next column goes to the next place; on the device."""
        for place in self._place_on.values():
            place += 1
            if self.window is not None:
                place %= self.window

    def place_on(self, device: torch.device) -> Tensor:
        """`place` on the device of a layer, where a model lies over several."""
        if device not in self._place_on:
            self._place_on[device] = self.place.to(device)
        return self._place_on[device]

    def visible(self) -> Tensor:
        """(B, 1, 1, extent) mask of a step. A copy, so that it is laid out in one way however many
        places there are: each way would be compiled anew."""
        return self.mask[..., : self.extent].contiguous()


class StaticLayer(CacheLayerMixin):
    """Keys and values of one layer: `all_keys` and `all_values` (B, heads, capacity, head size)."""

    is_initialized = True

    def __init__(self, filled: DynamicLayer, columns: Columns) -> None:
        self.columns = columns
        self.is_sliding = columns.window is not None
        self.sliding_window = columns.window
        self.all_keys = self._moved(filled.keys)
        self.all_values = self._moved(filled.values)
        self._place = columns.place_on(self.all_keys.device)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write the column of this step, and give all that it attends to."""
        self.all_keys.index_copy_(2, self._place, key_states)
        self.all_values.index_copy_(2, self._place, value_states)
        extent = self.columns.extent
        return self.all_keys[:, :, :extent], self.all_values[:, :, :extent]

    @property
    def keys(self) -> Tensor:
        """As many columns as are held, for their size: in a sliding window not just these."""
        return self.all_keys[:, :, : self.columns.held.columns]

    @property
    def values(self) -> Tensor:
        return self.all_values[:, :, : self.columns.held.columns]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise NotImplementedError("it is made from a layer that is filled")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        return self.columns.extent, 0

    def get_seq_length(self) -> int:
        return self.columns.seen

    def get_max_length(self) -> int:
        return self.columns.allocated

    def _moved(self, states: Tensor) -> Tensor:
        """The states of a prefill, each column at its place."""
        rows, heads, held, size = states.shape
        # Zeros, since places that nothing was written to are multiplied by a probability of 0.
        moved = states.new_zeros(rows, heads, self.columns.allocated, size)
        places = self.columns.places[-held:].to(states.device)
        moved.index_copy_(2, places, states[:, :, held - len(places) :])
        return moved


def move_into_place(
    model: PreTrainedModel, cache: Cache, real: Tensor, *, columns: int
) -> list[Columns]:
    """Make the layers of a cache static, after the prefill of `real` (B, S) bool prompts; they will
    have seen `columns` at the end. One Columns per kind of layer, or an empty list where the
    attention takes no ready masks: then the cache stays as it is.
    """
    if not takes_ready_masks(model):
        return []
    kinds: dict[int | None, Columns] = {}
    for at, layer in enumerate(cache.layers):
        if not (holds_keys(layer) and layer.is_initialized):
            continue
        window = sliding_window(layer)
        if window not in kinds:
            kinds[window] = Columns(real, window, columns=columns, dtype=model.dtype)
        rows, _, held, _ = layer.keys.shape
        kinds[window].column_bytes += (layer.keys.nbytes + layer.values.nbytes) // (rows * held)
        cache.layers[at] = StaticLayer(layer, kinds[window])  # one by one, to free each old one
    return list(kinds.values())

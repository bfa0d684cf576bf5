"""What a run will need of the device's memory, worked out before it, and whether that is free.

The KV cache is exact, column by column, since its shapes follow from the config. What is needed
beside it is an upper bound: the largest tensors that live at the same time in a prefill or in a
decode step of a decoder layer, by the sizes that set them (engine.shapes).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from transformers.integrations import sdpa_attention

from engine.errors import RequestError
from engine.forecast import Forecast
from engine.free import free_bytes
from engine.run import Batch, Request
from engine.shapes import (
    attended_numbers,
    cached,
    feed_forward_numbers,
    is_latent,
    layer_configs,
    layer_kinds,
    state_numbers,
    text_config,
)
from engine.split import free_together, spread
from engine.static_cache import capacity
from engine.tape import WORTH

if TYPE_CHECKING:
    from engine.models import LanguageModel

LIBRARY_BYTES = {"cuda": 64 * 2**20}
"""What the libraries below torch take from its allocator at their first product: cuBLAS has a
workspace of 32 MiB on Hopper, 8 MiB before, and may have one per stream."""

PACKS_HEADS = hasattr(sdpa_attention, "pack_gqa")
"""Whether scaled dot product attention decodes without a copy of keys and values for every head
that shares them; transformers before 5.24 makes one."""


class Need(NamedTuple):
    """What one batch needs: of its cache at its end, and in all at its largest moment."""

    kv_bytes: int
    total: int
    rows: int
    columns: int

    def where_split(self, spread: float) -> Need:
        """In units of what is free together, where only the cache is shared out (engine.split)."""
        return self._replace(total=self.kv_bytes + int(spread * (self.total - self.kv_bytes)))


class Row(NamedTuple):
    """A request as its memory sees it: tokens of its prompt and its budget, and bytes per
    vocabulary entry to pick a token with."""

    prompt: int
    new: int
    vocabulary_bytes: int


class Shape(NamedTuple):
    """A batch as its memory sees it: B rows, S prompt columns, T new ones.

    `padded` if a row of the prefill is. `logit_columns` of each row go through the output layer;
    `vocabulary_bytes` is what sampling holds per row and vocabulary entry.
    """

    rows: int
    prompt: int
    new: int
    padded: bool
    logit_columns: int
    vocabulary_bytes: int


def kv_bytes_per_token(lm: LanguageModel) -> int:
    """Bytes of one token in the KV cache, inside every sliding window."""
    return kv_bytes_at(lm, rows=1, columns=1)


def kv_bytes_at(lm: LanguageModel, *, rows: int, columns: int) -> int:
    """Bytes of the KV cache's tensors once each of `rows` rows has seen `columns` columns."""
    return rows * cached(layer_kinds(lm.model), columns) * lm.model.dtype.itemsize


def forecast(lm: LanguageModel, batches: Sequence[Batch], requests: Sequence[Request]) -> Forecast:
    """What the run of these batches needs of the device, and whether it is free.

    Batches of another size are the same requests in the same order, grouped anew.
    """
    asked = max(len(batch.requests) for batch in batches)
    right = batches[0].padding_side == "right"
    on_cuda, held_by_each = lm.device.type == "cuda", spread(lm)
    rows = [
        Row(
            length,
            requests[index].max_new_tokens,
            sampling_bytes(requests[index], on_cuda=on_cuda),
        )
        for batch in batches
        for index, length in zip(batch.requests, batch.prompt_lengths, strict=True)
    ]
    need_of = needs(lm)

    def each_need(rows: Sequence[Row], batch_size: int) -> Iterator[Need]:
        shapes = (shape_of(lm, rows[at], right=right) for at in _slices(rows, batch_size))
        return (need_of(shape).where_split(held_by_each) for shape in shapes)

    free = free_together(lm, free_bytes)
    needed = list(each_need(rows, asked))
    largest, total = max(needed), max(need.total for need in needed)
    return Forecast(
        rows=largest.rows,
        columns=largest.columns,
        kv_bytes=largest.kv_bytes,
        working_bytes=total - largest.kv_bytes,
        free_bytes=free,
        largest_batch=None if free is None else largest_batch(rows, asked, free, each_need),
    )


def largest_batch(
    rows: Sequence[Row],
    asked: int,
    free: int,
    each_need: Callable[[Sequence[Row], int], Iterator[Need]],
) -> int:
    """The largest batch size, at most `asked`, whose batches all fit; 0 if there is none.

    A batch needs no less for another row in it, so the first batch alone bounds the size. Below,
    sizes are tried one after another: regrouped, a smaller batch may hold longer rows together
    than a larger one. A size is given up at its first batch that does not fit.
    """

    def fits(rows: Sequence[Row], batch_size: int) -> bool:
        return all(need.total <= free for need in each_need(rows, batch_size))

    sizes = range(1, asked + 1)
    most = bisect_left(sizes, True, key=lambda size: not fits(rows[:size], size))
    return next((size for size in range(most, 0, -1) if fits(rows, size)), 0)


def check_memory(forecast: Forecast) -> None:
    """Raise RequestError, with the numbers, if the run can't fit into the free memory."""
    if forecast.fits:
        return
    rows = "1 row" if forecast.rows == 1 else f"{forecast.rows:,} rows"
    numbers = (
        f"This run needs about {_size(forecast.bytes)} (KV cache {_size(forecast.kv_bytes)} for "
        f"{rows} of up to {forecast.columns:,} tokens, {_size(forecast.working_bytes)} to compute "
        f"with), and {_size(forecast.free_bytes)} are free."
    )
    if forecast.largest_batch:
        raise RequestError(
            f"{numbers} At most {forecast.largest_batch:,} of its rows fit a batch: make the batch "
            "smaller, the prompts shorter or the budgets lower."
        )
    raise RequestError(
        f"{numbers} Not even one row at a time fits: make the prompts shorter or the budgets lower."
    )


def shape_of(lm: LanguageModel, rows: Sequence[Row], *, right: bool) -> Shape:
    """The shape of a batch of these rows."""
    lengths, budgets, vocabulary_bytes = zip(*rows, strict=True)
    # Where rows end in different columns, each row's logits are computed for all of these columns
    # and then picked.
    ends = len(set(lengths)) if right else 1
    return Shape(
        rows=len(rows),
        prompt=max(lengths),
        new=max(budgets),
        padded=min(lengths) < max(lengths),
        logit_columns=(ends if lm.keeps_logits else max(lengths)) + (ends > 1),
        vocabulary_bytes=max(vocabulary_bytes),
    )


def sampling_bytes(request: Request, *, on_cuda: bool) -> int:
    """Bytes that picking a token holds at once, per row and vocabulary entry, beside the logits.

    Counted on CPU: nothing for greedy; copies in float32 where the logits are changed; for a draw
    also its distribution and the sum of it; for top-p ranks (8 bytes) and what is removed. On CUDA
    top-p, and top-k of few rows, sort by scores and then by row: beside scores (2 x 4), sorted
    scores and ranks (4 + 8) that holds ranks with their rows (2 x 8) and the radix sort's own
    copies (4 + 4 + 8), as ATen's SortStable.cu allocates them; 4 are to spare.
    """
    sampling = request.sampling
    if sampling.temperature > 0:
        if on_cuda and (sampling.top_k or sampling.top_p < 1):
            return 56
        return 32 if sampling.top_p < 1 else 20
    return 16 if sampling.repetition_penalty != 1 or request.min_new_tokens else 0


def needs(lm: LanguageModel) -> Callable[[Shape], Need]:
    """What a batch of a shape needs on this model.

    The terms, e being the bytes of a number, Q the queries of a row and K its keys:

    - cache: all columns of the prompts for all layers, also of windows: a layer's tensors are views
      into what was concatenated. Then the static cache, into which the layers move one by one,
      so that one is there twice.
    - masks of a prefill that needs some, for pads, windows or eager attention: B·Q·K truth values
      per kind of layer, and one in the model's dtype, which scaled dot product attention makes of
      it (with a padded copy on CUDA). Eager attention holds masks in the model's dtype and, per
      head, scores as they are, in float32, and as probabilities. Masks of a decode step: in the
      model's dtype, all columns and those it sees.
    - a layer: B·Q times the states between its parts, and the larger of attention (queries,
      outputs, and keys and values repeated for every head) and feed-forward.
    - the output layer: the last states, as they are and normed; logits, three times where they are
      capped, and what sampling makes of them.
    - the batch: ids, positions, and which are real; 40 bytes a column.
    """
    config, layers = text_config(lm.model), layer_kinds(lm.model)
    number = lm.model.dtype.itemsize
    eager = lm.info.attention == "eager"
    on_cuda = lm.device.type == "cuda"
    windows = {layer.window for layer in layers}
    kinds = len(windows) or 1
    windows.discard(None)
    heads = max(config.num_attention_heads for config in layer_configs(config))
    attended = max(attended_numbers(config) for config in layer_configs(config))
    compressed = is_latent(config)
    capped = getattr(config, "final_logit_softcapping", None)

    def scores(queries: int, keys: int) -> int:
        return queries * keys * heads * (number + 8) if eager else 0

    def prefill_masks(queries: int, *, padded: bool) -> int:
        if not (padded or eager or windows):
            return 0
        in_dtype = kinds if eager else 2 if on_cuda else 1
        return queries * queries * (kinds + number * in_dtype) + scores(queries, queries)

    def layer(queries: int, keys: int) -> int:
        packed = queries == 1 and PACKS_HEADS and not (eager or compressed)
        repeated = 0 if packed else keys
        attention = 2 * attended * (queries + repeated * (2 if compressed else 1))
        feed_forward = queries * feed_forward_numbers(config)
        return queries * state_numbers(config) + max(attention, feed_forward)

    def output(shape: Shape) -> int:
        logits = shape.logit_columns * number * (3 if capped else 1)
        return lm.vocab_size * (logits + shape.vocabulary_bytes)

    def need(shape: Shape) -> Need:
        seen = shape.prompt + shape.new - 1
        kept = {kind: capacity(seen, kind.window) for kind in layers}
        widest = max(kept.values())
        prompts = number * sum(kind.numbers(shape.prompt) * many for kind, many in layers.items())
        static = number * sum(kind.numbers(kept[kind]) * many for kind, many in layers.items())
        one_layer = number * max(kind.numbers(shape.prompt) for kind in layers)
        logits = number * lm.vocab_size * shape.logit_columns
        prefill = (
            prompts
            + prefill_masks(shape.prompt, padded=shape.padded)
            + max(
                number * layer(shape.prompt, shape.prompt),
                number * shape.prompt * 2 * config.hidden_size + output(shape),
            )
        )
        # Layers that have not moved yet hold their whole prompts, also those of windows.
        moving = one_layer + logits
        moving += number * sum(
            max(kind.numbers(shape.prompt), kind.numbers(kept[kind])) * many
            for kind, many in layers.items()
        )
        one_step = number * layer(1, widest) + scores(1, widest)
        decode = static + 2 * kinds * number * widest + max(one_step, output(shape))
        if on_cuda:  # a captured step works in memory of its own
            decode += one_step + logits
        elif shape.new > WORTH:  # a replay is held against the step that it stands in for
            decode += logits
        total = max(prefill, moving, decode) if shape.new > 1 else prefill
        constant = LIBRARY_BYTES.get(lm.device.type, 0)
        return Need(
            kv_bytes=shape.rows * number * cached(layers, seen),
            total=shape.rows * (total + 40 * (seen + 1)) + constant,
            rows=shape.rows,
            columns=seen,
        )

    return need


def _slices(rows: Sequence[Row], size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, len(rows), size))


def _size(count: int) -> str:
    """ "4.1 GB", in decimal units as on the page."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"

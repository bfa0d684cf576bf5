"""A model over two devices that are not there: does every tensor lie where it is needed?

python -m tests.pretend llama gemma3 gpt2

Torch's fake tensors have a shape and a device but no values, and refuse an operation on tensors of
two devices, as a GPU would. accelerate puts one half of a tiny model on each; the prefill and some
decode steps must go through, and logits come back to where the ids went in. It is a process of its
own, since torch learns of such a device once and for all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from accelerate import dispatch_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from engine.batching import pad
from engine.decode import Decoder
from engine.masks import prefill_mask
from engine.models import LanguageModel
from engine.static_cache import Columns
from tests.tiny import tiny_lm

FIRST, SECOND = "pretend:0", "pretend:1"
STEPS = 5


def halves(model: nn.Module) -> dict[str, str]:
    """A device map: what comes before the second layer, and what comes from it on."""
    inner, base = getattr(model, model.base_model_prefix), model.base_model_prefix
    placed = {"lm_head": SECOND}
    for name, part in inner.named_children():
        if isinstance(part, nn.ModuleList):
            for at in range(len(part)):
                placed[f"{base}.{name}.{at}"] = SECOND if at else FIRST
        else:
            placed[f"{base}.{name}"] = SECOND if name in ("norm", "ln_f") else FIRST
    return placed


def over_two(lm: LanguageModel) -> LanguageModel:
    """The model with weights of no value on both devices; in a FakeTensorMode."""
    placed = halves(lm.model)
    for path, module in lm.model.named_modules():
        for kept in (module._parameters, module._buffers):
            for name, tensor in kept.items():
                if tensor is not None:
                    part = next(part for part in placed if f"{path}.{name}".startswith(f"{part}."))
                    fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=placed[part])
                    is_weight = kept is module._parameters
                    kept[name] = nn.Parameter(fake, requires_grad=False) if is_weight else fake
    dispatch_model(lm.model, placed, skip_keys=lm.model._skip_keys_device_placement)
    return LanguageModel(lm.model, lm.tokenizer, lm.name)


@contextmanager
def without_values() -> Iterator[None]:
    """Fake tensors know the values of those made from a list, and would copy them to the device."""
    made = torch.tensor

    def zeros(data, dtype=None, device=None):
        return torch.zeros(made(data).shape, dtype=dtype or made(data).dtype, device=device)

    torch.tensor = zeros
    try:
        with FakeTensorMode(), torch.inference_mode():
            yield
    finally:
        torch.tensor = made


def run(lm: LanguageModel, *, padded: bool) -> list[torch.Tensor]:
    """The logits of a prefill and of some decode steps."""
    prompts = [[1, 2, 3], [4] * (9 if padded else 3)]
    batch = pad(prompts, pad_id=0, side="left", device=lm.device)
    cache = lm.new_cache()
    logits = [
        lm.forward(
            batch.input_ids,
            mask=prefill_mask(lm.model, cache, batch.real, has_pads=padded),
            position_ids=batch.position_ids,
            cache=cache,
            last=batch.last,
        )
    ]
    columns = batch.real.shape[1] + STEPS
    decoder = Decoder(lm, cache, batch.real, has_pads=padded, columns=columns)
    for _ in range(STEPS):
        logits.append(decoder.step(logits[-1].argmax(-1)))
    assert [str(layer.all_keys.device) for layer in cache.layers] == [FIRST, SECOND]
    return logits


def check_that_two_in_one_are_refused(lm: LanguageModel) -> None:
    """Layers that take their place from the first device alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Columns, "place_on", lambda columns, _device: columns.place)
        with pytest.raises(RuntimeError, match="expected to be in the same device"):
            run(lm, padded=True)


def main(families: list[str]) -> int:
    _setup_privateuseone_for_python_backend("pretend")
    for family in families:
        whole = tiny_lm(family)
        with without_values():
            lm = over_two(whole)
            assert lm.split == "2 devices"
            assert lm.decode_path == "eager"
            for padded in (False, True):
                assert {str(each.device) for each in run(lm, padded=padded)} == {FIRST}
            check_that_two_in_one_are_refused(lm)
        print(f"{family}: right over two devices")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

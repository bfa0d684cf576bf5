"""One model over several devices: some of its layers on each, one after another (accelerate), or a
share of each layer's heads on each (tensor parallel, in as many processes under torchrun).

Tensor parallel processes run the same program on the same requests: each computes its part of every
forward, and all have the same logits, so they take the same tokens and the same decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from transformers import PretrainedConfig

from engine.errors import ModelError
from engine.ranks import processes

if TYPE_CHECKING:
    from engine.models import LanguageModel


def placement(device_map: str | None, device: str, name: str) -> dict[str, Any]:
    """How `from_pretrained` is to spread the weights, as its arguments: nothing for one device in
    one process. Raises ModelError where they can't be spread so."""
    many = processes().count > 1
    if device_map is None and not many:
        return {}
    if device_map not in (None, "auto"):
        raise ModelError(f"The device map must be auto, not {device_map!r}.")
    if device_map and many:
        raise ModelError("Under torchrun each process has its own device: leave out --device-map.")
    if device != "auto" and not (many and device in ("cpu", "cuda")):
        way = "torchrun" if many else "--device-map"
        raise ModelError(f"With {way}, {name} is spread over all devices: leave out --device.")
    if many:
        from transformers.distributed import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    if find_spec("accelerate") is None:
        raise ModelError("--device-map needs accelerate: pip install accelerate")
    return {"device_map": device_map}


def check_heads(config: PretrainedConfig, name: str) -> None:
    """Raises ModelError where the heads can't be shared out among the processes."""
    count, config = processes().count, config.get_text_config()
    if count == 1:
        return
    heads = config.num_attention_heads
    for kind, number in (
        ("attention heads", heads),
        ("key and value heads", getattr(config, "num_key_value_heads", None) or heads),
    ):
        if number % count:
            raise ModelError(
                f"{name} has {number} {kind}: they can't be shared out among {count} processes."
            )


def check_spread(lm: LanguageModel) -> None:
    """Raises ModelError where a part of it lies where nothing is computed, since the devices had no
    room for it."""
    placed = getattr(lm.model, "hf_device_map", None) or {}
    away = {str(device) for device in placed.values()} & {"cpu", "disk", "meta"}
    if away - {lm.device.type}:
        raise ModelError(f"{lm.name} does not fit into the memory of the devices together.")


def shares(lm: LanguageModel) -> dict[torch.device, float]:
    """Which share of its KV cache each device holds, of those that this process uses."""
    if lm.processes > 1:
        return {lm.device: 1 / lm.processes}
    layers = Counter(lm.layer_devices)
    return {device: count / layers.total() for device, count in layers.items()}


def free_together(
    lm: LanguageModel, free_bytes: Callable[[torch.device], int | None]
) -> int | None:
    """Bytes that are free for what is spread as the layers are: the device whose share of it fits
    least often decides, of all processes. None where that can't be told. `free_bytes` is that of
    engine.free."""
    free = {device: free_bytes(device) for device in shares(lm)}
    if None in free.values():
        return None
    least = int(min(free[device] / share for device, share in shares(lm).items()))
    if lm.processes == 1:
        return least
    told = torch.tensor(least, device=lm.device)
    torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MIN)
    return int(told)


def spread(lm: LanguageModel) -> float:
    """So many times what one device holds at its largest moment, beside its share of the cache,
    must be free of what `free_together` tells, since it is not shared out."""
    return 1 / min(shares(lm).values())

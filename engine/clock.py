"""What a device did and when, told to the host without the host waiting for more than that."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def working_on(device: torch.device) -> AbstractContextManager[object]:
    """Make the device the current one: events and graphs of CUDA are of that one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class DeviceClock:
    """How long a device works on what is given to it between here and `stop`, by its own clock:
    `seconds`, to be asked once a result of that work is on the host. None off CUDA."""

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else None
        if self._marks:
            self._marks[0].record()

    def stop(self) -> None:
        if self._marks:
            self._marks[1].record()

    @property
    def seconds(self) -> float | None:
        return self._marks[0].elapsed_time(self._marks[1]) / 1000 if self._marks else None


class HostCopy:
    """A copy of a tensor on its way to the host; `read` waits for it and for nothing after it."""

    def __init__(self, tensor: Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._tensor = tensor
        if tensor.device.type == "cuda":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            self._done = torch.cuda.Event(blocking=True)  # the host sleeps until then
            self._done.record()

    def read(self) -> list:
        if self._done is not None:
            self._done.synchronize()
        return self._tensor.tolist()


def to_device(values: list[bool] | list[int], device: torch.device) -> Tensor:
    """A tensor of the values, without waiting for what the device does."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor

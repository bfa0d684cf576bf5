"""How long a device itself worked, by its own clock where it has one."""

from __future__ import annotations

import torch


class DeviceClock:
    """`start` and `stop` mark moments in the device's queue of work; `seconds` is between them,
    to be asked once the host has read a result of that work. None off CUDA."""

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else None

    def start(self) -> None:
        if self._marks:
            self._marks[0].record()

    def stop(self) -> None:
        if self._marks:
            self._marks[1].record()

    @property
    def seconds(self) -> float | None:
        return self._marks[0].elapsed_time(self._marks[1]) / 1000 if self._marks else None

"""The most memory that some work held at once on a device, beside what was there before it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

# The profiler tells stderr when it starts and stops.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

Found = TypeVar("Found")


def counted_while_timed(device: torch.device) -> bool:
    """Whether counting costs nothing: CUDA's allocator keeps count by itself. On a CPU torch's
    profiler writes down every allocation, which takes time, so it needs a run of its own."""
    return device.type == "cuda"


def with_peak(work: Callable[[], Found], device: torch.device) -> tuple[Found, int | None]:
    """Run the work -> its result and bytes, of tensors alone and exact; None where nobody counts.

    CUDA's count is the whole process's: have the device to yourself before."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        found = work()
        return found, torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return work(), None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        found = work()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return found, peak

"""What memory a device has left, and whether it ran out."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import torch

from engine.cgroups import OWN, ROOT, groups_with
from engine.errors import words_of
from engine.live import ON_ZERO_GPU

PROCESS = os.getpid()
"""Where this module was loaded; on ZeroGPU only a process forked from there has a device."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes that a run may still take on the device, None where that can't be told.

    CUDA: what the driver has, and what torch's allocator holds unused. CPU: what the machine can
    give without swapping, or what is left to the container if that is less.
    """
    if device.type == "cpu":
        return min([psutil.virtual_memory().available, *cgroup_bytes_left()])
    if device.type == "mps":
        return max(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory(), 0)
    if device.type != "cuda" or (ON_ZERO_GPU and os.getpid() == PROCESS):
        return None
    free, _total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def cgroup_bytes_left(root: Path = ROOT, own: Path = OWN) -> list[int]:
    """Bytes left below each memory limit that holds for this process. Empty where there is none.

    File pages not in use are not counted as used, since the kernel takes them back.
    """
    left = []
    for folder, unified in groups_with("memory", root=root, own=own):
        if unified:
            files = ("memory.max", "memory.current", "inactive_file")
        else:
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        left += _left_in(folder, *files)
    return left


def _left_in(group: Path, limit: str, usage: str, reclaimable: str) -> list[int]:
    if not (group / limit).exists() or not (group / usage).exists():
        return []
    most = (group / limit).read_text().strip()
    if most == "max":
        return []
    statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / usage).read_text()) - int(statistics.get(reclaimable, 0))
    return [max(int(most) - used, 0)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; only CUDA's allocator has a class for it."""
    says = (
        "can't allocate memory",
        "std::bad_alloc",
        "out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",  # no room for cuBLAS's own workspace or handle
    )
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(text in words_of(error) for text in says)
    )

"""How many threads a CPU's products run on: no more than this process may use cores."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import torch

from engine.cgroups import OWN, ROOT, groups_with


def fit_threads(root: Path = ROOT, own: Path = OWN) -> None:
    """Take as many threads as the container's share of the cores, if torch would take more: it
    counts the host's cores, and threads beyond the share are stopped in the middle of a product,
    while the others wait for them. Fewer, as by OMP_NUM_THREADS, stay as they are."""
    shares = cores_granted(root, own)
    if shares and (most := max(1, ceil(min(shares)))) < torch.get_num_threads():
        torch.set_num_threads(most)


def cores_granted(root: Path = ROOT, own: Path = OWN) -> list[float]:
    """Cores' worth of time that each limit grants this process. Empty where there is none."""
    granted = []
    for folder, unified in groups_with("cpu", root=root, own=own):
        if unified:
            quota, period = _words(folder / "cpu.max") or ("max", "")
        else:
            quota, period = (
                " ".join(_words(folder / name))
                for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            )
        if quota not in ("max", "-1", "") and period:
            granted.append(int(quota) / int(period))
    return granted


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []

"""Which of the processes that torchrun has started this one is."""

from __future__ import annotations

import os
from typing import NamedTuple


class Processes(NamedTuple):
    """This is process `rank` of `count`, from 0 on."""

    rank: int
    count: int


def processes() -> Processes:
    """RANK and WORLD_SIZE are believed of torchrun alone: clusters set them for purposes of their
    own."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Processes(0, 1)
    return Processes(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

"""Which of the processes that torchrun has started this one is."""

from __future__ import annotations

import os
from typing import NamedTuple


class Processes(NamedTuple):
    """This is process `rank` of `count`, from 0 on."""

    rank: int
    count: int


def processes() -> Processes:
    return Processes(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

"""A place in the line in front of the device, in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from viz.words import plural


def place_in_line(*, ahead: int, waited: float, run_seconds: int) -> str:
    """`waited` seconds so far; each of the runs ahead may have the device for `run_seconds`."""
    so_far = _duration(waited, rounded=math.floor)
    most = _duration(ahead * run_seconds, rounded=math.ceil)
    return f"Waiting: {plural(ahead, 'run')} before yours; {so_far} so far, at most {most} more."


def _duration(seconds: float, *, rounded: Callable[[float], int]) -> str:
    """ "40 s", and whole minutes from two on."""
    return f"{rounded(seconds)} s" if seconds < 120 else f"{rounded(seconds / 60)} min"

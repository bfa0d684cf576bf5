"""A place in the line in front of the device, in words."""

from __future__ import annotations

import math

from viz.words import plural


def place_in_line(*, ahead: int, waited: float, run_seconds: int) -> str:
    """`waited` seconds so far; each of the runs ahead may have the device for `run_seconds`."""
    return (
        f"Waiting: {plural(ahead, 'run')} before yours; {_duration(int(waited))} so far, "
        f"at most {_duration(ahead * run_seconds)} more."
    )


def _duration(seconds: int) -> str:
    """ "40 s"; from two minutes on whole minutes, rounded up."""
    return f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"

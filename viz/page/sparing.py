"""How often a browser is told of a run when it shares the cores that the engine needs."""

from __future__ import annotations

import os
import time
from ipaddress import ip_address

import gradio as gr

IN_USE = 0.6
"""Of the cores' time, from which on whoever draws takes it from the engine; less than that of an
engine that has just lost some to a picture."""
SPARING_SECONDS = 2.5
"""From one frame to the next then; else they come as the engine's thread is looked at."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host")
"""Headers of a request that somebody passed on."""
SELDOM = f"The picture comes every {SPARING_SECONDS:g} s: this browser shares the engine's cores."


class Sparing:
    """Tells when the next frame is due for a visitor: seldom where the browser runs on this machine
    and the engine keeps its cores busy. The threads of a product wait for each other, so what a
    picture takes from one of them it takes from all."""

    def __init__(self, address: str | None) -> None:
        """`address` is the visitor's, as the server sees it, if it does."""
        self._is_here = _is_loopback(address)
        self._cores = _cores()  # asked once: a call of the system costs as much as a tile
        self._told: tuple[float, float] | None = None
        self.holds_back = False
        """Whether it has ever said no."""

    @classmethod
    def of(cls, request: gr.Request) -> Sparing:
        """For the visitor who asks. Whoever comes through a proxy on this machine, or through
        Gradio's tunnel, is elsewhere."""
        is_forwarded = any(name in request.headers for name in FORWARDED)
        return cls(None if is_forwarded else getattr(request.client, "host", None))

    def is_due(self) -> bool:
        """Whether to tell of the run now; the first time it is. What comes next is counted from
        when it was."""
        now = _clocks()
        if self._told and self._is_here and self._is_too_soon(*now):
            self.holds_back = True
            return False
        self._told = now
        return True

    def _is_too_soon(self, wall: float, processor: float) -> bool:
        passed, used = wall - self._told[0], processor - self._told[1]
        return passed < SPARING_SECONDS and used >= IN_USE * self._cores * passed


def _clocks() -> tuple[float, float]:
    """The wall's, and the processor time that this process has used, both in seconds."""
    return time.monotonic(), time.process_time()


def _is_loopback(address: str | None) -> bool:
    try:
        return address is not None and ip_address(address).is_loopback
    except ValueError:
        return False


def _cores() -> int:
    """That this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""News of a call, from the engine's thread to the server's event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from engine.collecting import News, Over


class Inbox:
    """Made in the loop that `take`s; `tell` is called from the engine's thread.

    Where nobody reads along, the loop is woken at the end alone: an answer that is sent whole
    costs the others no time while it grows.
    """

    def __init__(self, *, reads_along: bool) -> None:
        self._reads_along = reads_along
        self._loop = asyncio.get_running_loop()
        self._news: deque[News] = deque()
        self._there = asyncio.Event()

    def tell(self, news: News) -> None:
        self._news.append(news)
        if self._reads_along or isinstance(news, Over):
            with suppress(RuntimeError):  # the server has closed its loop: nobody is left to hear
                self._loop.call_soon_threadsafe(self._there.set)

    async def take(self) -> list[News]:
        """All that has come since the last time; waits until there is something."""
        await self._there.wait()
        self._there.clear()
        taken = []
        while self._news:
            taken.append(self._news.popleft())
        return taken

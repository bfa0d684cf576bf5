"""Answers on their way to a client that may leave at any moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")

NOT_KEPT = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def event(data: dict[str, Any], kind: str | None = None) -> str:
    """A server-sent event, in ASCII: no other character can end a line of it."""
    named = f"event: {kind}\n" if kind else ""
    return f"{named}data: {json.dumps(data, separators=(',', ':'))}\n\n"


class EventStream(StreamingResponse):
    """Server-sent events; `leave` is called when nobody reads them any more, also where nobody ever
    began to."""

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=NOT_KEPT)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def unless_gone(http: Request, work: Awaitable[Result]) -> Result:
    """What the work comes to. ClientDisconnect, and its end, if the client leaves before that."""
    working = asyncio.ensure_future(work)
    gone = asyncio.create_task(_gone(http))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        gone.cancel()


async def _gone(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        continue

"""Who may come in, and with how much: whoever has the key, where there is one."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.openai.refusals import ApiError


class Door:
    """ASGI middleware that asks for the key before anything of a request is read, and lets no
    request be larger than `largest` bytes."""

    def __init__(self, app: ASGIApp, *, key: str | None, largest: int) -> None:
        self._app = app
        self._key = key
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._has_key(scope):
            await NO_KEY.response()(scope, receive, send)
        else:
            await self._app(scope, self._counting(receive), send)

    def _has_key(self, scope: Scope) -> bool:
        """Takes as long for a key that is nearly right as for any other."""
        if self._key is None:
            return True
        kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._key.encode())
        return same and kind.lower() == "bearer"

    def _counting(self, receive: Receive) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._largest:
                raise HTTPException(413, f"The request is larger than {self._largest:,} bytes")
            return message

        return counted


NO_KEY = ApiError(
    401,
    "The API key is missing or wrong: send it as Authorization: Bearer KEY.",
    code="invalid_api_key",
    headers={"WWW-Authenticate": "Bearer"},
)

"""Who may come in: whoever has the key, where there is one."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.openai.refusals import ApiError


class Door:
    """ASGI middleware that asks for the key before anything of a request is read."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._key is not None and not self._opens(scope):
            await NO_KEY.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _opens(self, scope: Scope) -> bool:
        """Takes as long for a key that is nearly right as for any other."""
        kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._key.encode())
        return same and kind.lower() == "bearer"


NO_KEY = ApiError(
    401,
    "The API key is missing or wrong: send it as Authorization: Bearer KEY.",
    code="invalid_api_key",
    headers={"WWW-Authenticate": "Bearer"},
)

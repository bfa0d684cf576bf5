"""What stands in front of every request: the doors that are open, how much may come in, and what
the browser may do with the page."""

from __future__ import annotations

import logging
import re
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.runfile import MAX_BYTES
from viz.assets import PLOTLY_JS
from viz.page.transfer import KEEP, may_be_kept

log = logging.getLogger("batchscope.page")

LARGEST_BODY = 2 * MAX_BYTES + 2**16
"""Bytes of a request: a saved run travels as a JSON text inside JSON, where each of its quotes and
backslashes takes two."""
LARGEST_HEADERS = 2**15
"""Bytes of a request's headers."""

API = "/gradio_api/"
BESIDE = "/v1/"
OPEN = re.compile(
    "|".join(
        [
            r"(run|api)/[^/]+|call/[^/]+(/[0-9a-f]+)?",
            r"queue/(join|data|status)",
            r"heartbeat/[^/]+",
            r"info|openapi\.json|cancel|reset|component_server|startup-events|theme\.css",
            r"app_id|user|login_check",
            re.escape(f"file={PLOTLY_JS}"),
        ]
    )
)
"""What the page and gradio_client call of Gradio's routes. Closed are those that take uploads,
fetch other addresses, serve other files, record, or edit and reload the app."""

HEADERS = {
    "Content-Security-Policy": "; ".join(
        [
            "default-src 'self'",
            # Gradio writes its configuration into the page, and makes functions of components'
            # scripts and templates.
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            # No frame-ancestors: a Space shows the page in a frame, and so do slides. There is
            # nobody logged in whose click could be stolen.
        ]
    ),
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), clipboard-write=(self)",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

TOO_LARGE = PlainTextResponse(
    f"This is more than a saved run can be: the limit is {LARGEST_BODY:,} bytes.", 413
)
TOO_MANY_HEADERS = PlainTextResponse("The headers of this request are too long.", 431)
MALFORMED = PlainTextResponse("This request can't be answered.", 400)
CLOSED = PlainTextResponse("This page does not offer that.", 404)


class Guard:
    """ASGI middleware in front of the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await Visit(scope, receive, send).through(self.app)
        else:
            await self.app(scope, receive, send)


class Visit:
    """One request: counts what comes in, and says what leaves with which headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._refusal = refusal(scope)
        self._received = 0
        self._answered = self._over = False

    async def through(self, app: ASGIApp) -> None:
        if self._refusal is None:
            try:
                await app(self._scope, self.receive, self.send)
            except ClientDisconnect:
                if self._refusal is None:
                    raise
            except Exception as error:
                if self._answered:
                    # Gradio begins to answer before it looks up whose events these are.
                    log.info("no answer to %s: %s", self._scope["path"], _kind_and_place(error))
                    if not self._over:
                        await self._send({"type": "http.response.body", "body": b""})
                    return
                # What the page's own functions raise is a sentence by now: this is a request that
                # Gradio could not make sense of.
                self._refusal = MALFORMED
                log.info("no answer to %s: %s", self._scope["path"], _kind_and_place(error))
                log.debug("its traceback", exc_info=_wordless(error))
        if self._refusal is not None and not self._answered:
            await self._refusal(self._scope, self._receive, self._answer)

    async def receive(self) -> Message:
        """What comes in. More than is allowed, whatever was announced, ends the connection: what
        the app answers to that is not sent, and the refusal is."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > LARGEST_BODY:
            self._refusal = TOO_LARGE
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        if self._refusal is None or self._answered:
            await self._answer(message)

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._answered = True
            # How Gradio sends every refusal; what is mounted beside it says itself what it means.
            if message["status"] == 500 and not self._scope["path"].startswith(BESIDE):
                message |= {"status": 400}
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            if message["status"] == 200 and may_be_kept(self._scope):
                headers["Cache-Control"] = KEEP
        self._over = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)


def _kind_and_place(error: Exception) -> str:
    """What was raised and where, without its text, which may quote what was sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def _wordless(error: Exception) -> Exception:
    return RuntimeError(type(error).__name__).with_traceback(error.__traceback__)


def refusal(scope: Scope) -> PlainTextResponse | None:
    """The answer to a request that is refused before any of its body is read."""
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
        return TOO_MANY_HEADERS
    _, api, route = scope["path"].partition(API)
    if api and not OPEN.fullmatch(route.removesuffix("/")):
        return CLOSED
    if "/pwa_icon/" in scope["path"]:  # Gradio draws a host's icon as large as is asked for.
        return CLOSED
    announced = Headers(scope=scope).get("content-length", "0")
    if announced.isdecimal() and float(announced) > LARGEST_BODY:
        return TOO_LARGE
    return None

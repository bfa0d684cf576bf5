"""How little travels: what a browser may keep for good, and what is compressed for it."""

from __future__ import annotations

import re

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from viz.assets import PLOTLY_JS, PLOTLY_VERSION

KEEP = "public, max-age=31536000, immutable"
"""The Cache-Control of a file whose address changes with its content."""

NAMED_BY_CONTENT = re.compile(r".*/assets/[^/]+-[\w-]{8}\.(js|css|woff2?)")
"""Gradio's own scripts and styles: their names end with a hash."""

SMALLEST = 1_000
"""Bytes from which on compressing is worth it."""
LEVEL = 5


def may_be_kept(scope: Scope) -> bool:
    """Whether what is at this address will never be anything else."""
    path, query = scope["path"], scope.get("query_string", b"")
    if path.endswith(f"/file={PLOTLY_JS}"):
        return query == PLOTLY_VERSION.encode()
    return NAMED_BY_CONTENT.fullmatch(path) is not None


class Gzip:
    """ASGI middleware that compresses the page and what answers in JSON. Gradio's own does so by
    the ending of an address, and these have none; streams of events pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(app, minimum_size=SMALLEST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_ending = scope["type"] != "http" or "." in scope["path"].rpartition("/")[2]
        await (self._app if has_ending else self._compressing)(scope, receive, send)

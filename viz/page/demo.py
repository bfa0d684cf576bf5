"""Blocks that look, listen and keep quiet as this page does, whoever launches them."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio_client.utils import is_file_obj_with_meta, traverse
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from viz.assets import allow_assets
from viz.page.guard import Guard
from viz.page.page import CSS_PATHS
from viz.theme import FONT, css_variables

log = logging.getLogger("batchscope.page")


def _refused(sentence: str) -> gr.Error:
    return gr.Error(sentence, visible=False, print_exception=False)


MOST_UNREAD = 100
"""Messages that wait for a visitor who is still there: ten seconds of a run."""


def _refuse_file(_: object) -> None:
    raise _refused("This page takes no files.")


async def _malformed(_: Any, __: Exception) -> PlainTextResponse:
    """FastAPI would quote what came, and fail where that is no Unicode text."""
    return PlainTextResponse("This is no request that the page understands.", 422)


class Demo(gr.Blocks):
    """Blocks that bring their looks along, and keep visitors' data to themselves, whoever
    launches them. `runs` is how many may be under way or wait."""

    def __init__(self, *, runs: int, **options: Any) -> None:
        super().__init__(**options)
        self._runs = runs

    def is_heard(self, session: str) -> bool:
        """Whether somebody takes what is streamed to this session."""
        messages = self._queue.pending_messages_per_session.get(session)
        return messages is None or messages.qsize() <= MOST_UNREAD

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *rest: Any, **options: Any
    ) -> list[Any]:
        """No event takes a file: Gradio would fetch the address that one names. Nor may it print
        what it can't make sense of, which it quotes: that may be a prompt."""
        try:
            traverse(inputs, _refuse_file, is_file_obj_with_meta)
            return await super().preprocess_data(block_fn, inputs, *rest, **options)
        except Exception as error:
            if isinstance(error, gr.Error) and not error.print_exception:
                raise
            log.info("%s was sent values without sense: %s", block_fn.name, type(error).__name__)
            raise _refused("This call has too few values, or one that makes no sense.") from None

    def launch(
        self, *, app_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, str, str]:
        allow_assets()
        theirs = app_kwargs or {}
        own = {
            "theme": gr.themes.Base(font=FONT, font_mono=["monospace"]),
            "css": css_variables(),
            "css_paths": CSS_PATHS,
            "footer_links": [],
            "run_history": False,
            "ssr_mode": False,
            "enable_monitoring": False,
            "max_threads": max(40, 4 * self._runs),  # 40 is Gradio's own
            "max_file_size": "1kb",  # the page takes no uploads
            # Half a megabyte each, of nothing that this page uses; made anew when one is missed.
            "state_session_capacity": self._runs,
            "app_kwargs": theirs
            | {
                "middleware": [Middleware(Guard), *theirs.get("middleware", ())],
                "exception_handlers": {RequestValidationError: _malformed}
                | theirs.get("exception_handlers", {}),
            },
        }
        return super().launch(**own | options)

"""Blocks that look, listen and keep quiet as this page does, whoever launches them."""

from __future__ import annotations

import logging
import sys
from copy import copy
from importlib.util import find_spec
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.state_holder import SessionState
from gradio_client.utils import is_file_obj_with_meta, traverse
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from viz.assets import allow_assets
from viz.page.guard import Guard
from viz.page.page import CSS_PATHS
from viz.page.transfer import Gzip
from viz.theme import FONT, css_variables

log = logging.getLogger("batchscope.page")


if find_spec("matplotlib") is None:
    # Gradio tries to import it twice for every update, and a search that fails is slow.
    sys.modules.setdefault("matplotlib", None)


def _refused(sentence: str) -> gr.Error:
    return gr.Error(sentence, visible=False, print_exception=False)


MOST_UNREAD = 100
"""Messages that wait for a visitor who is still there: ten seconds of a run."""


SECONDS_BETWEEN_LOOKS = 0.05
"""How often Gradio looks whether an event has come. Its own millisecond would take four percent of
a core for as long as the page is served, also from a run."""

STAYS = gr.skip()
"""The value of an output that stays as it is."""


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

    async def postprocess_data(
        self, block_fn: Any, predictions: Any, state: SessionState | None
    ) -> list[Any]:
        """Outputs that stay as they are pass untouched: for each of them Gradio would make its
        component anew, which takes a millisecond."""
        outputs = block_fn.outputs
        several = isinstance(predictions, list | tuple) and len(predictions) == len(outputs) > 1
        changed = [i for i, value in enumerate(predictions) if value != STAYS] if several else []
        if not several or len(changed) == len(outputs):
            return await super().postprocess_data(block_fn, predictions, state)
        data: list[Any] = [dict(STAYS) for _ in outputs]
        if changed:
            part = copy(block_fn)
            part.outputs = [outputs[i] for i in changed]
            values = [predictions[i] for i in changed]
            told = values if len(changed) > 1 else values[0]
            for i, value in zip(
                changed, await super().postprocess_data(part, told, state), strict=True
            ):
                data[i] = value
        return data

    def handle_streaming_diffs(
        self, block_fn: Any, data: list[Any], *, final: bool, **options: Any
    ) -> list[Any]:
        """The page has the last value of a stream when it ends; Gradio would send it once more,
        and whole."""
        data = super().handle_streaming_diffs(block_fn, data, final=final, **options)
        is_told = final and block_fn.api_visibility == "private"
        return [dict(STAYS) for _ in data] if is_told else data

    def launch(
        self, *, app_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, str, str]:
        allow_assets()
        self._queue.sleep_when_free = SECONDS_BETWEEN_LOOKS
        self._queue.progress_update_sleep_when_free = 1.0  # nothing here tells Gradio's progress
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
                "middleware": [Middleware(Guard), Middleware(Gzip), *theirs.get("middleware", ())],
                "exception_handlers": {RequestValidationError: _malformed}
                | theirs.get("exception_handlers", {}),
            },
        }
        return super().launch(**own | options)

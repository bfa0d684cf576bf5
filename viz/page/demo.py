"""Blocks that look, listen and keep quiet as this page does, whoever launches them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.state_holder import SessionState
from gradio_client.utils import is_file_obj_with_meta, traverse
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute

from viz.assets import allow_assets
from viz.page.guard import Guard
from viz.page.page import CSS_PATHS
from viz.page.transfer import Gzip
from viz.page.wire import Wires
from viz.theme import FONT, css_variables

log = logging.getLogger("batchscope.page")


def _refused(sentence: str) -> gr.Error:
    return gr.Error(sentence, visible=False, print_exception=False)


MOST_UNREAD = 100
"""Messages that wait for a visitor who is still there: ten seconds of a run."""


SECONDS_BETWEEN_LOOKS = 0.05
"""How often Gradio looks whether an event has come. Its own millisecond would take four percent of
a core for as long as the page is served."""
SECONDS_BETWEEN_LOOKS_OF_A_RUN = 0.2
"""The same while something streams: who comes then waits in line anyway, and two looks cost as much
as a fifth of an update."""
SECONDS_OF_A_RUN = 1.0
"""For so long after an update another one may come."""


def _note_that_matplotlib_is_missing() -> None:
    """Gradio imports it twice for each update, and where it is not installed, Python looks through
    its whole path each time: a twentieth of what an update costs. None in `sys.modules` is Python's
    own note of a module that can't be imported."""
    if find_spec("matplotlib") is None:
        sys.modules.setdefault("matplotlib", None)


def _refuse_file(_: object) -> None:
    raise _refused("This page takes no files.")


async def _malformed(_: Any, __: Exception) -> PlainTextResponse:
    """FastAPI would quote what came, and fail where that is no Unicode text."""
    return PlainTextResponse("This is no request that the page understands.", 422)


class Demo(gr.Blocks):
    """Blocks that bring their looks along, and keep visitors' data to themselves, whoever
    launches them. `runs` is how many may be under way or wait; `beside` are routes that the same
    server has besides, and `css_paths` style sheets of what not every page has."""

    def __init__(
        self,
        *,
        runs: int,
        beside: Sequence[BaseRoute] = (),
        css_paths: Sequence[Path] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._runs = runs
        self._beside = beside
        self._css_paths = css_paths
        self._run_is_over: asyncio.TimerHandle | None = None
        self.wires = Wires(on_told=partial(self._look_for_events, seldom=True))

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
        """What an event declares to be plain data (`postprocess=False`) passes as it is. Gradio
        would look for files in each of its parts, and make each component anew that it updates, or
        that stays as it is."""
        values = list(predictions) if len(block_fn.outputs) > 1 else [predictions]
        if not block_fn.postprocess and all(isinstance(value, dict) for value in values):
            return values
        return await super().postprocess_data(block_fn, predictions, state)

    async def process_api(self, *event: Any, **options: Any) -> dict[str, Any]:
        """No value names a file, whose address would begin with the server's: without that, Gradio
        does not look for files in each part of every value. Nor may what an event tells beside its
        values: Gradio would quote it in a toast."""
        if (told := options.get("event_data")) is not None:
            traverse(told._data, _refuse_file, is_file_obj_with_meta)
        answer = await super().process_api(*event, **options | {"root_path": None})
        self._look_for_events(seldom=answer["is_generating"])
        return answer

    def _look_for_events(self, *, seldom: bool = False) -> None:
        """From now on, or seldom as long as updates come: a visitor who left ends their stream
        without a word."""
        if self._run_is_over:
            self._run_is_over.cancel()
        self._run_is_over = None
        self._queue.sleep_when_free = SECONDS_BETWEEN_LOOKS
        if seldom:
            self._queue.sleep_when_free = SECONDS_BETWEEN_LOOKS_OF_A_RUN
            loop = asyncio.get_running_loop()
            self._run_is_over = loop.call_later(SECONDS_OF_A_RUN, self._look_for_events)

    def handle_streaming_diffs(
        self, block_fn: Any, data: list[Any], *, final: bool, **options: Any
    ) -> list[Any]:
        """The page has the last value of a stream when it ends; Gradio would send it once more,
        and whole."""
        data = super().handle_streaming_diffs(block_fn, data, final=final, **options)
        is_told = final and block_fn.api_visibility == "private"
        return [gr.skip() for _ in data] if is_told else data

    def launch(
        self, *, app_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, str, str]:
        allow_assets()
        _note_that_matplotlib_is_missing()
        self._look_for_events()
        self._queue.progress_update_sleep_when_free = 1.0  # nothing here tells Gradio's progress
        theirs = app_kwargs or {}
        own = {
            "theme": gr.themes.Base(font=FONT, font_mono=["monospace"]),
            "css": css_variables(),
            "css_paths": [*CSS_PATHS, *self._css_paths],
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
                "routes": [self.wires.route, *self._beside, *theirs.get("routes", ())],
                "middleware": [Middleware(Guard), Middleware(Gzip), *theirs.get("middleware", ())],
                "exception_handlers": {RequestValidationError: _malformed}
                | theirs.get("exception_handlers", {}),
            },
        }
        return super().launch(**own | options)

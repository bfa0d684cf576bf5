"""Whatever went wrong, as one plain sentence for the visitor."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from engine.errors import BatchscopeError

log = logging.getLogger("batchscope.page")


def sentence(error: Exception) -> str:
    """What to tell a visitor; what only the host understands goes to the log."""
    if isinstance(error, BatchscopeError):
        return str(error)
    if isinstance(error, gr.Error):  # ZeroGPU has no GPU to lend, or none for this visitor
        return html.unescape(re.sub(r"<[^>]*>", "", error.message))
    log.error("a run failed outside the engine", exc_info=error)
    return "Something went wrong on the server; its log says what."


@contextmanager
def one_sentence() -> Iterator[None]:
    """Failures as what Gradio tells a client, and only the client that called. It shows no toast,
    which would render the sentence, and what was typed in it, as markup."""
    try:
        yield
    except Exception as error:
        raise gr.Error(sentence(error), visible=False, print_exception=False) from error

"""The control: one request after another, each alone in its batch of one."""

from __future__ import annotations

from engine.models import LanguageModel
from engine.static import StaticBatchEngine


class SerialEngine(StaticBatchEngine):
    """Runs each request by itself: no padding, no idle slots, one forward per token and request.

    The same loop as the static engine with one row, so that the two differ in batching alone.
    """

    name = "serial"

    def __init__(self, lm: LanguageModel, *, chat_template: bool = False) -> None:
        super().__init__(lm, batch_size=1, chat_template=chat_template)

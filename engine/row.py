"""One row of a batch while it runs: its text as it grows, and why it ends."""

from __future__ import annotations

from collections.abc import Collection

from transformers import PreTrainedTokenizerBase

from engine.run import End, Request
from engine.text import StopStrings, TextStream


class ActiveRow:
    """Takes a row's tokens one after another; `end` is set with the one that ends it."""

    def __init__(
        self, request: Request, tokenizer: PreTrainedTokenizerBase, end_ids: Collection[int]
    ) -> None:
        self.end: End | None = None
        self._end_ids = frozenset() if request.ignore_eos else end_ids
        self._request = request
        self._text = TextStream(tokenizer)
        self._stop = StopStrings(request.stop)
        self._tokens = 0

    def take(self, token: int) -> str:
        """The text that became readable with the row's next token."""
        self._tokens += 1
        if token in self._end_ids:
            # An end token is no text, also where the tokenizer does not list it as special.
            self.end = "eos"
            return self.rest()
        text = self._text.push(token)
        if self._tokens >= self._request.min_new_tokens:
            text = self._stop.push(text)
            # A run of byte tokens is held back as a whole, also once a stop string stands in it.
            if not self._stop.found and self._stop.completed_by(self._text.waiting()):
                text += self._stop.push(self._text.flush())
        if self._stop.found:
            self.end = "stop"
        elif self._tokens == self._request.max_new_tokens:
            self.end = "length"
            text += self.rest()
        return text

    def rest(self) -> str:
        """The text that was held back, once nothing more will come."""
        return self._stop.flush() + self._text.flush()

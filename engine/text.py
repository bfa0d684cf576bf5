"""Token ids of one row -> text as it grows, never half a character."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class TextStream:
    """Incremental detokenisation of one row.

    Only a short window is decoded at each token: the ids of the last piece that was shown, for
    context (a lone SentencePiece token would lose its leading space), and those not shown yet.
    Text that ends in U+FFFD is held back, since the next token may complete the character, and
    so is a run of SentencePiece byte tokens, which decodes as a whole or not at all.
    The pieces join to `decode(all ids)`, special tokens left out and nothing cleaned up.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        self._in_bytes = False
        self._special = frozenset(tokenizer.all_special_ids)

    def push(self, token: int) -> str:
        """The text that became readable with this token, possibly ""."""
        self._pending.append(token)
        if token not in self._special:  # those are left out, so they end no run of bytes
            self._in_bytes = self._is_byte(token)
        text = self._decode(self._context + self._pending)
        if text.endswith(REPLACEMENT) or self._in_bytes:
            return ""
        return self._show(text)

    def waiting(self) -> str:
        """What `flush` would show now, "" while a character is incomplete."""
        if not self._pending:
            return ""
        text = self._decode(self._context + self._pending)
        return "" if text.endswith(REPLACEMENT) else text[len(self._context_text) :]

    def flush(self) -> str:
        """What was held back, at the end of the row; half a character shows as U+FFFD."""
        return self._show(self._decode(self._context + self._pending))

    def _show(self, text: str) -> str:
        piece = text[len(self._context_text) :]
        if piece:
            self._context, self._pending = self._pending, []
            self._context_text = self._decode(self._context)
        return piece

    def _is_byte(self, token: int) -> bool:
        return BYTE_TOKEN.fullmatch(self._tokenizer.convert_ids_to_tokens(token) or "") is not None

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class StopStrings:
    """Finds the stop string that a growing text completes first. `found` is set with the piece
    that completes it; what may be the beginning of one is held back meanwhile."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.found = False
        self._stops = stops
        self._held = ""

    def push(self, piece: str) -> str:
        """The text that is certain to be shown now, the stop string and what follows left out."""
        text, self._held = self._held + piece, ""
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if found:
            self.found = True
            _, start = min(found)
            return text[:start]
        certain = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]

    def completed_by(self, piece: str) -> bool:
        """Whether this piece, pushed next, would complete a stop string."""
        text = self._held + piece
        return any(stop in text for stop in self._stops)

    def flush(self) -> str:
        """What was held back, once nothing more will come."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are the beginning of the stop string."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)

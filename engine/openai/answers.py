"""An answer as it grows, and how OpenAI's API writes it: whole, or in pieces."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.collecting import News, Over, Started, Wrote
from engine.errors import BatchscopeError
from engine.run import End, Request

FINISH: dict[End, str] = {"eos": "stop", "stop": "stop", "length": "length"}


class Answer:
    """What has been told of a call so far: a text, a count of tokens and an end for each row."""

    def __init__(self, requests: Sequence[Request], *, choices: int = 1) -> None:
        self.texts = [""] * len(requests)
        self.tokens = [0] * len(requests)
        self.ends: list[End | None] = [None] * len(requests)
        self.started: Started | None = None
        self.over = False
        self.error: BatchscopeError | None = None
        self._prompt_tokens = sum(len(request.prompt) for request in requests[::choices])

    def take(self, news: News) -> None:
        if isinstance(news, Started):
            self.started = news
        elif isinstance(news, Wrote):
            self.texts[news.row] += news.text
            self.tokens[news.row] += 1
            self.ends[news.row] = news.end
        elif isinstance(news, Over):
            self.over, self.error = True, news.error

    def usage(self) -> dict[str, int]:
        """Each prompt counts once, however many choices it has; an end token counts as made."""
        made = sum(self.tokens)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self._prompt_tokens + made,
        }

    def batch(self) -> dict[str, Any]:
        """What only a server of static batches can tell: how long the call waited for its batch,
        and how many rows that has."""
        return {"waited_seconds": round(self.started.waited, 6), "batch_rows": self.started.rows}


class Shape(Protocol):
    """How an endpoint writes answers."""

    prefix: str
    whole: str
    piece: str

    def choice(self, index: int, text: str, finish: str) -> dict[str, Any]: ...

    def opening(self, index: int) -> dict[str, Any]: ...

    def part(self, index: int, text: str, finish: str | None) -> list[dict[str, Any]]: ...


class CompletionShape:
    prefix, whole, piece = "cmpl", "text_completion", "text_completion"

    def choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}

    def opening(self, index: int) -> dict[str, Any]:
        return self.choice(index, "", None)

    def part(self, index: int, text: str, finish: str | None) -> list[dict[str, Any]]:
        return [self.choice(index, text, finish)]


class ChatShape:
    prefix, whole, piece = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, text: str, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}

    def opening(self, index: int) -> dict[str, Any]:
        return self._delta(index, {"role": "assistant", "content": ""}, None)

    def part(self, index: int, text: str, finish: str | None) -> list[dict[str, Any]]:
        said = [self._delta(index, {"content": text}, None)] if text else []
        return said + ([self._delta(index, {}, finish)] if finish else [])

    def _delta(self, index: int, delta: dict[str, str], finish: str | None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


@dataclass(frozen=True)
class Writer:
    """Writes one answer; all of its pieces have one id."""

    shape: Shape
    id: str
    created: int
    model: str
    include_usage: bool = False

    @classmethod
    def of(cls, shape: Shape, model: str, *, include_usage: bool) -> Writer:
        id = f"{shape.prefix}-{secrets.token_hex(12)}"
        return cls(shape, id, int(time.time()), model, include_usage)

    def whole(self, answer: Answer) -> dict[str, Any]:
        rows = enumerate(zip(answer.texts, answer.ends, strict=True))
        choices = [self.shape.choice(index, text, FINISH[end]) for index, (text, end) in rows]
        told = {"usage": answer.usage(), "batchscope": answer.batch()}
        return self._said(self.shape.whole, choices) | told

    def pieces(self, news: News, answer: Answer) -> Iterator[dict[str, Any]]:
        """The chunks that tell of this news, which the answer has taken already."""
        if isinstance(news, Started):
            for index in range(len(answer.texts)):
                yield self._chunk([self.shape.opening(index)]) | {"batchscope": answer.batch()}
        elif isinstance(news, Wrote):
            finish = FINISH[news.end] if news.end else None
            if news.text or finish:
                for part in self.shape.part(news.row, news.text, finish):
                    yield self._chunk([part])
        elif news.error is None and self.include_usage:
            yield self._chunk([]) | {"usage": answer.usage()}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        said = self._said(self.shape.piece, choices)
        return said | {"usage": None} if self.include_usage else said

    def _said(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

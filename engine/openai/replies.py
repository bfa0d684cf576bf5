"""OpenAI's responses, which are kept: one under way or over, and those that are remembered."""

from __future__ import annotations

import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.collecting import News, Over, Started, Wrote
from engine.openai.answers import Answer
from engine.openai.asked import ResponseAsked
from engine.openai.refusals import of_run
from engine.openai.wire import event

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNDER_WAY: tuple[Status, ...] = ("queued", "in_progress")


def _id(prefix: str) -> Callable[[], str]:
    return lambda: f"{prefix}_{secrets.token_hex(24)}"


@dataclass
class Reply:
    """One response: what was asked, in which conversation, and the answer as it grows. It may be
    kept for long, so nothing of its batch hangs on it."""

    asked: ResponseAsked
    messages: list[dict[str, str]]
    answer: Answer
    cancelled: bool = False
    id: str = field(default_factory=_id("resp"))
    message_id: str = field(default_factory=_id("msg"))
    created: float = field(default_factory=time.time)

    @property
    def status(self) -> Status:
        answer = self.answer
        if answer.over and answer.error:
            return "failed"
        if answer.over:
            return "incomplete" if answer.ends[0] == "length" else "completed"
        if self.cancelled:
            return "cancelled"
        return "in_progress" if answer.started else "queued"

    def conversation(self) -> list[dict[str, str]]:
        """What a next response goes on from; instructions are those of each response alone."""
        return [*self.messages, {"role": "assistant", "content": self.answer.texts[0]}]

    def body(self) -> dict[str, Any]:
        asked, status = self.asked, self.status
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        error = self.answer.error and of_run(self.answer.error)
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(self.created),
            "status": status,
            "background": bool(asked.background),
            "error": {"code": "server_error", "message": error.sentence} if error else None,
            "incomplete_details": details,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": asked.model,
            "output": [self.item()] if self.answer.started else [],
            "parallel_tool_calls": True,
            "previous_response_id": asked.previous_response_id,
            "store": asked.store is not False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None if status in UNDER_WAY else self._usage(),
            "batchscope": self.answer.batch() if self.answer.started else None,
        }

    def item(self) -> dict[str, Any]:
        """The answer as the one item of the output."""
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "status": {"in_progress": "in_progress", "completed": "completed"}.get(
                self.status, "incomplete"
            ),
            "content": [self.part()],
        }

    def part(self) -> dict[str, Any]:
        text = self.answer.texts[0]
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _usage(self) -> dict[str, Any]:
        usage = self.answer.usage()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }


class Events:
    """Tells a response as server-sent events, which are numbered from 0."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._numbers = itertools.count()

    def of(self, news: News) -> Iterator[str]:
        """The events of this news, which the answer has taken already."""
        reply = self._reply
        if isinstance(news, Started):
            yield self._event("response.created", response=reply.body() | {"output": []})
            yield self._event("response.in_progress", response=reply.body() | {"output": []})
            yield self._item("added", item=reply.item() | {"content": []})
            yield self._part("content_part.added", part=reply.part())
        elif isinstance(news, Wrote) and news.text:
            yield self._part("output_text.delta", delta=news.text, logprobs=[])
        elif isinstance(news, Over):
            yield self._part("output_text.done", text=reply.answer.texts[0], logprobs=[])
            yield self._part("content_part.done", part=reply.part())
            yield self._item("done", item=reply.item())
            # There is no event of one that was cancelled, but its response says so.
            end = "incomplete" if reply.status == "cancelled" else reply.status
            yield self._event(f"response.{end}", response=reply.body())

    def _item(self, kind: str, **data: Any) -> str:
        return self._event(f"response.output_item.{kind}", output_index=0, **data)

    def _part(self, kind: str, **data: Any) -> str:
        where = {"item_id": self._reply.message_id, "output_index": 0, "content_index": 0}
        return self._event(f"response.{kind}", **where, **data)

    def _event(self, kind: str, **data: Any) -> str:
        return event({"type": kind, "sequence_number": next(self._numbers), **data}, kind)


class Remembered:
    """The newest replies, by id: so many, and each for so many seconds."""

    def __init__(
        self, *, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._replies: OrderedDict[str, tuple[float, Reply]] = OrderedDict()

    def __len__(self) -> int:
        self._forget()
        return len(self._replies)

    def add(self, reply: Reply) -> None:
        self._replies[reply.id] = (self._clock(), reply)
        self._forget()

    def get(self, id: str) -> Reply | None:
        self._forget()
        _, reply = self._replies.get(id, (None, None))
        return reply

    def remove(self, id: str) -> None:
        self._replies.pop(id, None)

    def _forget(self) -> None:
        """The oldest are the first."""
        while self._replies:
            since, _ = next(iter(self._replies.values()))
            if len(self._replies) <= self._most and self._clock() - since <= self._seconds:
                return
            self._replies.popitem(last=False)

"""POST /responses and what can be done with one later: each is a row of a static batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from engine.collecting import News, Over
from engine.openai.answers import Answer
from engine.openai.asked import ResponseAsked
from engine.openai.inbox import Inbox
from engine.openai.prepare import Templated, conversation_rows
from engine.openai.refusals import ApiError, of_run, refused
from engine.openai.replies import UNDER_WAY, Events, Remembered, Reply
from engine.openai.wire import EventStream, unless_gone
from engine.requests import Limits
from engine.run import Request as Row

if TYPE_CHECKING:
    from engine.models import LanguageModel
    from engine.openai.server import Server


class UnderWay(NamedTuple):
    """What hears of a response until its end, and how its collector is told that nobody does."""

    inbox: Inbox
    leave: Callable[[], None]


class Responses:
    """The responses of a server. All of it happens in the server's loop."""

    def __init__(self, server: Server, *, most: int, seconds: float) -> None:
        self.remembered = Remembered(most=most, seconds=seconds)
        self._server = server
        self._following: set[asyncio.Task[None]] = set()
        self._under_way: dict[str, UnderWay] = {}

    async def create(self, asked: ResponseAsked, http: Request) -> Response:
        """Whole, in pieces, or at once where it is to be fetched later."""
        messages = self._before(asked) + asked.messages()
        reads_along = bool(asked.stream or asked.background)
        inbox = Inbox(reads_along=reads_along)
        join = self._server.join(asked, partial(_rows, messages=messages), inbox)
        call, collector = await unless_gone(http, join)
        # Its messages say what it was asked, and better than its parsed body.
        asked = asked.model_copy(update={"input": ""})
        reply = Reply(asked, messages, Answer(call.requests))
        if asked.store is not False:
            self.remembered.add(reply)
        self._under_way[reply.id] = UnderWay(inbox, partial(collector.leave, call))
        if asked.background:
            self._follow(reply, inbox)
            return JSONResponse(reply.body())
        try:
            news = await unless_gone(http, inbox.take())
            if asked.stream and not isinstance(news[0], Over):
                return EventStream(self._events(reply, inbox, news), partial(self._end, reply))
            _take(reply, news)
        except BaseException:
            self._end(reply)
            raise
        self._end(reply)
        if reply.answer.error:
            self.remembered.remove(reply.id)  # nobody was told of it
            raise of_run(reply.answer.error)
        return JSONResponse(reply.body())

    def retrieve(self, id: str) -> dict[str, Any]:
        return self._found(id).body()

    def cancel(self, id: str) -> dict[str, Any]:
        """End a response that is under way. In its batch the row goes on, unless all have left."""
        reply = self._found(id)
        if reply.status in UNDER_WAY:
            self._end(reply)
        elif reply.status != "cancelled":
            raise refused(f"A response that is {reply.status} can't be cancelled.")
        return reply.body()

    def delete(self, id: str) -> dict[str, Any]:
        reply = self._found(id)
        self._end(reply)
        self.remembered.remove(id)
        return {"id": id, "object": "response", "deleted": True}

    def _found(self, id: str) -> Reply:
        if (reply := self.remembered.get(id)) is None:
            raise ApiError(404, f"There is no response {id!r:.80}, or no more.", param="id")
        return reply

    def _before(self, asked: ResponseAsked) -> list[Templated]:
        """The conversation that the response goes on from."""
        if asked.previous_response_id is None:
            return []
        reply = self.remembered.get(asked.previous_response_id)
        if reply is None or reply.status not in ("completed", "incomplete"):
            why = "is not there, or no more" if reply is None else f"is {reply.status}"
            raise refused(
                f"The response {asked.previous_response_id!r:.80} {why}.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return reply.conversation()

    async def _events(self, reply: Reply, inbox: Inbox, news: list[News]) -> AsyncIterator[str]:
        events = Events(reply)
        while True:
            for one in news:
                _take(reply, [one])
                if isinstance(one, Over) or not reply.cancelled:
                    for told in events.of(one):
                        yield told
                if isinstance(one, Over):
                    return
            news = await inbox.take()

    def _follow(self, reply: Reply, inbox: Inbox) -> None:
        """Write a response down that nobody reads along."""

        async def follow() -> None:
            while reply.status in UNDER_WAY:
                _take(reply, await inbox.take())
            self._under_way.pop(reply.id, None)

        task = asyncio.create_task(follow())
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    def _end(self, reply: Reply) -> None:
        """Nobody waits for it any more: who still does is told. Harmless after its end."""
        under_way = self._under_way.pop(reply.id, None)
        if under_way and reply.status in UNDER_WAY:
            reply.cancelled = True
            under_way.leave()
            under_way.inbox.tell(Over(None))


def _take(reply: Reply, news: list[News]) -> None:
    """What has come, unless the response was cancelled before."""
    if not reply.cancelled:
        for one in news:
            reply.answer.take(one)


def _rows(
    asked: ResponseAsked, lm: LanguageModel, limits: Limits, *, messages: list[Templated]
) -> list[Row]:
    system = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
    return conversation_rows(asked, system + messages, lm, limits)

"""A browser that is slow is told the newest state, and nobody waits for it."""

import asyncio
import json

from tests.shown import applied
from tests.unit.test_guard import in_a_loop_of_its_own
from viz.page.wire import Wire


class Socket:
    """A browser that takes a message when it is let."""

    def __init__(self):
        self.messages = []
        self.may_take = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.is_closed = False

    async def accept(self):
        pass

    async def receive(self):
        await self.left.wait()
        return {"type": "websocket.disconnect"}

    async def send_text(self, text):
        await self.may_take.acquire()
        self.messages.append(json.loads(text))

    async def close(self):
        self.is_closed = True
        self.left.set()


async def picked_up(wire, socket):
    serving = asyncio.create_task(wire.serve(socket))
    await settled()
    return serving


async def settled():
    """All that can go on without a message being taken has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_states_between_are_skipped():
    async def told():
        wire, socket = Wire(lambda: None), Socket()
        await picked_up(wire, socket)
        for step in range(5):
            assert wire.send({"log": "ab" * step, "same": [1]})
            await settled()
        for _ in range(2):
            socket.may_take.release()
            await settled()
        return socket.messages

    first, second = in_a_loop_of_its_own(told())
    state = applied(None, first)
    assert state == {"log": "", "same": [1]}
    assert second == {"log": "ab" * 4}


def test_nothing_is_told_twice():
    async def told():
        wire, socket = Wire(lambda: None), Socket()
        await picked_up(wire, socket)
        socket.may_take = asyncio.Semaphore(9)
        for state in ({"log": "a"}, {"log": "a"}, {"log": "ab"}):
            wire.send(state)
            await settled()
        return socket.messages

    assert in_a_loop_of_its_own(told()) == [[{"log": "a"}], {"log": "b"}]


def test_it_is_closed_with_its_run_and_unheard_when_its_browser_leaves():
    async def ends():
        wire, socket = Wire(lambda: None), Socket()
        assert not wire.send({"log": "a"})
        serving = await picked_up(wire, socket)
        wire.close()
        await serving
        assert socket.is_closed
        wire, socket = Wire(lambda: None), Socket()
        serving = await picked_up(wire, socket)
        socket.left.set()
        await serving
        assert not wire.send({"log": "a"})

    in_a_loop_of_its_own(ends())


def test_a_browser_that_leaves_in_the_middle_of_a_message_ends_it():
    async def ends():
        wire, socket = Wire(lambda: None), Socket()
        serving = await picked_up(wire, socket)
        wire.send({"log": "a"})
        await settled()
        socket.left.set()
        await asyncio.wait_for(serving, 5)
        return socket.messages

    assert in_a_loop_of_its_own(ends()) == []


def test_each_message_is_said_to_whoever_wants_to_know():
    async def counted():
        told = []
        wire, socket = Wire(lambda: told.append(1)), Socket()
        socket.may_take = asyncio.Semaphore(9)
        await picked_up(wire, socket)
        for step in range(3):
            wire.send({"step": step})
            await settled()
        return len(told)

    assert in_a_loop_of_its_own(counted()) == 3


def test_what_fails_ends_it_and_is_logged(caplog):
    async def fails():
        wire, socket = Wire(lambda: None), Socket()
        serving = await picked_up(wire, socket)
        wire.send({"log": "\ud800"})
        await asyncio.wait_for(serving, 5)
        assert socket.is_closed
        assert not wire.send({"log": "a"})

    in_a_loop_of_its_own(fails())
    assert "can't be told over its wire" in caplog.text


def test_a_run_that_is_over_before_it_is_picked_up():
    async def ends():
        wire, socket = Wire(lambda: None), Socket()
        wire.send({"log": "a"})
        wire.close()
        await asyncio.wait_for(wire.serve(socket), 5)
        return socket

    socket = in_a_loop_of_its_own(ends())
    assert socket.is_closed
    assert socket.messages == []

"""Calls that arrive one by one, and the batches that they share."""

import threading
import time
from dataclasses import replace
from queue import SimpleQueue

import pytest

from engine import StaticBatchEngine, make_requests
from engine.collecting import Collector, FullError, Over, Started, Wrote
from engine.errors import RequestError, RunError
from engine.static import RunStream
from engine.where import Here
from tests.serving import wait_for
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids

LONG = 30.0
"""Seconds of a window that no test waits for."""


@pytest.fixture(autouse=True)
def _collectors_end():
    """A row hears of its end before its batch has given the device back."""
    yield
    wait_for(lambda: "collector" not in {thread.name for thread in threading.enumerate()})


class Client:
    """Who made a call, and hears of it."""

    def __init__(self, collector, prompts=("Hi",), **asked):
        self.collector = collector
        self.heard = SimpleQueue()
        requests = make_requests(list(prompts), **asked)
        self.call = collector.submit(requests, self.heard.put)

    def next(self):
        return self.heard.get(timeout=20)

    def to_the_end(self):
        """All that is told until the call is over, and its error."""
        told = []
        while not isinstance(news := self.next(), Over):
            told.append(news)
        return told, news.error

    def texts(self):
        told, error = self.to_the_end()
        assert error is None
        wrote = [news for news in told if isinstance(news, Wrote)]
        rows = range(len(self.call.requests))
        return ["".join(news.text for news in wrote if news.row == row) for row in rows]

    def leave(self):
        self.collector.leave(self.call)


class Gate:
    """Holds a model's forward back until it is opened."""

    def __init__(self, at=1):
        self.at = at
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, column):
        if column == self.at and not self.open.is_set():
            self.reached.set()
            assert self.open.wait(20)


def collector(lm, *, batch_size=4, window=LONG, most_waiting=100, **more):
    return Collector(lm, batch_size=batch_size, window=window, most_waiting=most_waiting, **more)


def rows_of_batches(here):
    wait_for(lambda: here.current is None and here.waiting == 0)
    return [len(served.run.requests) for served in here.recent]


def test_a_full_batch_starts_at_once():
    here = collector(scripted_lm([token_ids("abc")]), batch_size=3)
    clients = [Client(here, max_new_tokens=3) for _ in range(3)]
    assert [client.texts() for client in clients] == [["abc"]] * 3
    assert rows_of_batches(here) == [3]
    assert all(client.call.waited < LONG / 2 for client in clients)


def test_a_batch_that_is_not_full_starts_after_its_window():
    here = collector(scripted_lm([token_ids("abc")]), window=1.0)
    clients = [Client(here, max_new_tokens=3) for _ in range(2)]
    first, *_ = clients[0].to_the_end()[0]
    assert isinstance(first, Started)
    assert first.rows == 2
    assert first.waited >= 1.0
    assert clients[1].texts() == ["abc"]
    assert rows_of_batches(here) == [2]


def test_who_comes_late_waits_for_the_next_batch_and_is_told_how_long():
    gate = Gate(at=2)
    here = collector(scripted_lm([token_ids("abcd")], before_forward=gate), batch_size=2)
    early = [Client(here, max_new_tokens=4) for _ in range(2)]
    assert gate.reached.wait(20)
    late = [Client(here, max_new_tokens=4) for _ in range(2)]
    assert here.waiting == 2
    assert len(here.current.run.requests) == 2
    opened = time.perf_counter()
    gate.open.set()
    assert [client.texts() for client in early + late] == [["abcd"]] * 4
    assert rows_of_batches(here) == [2, 2]
    assert late[0].call.started > opened
    second = here.recent[1]
    assert second.waited == tuple(client.call.waited for client in late)


def test_pieces_come_as_they_are_made_and_a_row_hears_of_its_end_before_the_batch_ends():
    gate = Gate(at=3)
    lm = scripted_lm([[*token_ids("a"), EOS], token_ids("wxyz")], before_forward=gate)
    here = collector(lm, batch_size=2)
    short, long = (Client(here, max_new_tokens=4) for _ in range(2))
    assert gate.reached.wait(20)
    told, error = short.to_the_end()
    assert error is None
    assert told[1:] == [Wrote(0, "a", None), Wrote(0, "", "eos")]
    assert isinstance(long.next(), Started)
    assert [long.next(), long.next()] == [Wrote(0, "w", None), Wrote(0, "x", None)]
    gate.open.set()
    assert long.to_the_end() == ([Wrote(0, "y", None), Wrote(0, "z", "length")], None)


def test_the_rows_of_a_call_are_never_parted():
    here = collector(scripted_lm([token_ids("ab")]), batch_size=4)
    sizes = [3, 2, 2, 1]
    clients = [Client(here, ["Hi"] * size, max_new_tokens=2) for size in sizes]
    late = Client(here, ["Hi"] * 4, max_new_tokens=2)
    assert [client.texts() for client in clients] == [["ab"] * size for size in sizes]
    assert late.texts() == ["ab"] * 4
    batches = [served.run.requests for served in here.recent]
    # Three rows and two don't fit one batch, two and two do; the last row waits for another call.
    assert [len(batch) for batch in batches][:2] == [3, 4]
    assert all(len(served.run.batches) == 1 for served in here.recent)


def test_a_call_that_is_larger_than_a_batch_runs_in_consecutive_ones():
    here = collector(scripted_lm([token_ids("ab")]), batch_size=2)
    assert Client(here, ["Hi"] * 5, max_new_tokens=2).texts() == ["ab"] * 5
    wait_for(lambda: here.recent)
    (served,) = here.recent
    assert [len(batch.requests) for batch in served.run.batches] == [2, 2, 1]


def test_a_client_that_leaves_frees_nothing_but_its_row_is_marked():
    gate = Gate(at=2)
    here = collector(scripted_lm([token_ids("abcd")], before_forward=gate), batch_size=2)
    leaving, staying = (Client(here, max_new_tokens=4) for _ in range(2))
    assert gate.reached.wait(20)
    leaving.leave()
    leaving.leave()
    gate.open.set()
    assert staying.texts() == ["abcd"]
    wait_for(lambda: here.recent)
    (served,) = here.recent
    assert served.run.status == "done"
    assert [len(ids) for ids in row_ids(served.run)] == [4, 4]
    assert served.left[1] is None
    assert 0 < served.left[0] < served.run.steps[-1].finished


def test_a_row_that_ended_before_its_client_left_is_not_marked():
    gate = Gate(at=3)
    lm = scripted_lm([[*token_ids("a"), EOS], token_ids("wxyz")], before_forward=gate)
    here = collector(lm, batch_size=2)
    leaving = Client(here, ["Hi", "Ho"], max_new_tokens=4)
    assert gate.reached.wait(20)
    while leaving.next() != Wrote(0, "", "eos"):
        continue
    leaving.leave()
    gate.open.set()
    wait_for(lambda: here.recent)
    (served,) = here.recent
    assert served.left[0] is None
    assert served.left[1] > 0


def test_a_batch_whose_clients_have_all_left_stops():
    gate = Gate(at=3)
    here = collector(scripted_lm([token_ids("abcdefgh")], before_forward=gate), batch_size=2)
    clients = [Client(here, max_new_tokens=8) for _ in range(2)]
    assert gate.reached.wait(20)
    for client in clients:
        client.leave()
    gate.open.set()
    wait_for(lambda: here.recent)
    (served,) = here.recent
    assert served.run.status == "stopped"
    assert len(served.run.steps) == 3
    assert None not in served.left
    assert Client(here, ["Hi"] * 2, max_new_tokens=2).texts() == ["ab", "ab"]


@pytest.mark.parametrize("leaves_at", [2, 4])
def test_who_has_all_of_an_answer_keeps_no_batch_going(leaves_at):
    """One row ends with the third forward, before or after the other's client leaves."""
    gate = Gate(at=leaves_at)
    lm = scripted_lm([[*token_ids("ab"), EOS], token_ids("abcdefgh")], before_forward=gate)
    here = collector(lm, batch_size=2)
    short, long = (Client(here, max_new_tokens=8) for _ in range(2))
    assert gate.reached.wait(20)
    long.leave()
    gate.open.set()
    assert short.texts() == ["ab"]
    wait_for(lambda: here.recent)
    (served,) = here.recent
    assert served.run.status == "stopped"
    assert len(served.run.steps) == max(3, leaves_at)


def test_who_leaves_before_the_batch_begins_is_in_none():
    here = collector(scripted_lm([token_ids("ab")]), batch_size=3)
    leaving = Client(here)
    leaving.leave()
    assert here.waiting == 0
    assert Client(here, ["Hi"] * 3, max_new_tokens=2).texts() == ["ab"] * 3
    assert rows_of_batches(here) == [3]
    assert leaving.heard.empty()


def test_no_thread_is_left_when_nobody_waits():
    here = collector(scripted_lm([token_ids("ab")]), batch_size=1)
    Client(here, max_new_tokens=2).texts()
    wait_for(lambda: "collector" not in {thread.name for thread in threading.enumerate()})
    assert Client(here, max_new_tokens=2).texts() == ["ab"]


def test_only_so_many_may_wait():
    here = collector(scripted_lm([token_ids("ab")]), batch_size=9, most_waiting=3)
    clients = [Client(here, ["Hi"] * 2)]
    with pytest.raises(FullError, match=r"^2 requests wait already, and at most 3 may: "):
        Client(here, ["Hi"] * 2)
    clients.append(Client(here))
    assert here.waiting == 3
    for client in clients:
        client.leave()


def test_an_error_reaches_all_that_have_not_ended_and_the_next_batch_runs():
    def fail(column):
        if column == 2 and not failed:
            failed.append(column)
            raise ValueError("no such place")

    failed = []
    lm = scripted_lm([[EOS], token_ids("wxyz")], before_forward=fail)
    here = collector(lm, batch_size=2)
    ended, broken = (Client(here, max_new_tokens=4) for _ in range(2))
    assert ended.texts() == [""]
    _, error = broken.to_the_end()
    assert isinstance(error, RunError)
    assert str(error) == "The model failed in forward 2: ValueError: no such place."
    assert Client(here, ["Hi"] * 2, max_new_tokens=4).texts() == ["", "wxyz"]


def test_a_batch_has_the_device_for_so_long():
    gate = Gate(at=2)
    here = collector(scripted_lm([token_ids("abcd")], before_forward=gate), batch_size=1, seconds=1)
    client = Client(here, max_new_tokens=4)
    assert gate.reached.wait(20)
    under_way = time.perf_counter()
    wait_for(lambda: time.perf_counter() - under_way > 1)
    gate.open.set()
    _, error = client.to_the_end()
    assert str(error) == "The run took longer than this host allows: 1 s."


def test_calls_that_don_t_fit_the_memory_together_run_in_smaller_batches(monkeypatch):
    def check(stream):
        if len(stream.record().requests) > 2:
            raise RequestError("It needs more memory than there is.")

    monkeypatch.setattr(RunStream, "check_memory", check)
    here = collector(scripted_lm([token_ids("ab")]), batch_size=4)
    clients = [Client(here, max_new_tokens=2) for _ in range(4)]
    assert [client.texts() for client in clients] == [["ab"]] * 4
    wait_for(lambda: len(here.recent) == 3)
    ran = [(len(served.run.requests), served.run.status) for served in here.recent]
    assert ran == [(4, "error"), (2, "done"), (2, "done")]
    refused = Client(here, ["Hi"] * 4, max_new_tokens=2)
    told, error = refused.to_the_end()
    assert (told, str(error)) == ([], "It needs more memory than there is.")


class TwoAtOnce(Here):
    at_once = 2


def test_what_is_put_back_runs_at_once_though_another_thread_collects(monkeypatch):
    reached, go_on = threading.Event(), threading.Event()

    def check(stream):
        if len(stream.record().requests) > 3:
            reached.set()
            assert go_on.wait(20)
            raise RequestError("It needs more memory than there is.")

    monkeypatch.setattr(RunStream, "check_memory", check)
    here = collector(scripted_lm([token_ids("ab")]), batch_size=4, where=TwoAtOnce())
    clients = [Client(here, max_new_tokens=2) for _ in range(4)]
    assert reached.wait(20)
    late = Client(here, max_new_tokens=2)  # which a second thread collects, for the window
    go_on.set()
    assert [client.texts() for client in clients] == [["ab"]] * 4
    late.leave()
    wait_for(lambda: len(here.recent) >= 3)
    ran = [(len(served.run.requests), served.run.status) for served in here.recent]
    assert ran[:2] == [(4, "error"), (2, "done")]


class Late:
    """A run of which there is no record before it is given a replica."""

    def __init__(self, stream, given):
        self.stream, self.given = stream, given

    def __iter__(self):
        assert self.given.wait(20)
        yield from self.stream

    def record(self):
        return self.stream.record() if self.given.is_set() else None

    def close(self):
        self.stream.close()


class Lined(Here):
    """Where runs wait in line until a replica is free."""

    def __init__(self):
        self.free = threading.Event()

    def stream(self, *args, **how):
        return Late(super().stream(*args, **how), self.free)


def test_a_batch_in_the_line_for_a_replica_waits_and_leaves_room_for_others():
    where = Lined()
    here = collector(scripted_lm([token_ids("ab")]), batch_size=2, most_waiting=2, where=where)
    in_line = Client(here, ["Hi"] * 2, max_new_tokens=2)
    wait_for(lambda: here._running)
    assert (here.waiting, here.under_way) == (2, ())
    assert here.first_waits > 0
    behind = Client(here, ["Ho"] * 2, max_new_tokens=2)
    assert here.waiting == 4
    where.free.set()
    assert [in_line.texts(), behind.texts()] == [["ab", "ab"]] * 2
    assert rows_of_batches(here) == [2, 2]
    assert here.first_waits == 0


def test_an_answer_does_not_depend_on_who_shares_the_batch():
    """Greedy and sampled, in float32: the ids of each call are those of the call by itself."""
    lm = tiny_lm()
    engine = StaticBatchEngine(lm, batch_size=8)
    here = collector(lm, batch_size=5)
    asked = [
        {"prompts": ["Hello"], "max_new_tokens": 6},
        {"prompts": ["Why is it?", "a"], "max_new_tokens": 9, "temperature": 1.0, "seed": 7},
        {"prompts": ["Why is it?", "a"], "max_new_tokens": 9, "temperature": 1.0, "seed": 7},
    ]
    solo = [row_ids(engine.run(make_requests(**one))) for one in asked]
    calls = []
    for one in asked:
        requests = make_requests(**one)
        named = [replace(request, draws=request.index) for request in requests]
        calls.append(here.submit(named, SimpleQueue().put))
    wait_for(lambda: here.recent)
    (served,) = here.recent
    ids = row_ids(served.run)
    assert ids == [row for rows in solo for row in rows]
    assert ids[1:3] == ids[3:5]

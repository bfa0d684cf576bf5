"""What watchers are told, as it comes on the wire."""

import json
import threading
from contextlib import ExitStack

import httpx
import pytest

from tests.serving import wait_for
from tests.shown import shown_tokens
from tests.tiny import EOS, scripted_lm, tiny_lm, token_ids
from tests.watched import watched
from viz.watch import feed

MODEL = "scripted"
SECRET = "the launch code"
ANSWER = "swordfish"


class Gate:
    """Holds the model back at a forward, until it is opened."""

    def __init__(self):
        self.at = 3
        self.open = threading.Event()

    def __call__(self, column):
        assert column < self.at or self.open.wait(20)


@pytest.fixture
def gate():
    return Gate()


def a_page(gate, **options):
    lm = scripted_lm([[*token_ids(ANSWER), EOS], token_ids("ab" * 30)], before_forward=gate)
    return watched(lm, tiny_lm(), **options)


class Caller:
    """Calls, in a thread of its own, with two prompts, and may leave."""

    def __init__(self, here):
        self.stream = here.client().completions.create(
            model=MODEL, prompt=[SECRET, "Hi"], max_tokens=30, temperature=0, stream=True
        )
        self.first = next(self.stream)

    def answer(self):
        pieces = [chunk.choices[0] for chunk in self.stream]
        return "".join(choice.text for choice in pieces if choice.index == 0)


def until(states, condition):
    return next(state for state in states if condition(state))


def has_steps(state):
    return any(stage["times"][0].count(" ") >= 2 for stage in state["stages"].values())


def is_over(state):
    return bool(state["batches"]) and not state["stages"]


@pytest.mark.parametrize("texts", [False, True], ids=["hidden", "shown"])
def test_texts_are_sent_only_where_the_host_allows_it(gate, texts):
    """All that comes to a watcher, in whatever place, of a batch from its start to its replay."""
    with a_page(gate, texts=texts) as here, here.told() as (states, heard):
        assert next(states)["batches"] == []
        caller = Caller(here)
        live = until(states, has_steps)
        (stage,) = live["stages"].values()
        gate.open.set()
        assert caller.answer() == ANSWER
        over = until(states, is_over)
        key = over["batches"][0]["key"]
        replay = httpx.get(f"{here.url}/watch/batches/{key}").raise_for_status()
    lengths = stage["batches"][0]["lengths"]
    assert lengths == [len(SECRET), 2]
    assert stage["prompts"] == ([SECRET, "Hi"] if texts else ["", ""])
    sent = "\n".join(heard.lines) + replay.text
    assert (SECRET in sent) is texts
    ids = [token for token, _ in shown_tokens(replay.json())[0]]
    assert len(ids) == len(ANSWER) + 1  # the picture has all of its cells
    assert (ids == [*token_ids(ANSWER), EOS]) is texts
    if not texts:
        assert set("".join(replay.json()["logs"])) == set("0 \n")
        assert "record" not in replay.json()
        for said in (SECRET, ANSWER):
            as_ids = ",".join(map(str, token_ids(said)))
            assert as_ids not in sent.replace(" ", "")


def test_a_watcher_is_told_the_whole_once_and_then_what_changes(gate):
    gate.open.set()
    with a_page(gate) as here, here.told() as (states, heard):
        next(states)
        assert Caller(here).answer() == ANSWER
        until(states, is_over)
        assert heard.kinds[0] == "whole"
        assert set(heard.kinds[1:]) == {"change"}


def test_a_client_that_leaves_is_marked_while_its_row_goes_on(gate):
    with a_page(gate, batch_size=4, window=30) as here, here.told() as (states, _):
        callers = []
        threads = [threading.Thread(target=lambda: callers.append(Caller(here))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        leaving, staying = callers
        leaving.stream.close()
        marked = until(states, lambda state: any(batch["gone"] for batch in state["batches"]))
        (stage,) = marked["stages"].values()
        assert stage["status"] == "running"
        assert sum(mark["left"] is not None for mark in stage["marks"]) == 2
        assert {mark["gone"] for mark in stage["marks"]} == {"", "✕ client gone"}
        assert all(mark["waited"].startswith("waited ") for mark in stage["marks"])
        gate.open.set()
        assert len(staying.answer()) > 0
        over = until(states, lambda state: is_over(state) and state["minutes"]["mean"] == "4.0")
        assert over["batches"][0]["gone"] == "✕ 2 gone"
        assert over["batches"][0]["rows"] == "4 of 4 rows"
        assert max(rows or 0 for rows in over["minutes"]["fill"]) == 4


def test_all_watchers_share_a_sampler_that_ends_with_the_last_of_them(gate, monkeypatch):
    looks = []
    tell = feed.Sampler.tell
    monkeypatch.setattr(feed.Sampler, "tell", lambda self: looks.append(self) or tell(self))
    with a_page(gate) as here:
        watching = here.watch.feeds[MODEL]
        with ExitStack() as stack:
            watchers = [stack.enter_context(here.told())[0] for _ in range(5)]
            firsts = [next(states) for states in watchers]
            assert firsts == [firsts[0]] * 5
            assert watching.watchers == 5
            assert set(looks) == {watching.sampler}
        wait_for(lambda: watching.watchers == 0)
        wait_for(lambda: watching._sampling.done())
        seen = len(looks)
        assert Caller(here)
        gate.open.set()
        here.batches(MODEL)
        assert len(looks) == seen


def test_what_can_t_be_read_for_a_while_is_logged_once(gate, monkeypatch, caplog):
    fails = [ValueError("odd")] * 3
    tell = feed.Sampler.tell

    def failing(self):
        if fails:
            raise fails.pop()
        return tell(self)

    monkeypatch.setattr(feed.Sampler, "tell", failing)
    with a_page(gate) as here, here.told() as (states, _):
        assert next(states)["batches"] == []
    assert caplog.messages.count("what is to be watched can't be read") == 1


def test_only_so_many_may_watch(gate, monkeypatch):
    monkeypatch.setattr(feed, "MOST_WATCHERS", 1)
    with a_page(gate) as here, here.told() as (states, _):
        next(states)
        refused = httpx.get(f"{here.url}/watch/events")
        assert refused.status_code == 503
        assert refused.json() == {"detail": "As many watch as may: try again later."}


def test_what_is_not_there_is_not_found(gate):
    with a_page(gate) as here:
        for path in ("events?model=gpt-4", "batches/none-1", "batches/x?model=tiny-llama", "x", ""):
            assert httpx.get(f"{here.url}/watch/{path}").status_code == 404


def test_each_model_is_watched_by_itself(gate):
    gate.open.set()
    with a_page(gate) as here:
        here.client().completions.create(model="tiny-llama", prompt="Hi", max_tokens=2)
        here.batches("tiny-llama")
        for model, count in ((MODEL, 0), ("tiny-llama", 1)):
            with httpx.stream("GET", f"{here.url}/watch/events", params={"model": model}) as answer:
                lines = answer.iter_lines()
                data = next(line for line in lines if line.startswith("data: "))
            assert len(json.loads(data[6:])["batches"]) == count


@pytest.mark.parametrize("log_prompts", [False, True])
def test_a_batch_is_logged_with_what_its_prompts_say_only_if_asked_for(gate, caplog, log_prompts):
    gate.open.set()
    caplog.set_level("INFO", "batchscope")
    with a_page(gate, log_prompts=log_prompts) as here:
        assert Caller(here).answer() == ANSWER
        here.batches(MODEL)
        wait_for(lambda: any("batch of" in line for line in caplog.messages))
    (line,) = [line for line in caplog.messages if line.startswith("batch of 1 call done: ")]
    assert line.endswith(f'; ["{SECRET}", "Hi"]') is log_prompts
    assert (SECRET in caplog.text) is log_prompts

"""What watchers are told: changes of a state, batches with and without texts, who waits."""

import json
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import StaticBatchEngine, make_requests
from engine.served import Served, Traffic
from tests.shown import applied, shown_tokens
from tests.tiny import EOS, scripted_lm, token_ids
from viz.patch import difference
from viz.stage.state import StageWriter
from viz.watch.feed import Sampler
from viz.watch.state import BatchWriter, batch_line, marks, whole_state

SECRET = "the launch code"
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
STATES = st.recursive(
    LEAVES,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=2), parts),
    max_leaves=12,
)


@given(STATES, STATES)
def test_a_change_makes_the_second_out_of_the_first(before, after):
    change = difference(before, after)
    if change is None:
        assert before == after
    else:
        assert applied(before, json.loads(json.dumps(change))) == after


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"log": "12 a\n"}, {"log": "12 a\n7 b\n"}, {"log": "7 b\n"}),
        ({"ends": [None, None]}, {"ends": [None, "eos"]}, {"ends": {"1": ["eos"]}}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": 0}),
        ({"rows": [1]}, {"rows": [1, 2]}, {"rows": [[1, 2]]}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, None),
    ],
)
def test_a_change_is_as_short_as_what_changed(before, after, change):
    assert difference(before, after) == change


def stream_of(prompts, budget=12):
    lm = scripted_lm([[*token_ids("swordfish"), EOS], token_ids("abcdefgh" * 100)])
    requests = make_requests(prompts, max_new_tokens=budget)
    return StaticBatchEngine(lm, batch_size=8).stream(requests)


def served(run, **more):
    rows = len(run.requests)
    return Served(
        **{"number": 3, "run": run, "waited": (0.5,) * rows, "left": (None,) * rows} | more
    )


@pytest.mark.parametrize("texts", [True, False])
def test_a_batch_is_told_as_a_run_is_and_without_texts_if_they_are_hidden(texts):
    with closing(stream_of([SECRET, "Hi"])) as stream:
        run = stream.record()
        writer = BatchWriter(served(run), key="k", texts=texts)
        as_a_run = StageWriter(run, key="k")
        for _ in stream:
            run = stream.record()
            told = writer.write(served(run))
            expected = as_a_run.write(run)
            same = set(expected) if texts else set(expected) - {"prompts", "logs"}
            assert {name: told[name] for name in same} == {name: expected[name] for name in same}
    answer = "".join(text for _, text in shown_tokens(told)[0])
    assert answer == ("swordfish" if texts else "")
    assert told["prompts"] == ([SECRET, "Hi"] if texts else ["", ""])
    assert told["hidden"] is not texts
    assert (SECRET in json.dumps(told)) is texts


def test_a_batch_that_is_over_has_its_replay_and_with_texts_its_record():
    with closing(stream_of([SECRET, "Hi"])) as stream:
        steps = len(list(stream))
    batch = served(stream.record(), prompts=(SECRET.upper(), "HI"))
    hidden, whole = (whole_state(batch, key="k", texts=texts) for texts in (False, True))
    assert len(hidden["moments"]) == len(whole["moments"]) == steps + 1
    assert "record" not in hidden
    assert SECRET in whole["record"]
    assert whole["prompts"] == [SECRET.upper(), "HI"]
    assert SECRET not in json.dumps(hidden).lower()
    assert set("".join(hidden["logs"])) == set("0 \n")


def test_an_update_is_no_larger_late_than_early():
    """Of the stage's value of a batch of 8 rows, in bytes."""
    with closing(stream_of(["Hi"] * 8, budget=300)) as stream:
        writer = BatchWriter(served(stream.record()), key="k", texts=False)
        before, sizes = None, []
        for _ in stream:
            after = writer.write(served(stream.record()))
            sizes.append(len(json.dumps(difference(before, after), separators=(",", ":"))))
            before = after
    early, late = max(sizes[20:100]), max(sizes[-80:])
    assert late < 1.3 * early
    assert late < 4000


def test_a_row_tells_what_it_waited_and_that_its_client_is_gone():
    with closing(stream_of(["a", "b"])) as stream:
        assert [mark["waited"] for mark in marks(served(stream.record()))] == ["", ""]
        list(stream)
    batch = served(stream.record(), waited=(0.052, 1.2), left=(None, 0.3))
    assert marks(batch) == [
        {"waited": "waited 52 ms", "gone": "", "left": None},
        {"waited": "waited 1.2 s", "gone": "✕ client gone", "left": 0.3},
    ]
    line = batch_line(batch, key="k", batch_size=8)
    assert (line["name"], line["rows"], line["gone"]) == ("Batch 3", "2 of 8 rows", "✕ 1 gone")
    assert line["said"].startswith("12 steps in ")


class Collecting:
    """Stands in for a collector."""

    def __init__(self):
        self.batch_size = 8
        self.traffic = Traffic()
        self.waiting = 0
        self.first_waits = 0.0
        self.under_way = ()
        self.recent = ()


def test_nothing_is_told_of_a_model_that_nobody_has_called():
    told = Sampler(lambda: None, texts=False).tell()
    assert (told["batches"], told["stages"]) == ([], {})


def test_several_batches_may_be_under_way_and_come_before_those_that_are_over():
    here = Collecting()
    sampler = Sampler(lambda: here, texts=False)
    with closing(stream_of(["a"])) as stream:
        list(stream)
        here.recent = (served(stream.record(), number=2),)
    with closing(stream_of(["a"])) as first, closing(stream_of(["b", "c"])) as second:
        next(first)
        here.under_way = (served(first.record(), number=1), served(second.record(), number=3))
        told = sampler.tell()
    names = [batch["name"] for batch in told["batches"]]
    assert names == ["Batch 3", "Batch 1", "Batch 2"]
    assert list(told["stages"]) == [told["batches"][1]["key"], told["batches"][0]["key"]]
    assert told["batches"][0]["said"] == "in line for the device"


def test_a_batch_that_has_just_ended_is_told_as_over():
    here = Collecting()
    sampler = Sampler(lambda: here, texts=False)
    with closing(stream_of(["a"])) as stream:
        next(stream)
        here.under_way = (served(stream.record()),)
        list(stream)
        here.recent = (served(stream.record()),)
    told = sampler.tell()
    (batch,) = told["batches"]
    assert (batch["running"], told["stages"]) == (False, {})
    assert json.loads(sampler.replay(batch["key"]))["status"] == "done"
    assert sampler.replay("another") is None
    here.recent = ()
    assert sampler.replay(batch["key"]) is None


def test_who_waits_is_told_with_the_longest_wait():
    here = Collecting()
    here.waiting, here.first_waits = 1200, 2.345
    told = Sampler(lambda: here, texts=False).tell()["queue"]
    assert told == {"waiting": "1,200", "first": "the first for 2.3 s"}

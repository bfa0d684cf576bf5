"""The stage's value: tiles, heading and sentence at every moment of a run, and its strings."""

import itertools
from contextlib import closing

import pytest

from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.shown import shown_tokens
from tests.tiny import EOS, scripted_lm, token_ids
from viz.explain import TILES
from viz.slots import slot_states
from viz.stage.state import StageWriter, stage_state


def watch(lm, prompts, budgets, *, batch_size=8):
    """The stage's value before the first step, after every step, and at the end."""
    engine = StaticBatchEngine(lm, batch_size=batch_size)
    with closing(engine.stream(make_requests(prompts, max_new_tokens=budgets))) as stream:
        states = [stage_state(stream.record(), key="run")]
        states += [stage_state(stream.record(), key="run") for _ in stream]
    return [*states, stage_state(stream.record(), key="run")]


def tile(state, key):
    return dict(zip(TILES, state["tiles"], strict=True))[key]


def test_a_run_from_before_its_first_step_to_its_end():
    lm = scripted_lm([[*token_ids("ab"), EOS], token_ids("abcdef")])
    before, first, *_, fourth, _, _, done = watch(lm, ["a", "bbb"], 6)
    assert before["heading"] == ["Prefill", "all prompts in one forward"]
    assert tile(before, "padding")["note"] == "no prefill yet"
    assert tile(before, "output")["value"] == "n/a"
    assert first["heading"] == ["Step 1 of 6", "2 of 2 rows still working"]
    assert first["summary"].startswith("One forward has read all 2 prompts: 2 of 6 prompt slots")
    assert tile(first, "idle")["note"] == "no decode yet"
    assert fourth["heading"] == ["Step 4 of 6", "1 of 2 rows still working"]
    assert fourth["summary"] == (
        "Request 1 ended at token 3, but its slot is computed until the last row ends."
    )
    assert (tile(fourth, "idle")["value"], tile(fourth, "idle")["note"]) == (
        "12.5",
        "1 of 8 slots so far",
    )
    assert done["heading"] == ["Done after 6 steps", ""]
    assert (tile(done, "padding")["value"], tile(done, "padding")["unit"]) == (
        "33.3",
        "%",
    )
    assert tile(done, "idle")["note"] == "3 of 12 slots"


def test_with_one_token_each_nothing_was_decoded():
    done = watch(scripted_lm([token_ids("a")]), ["a", "b"], 1)[-1]
    assert (tile(done, "idle")["value"], tile(done, "idle")["note"]) == (
        "n/a",
        "nothing was decoded",
    )
    assert (tile(done, "tpot")["value"], tile(done, "tpot")["note"]) == (
        "n/a",
        "mean of 0 rows",
    )
    assert done["summary"].endswith("; nothing was decoded after the prefill.")


def test_a_run_stopped_before_its_first_step_says_so():
    lm = scripted_lm([token_ids("a")])
    with closing(StaticBatchEngine(lm).stream(make_requests(["a"]))) as stream:
        stream.stop()
        assert list(stream) == []
    state = stage_state(stream.record(), key="run")
    assert state["heading"] == ["Stopped", ""]
    assert state["ends"] == ["cancelled"]


@pytest.mark.parametrize("ended", [2, 3, 4])
def test_the_sentence_names_up_to_three_rows_that_ended(ended):
    script = [[token_ids("x")[0], EOS]] * ended + [token_ids("abcdef")]
    state = watch(scripted_lm(script), ["p"] * (ended + 1), 6)[3]
    told = {
        2: "Request 1 ended at token 2 and 2 at 2, but their slots are",
        3: "Request 1 ended at token 2, 2 at 2 and 3 at 2, but their slots are",
        4: "4 of 5 requests have ended, but their slots are",
    }[ended]
    assert state["summary"] == f"{told} computed until the last row ends."


def test_everything_that_grows_is_a_string_that_only_gets_longer():
    lm = scripted_lm([token_ids("a\n\\b 🤗 c"), [*token_ids("x"), EOS]])
    states = watch(lm, ["one", "two", "three"], 11, batch_size=2)
    for before, after in itertools.pairwise(states):
        for name in ("logs", "times", "kv"):
            assert all(
                new.startswith(old) for old, new in zip(before[name], after[name], strict=True)
            )
    assert [text for _, text in shown_tokens(states[-1])[0]] == [
        *("a", "\\n", "\\\\", "b", " ", "", "", "", "🤗", " ", "c"),
    ]


@pytest.mark.parametrize("every", [1, 3])
def test_a_value_written_from_the_one_before_is_that_of_the_whole_record(every):
    lm = scripted_lm([[*token_ids("a\nb🤗"), EOS], token_ids("abcdefgh🤗")])
    requests = make_requests(["one", "two", "three"], max_new_tokens=10)
    with closing(StaticBatchEngine(lm, batch_size=2).stream(requests)) as stream:
        writer = StageWriter(stream.record(), key="run")
        kept = [(writer.write(stream.record()), stage_state(stream.record(), key="run"))]
        for done, _ in enumerate(stream):
            if done % every == 0:
                record = stream.record()
                kept.append((writer.write(record), stage_state(record, key="run")))
            if done == 15:
                stream.stop()
    record = stream.record()
    assert record.status == "stopped"
    kept.append((writer.write(record), stage_state(record, key="run")))
    assert len(kept) > 5
    # Compared at the end: a value that was sent must not change with those that follow.
    assert [written for written, _ in kept] == [whole for _, whole in kept]


def test_bytes_held_back_to_the_end_belong_to_no_token():
    lm = scripted_lm([token_ids("a🤗")])
    with closing(StaticBatchEngine(lm).stream(make_requests(["one"]))) as stream:
        next(stream)
        next(stream)
        assert stage_state(stream.record(), key="run")["tails"] == [""]
        stream.stop()
        assert list(stream) == []
    state = stage_state(stream.record(), key="run")
    assert state["tails"] == ["\ufffd"]
    assert [text for _, text in shown_tokens(state)[0]] == ["a", ""]


def test_a_log_has_a_line_for_each_slot_of_each_forward():
    lm = scripted_lm([[*token_ids("a"), EOS], token_ids("xyz")])
    state = watch(lm, ["one", "two", "three"], 3, batch_size=2)[-1]
    a, x, y, z = token_ids("axyz")
    assert state["logs"] == [
        f"{a} a\n{x} x\n{EOS} \n{y} y\n\n{z} z\n",
        f"{a} a\n{EOS} \n",
    ]


def test_slots_without_a_request_are_empty():
    lm = scripted_lm([token_ids("ab")])
    run = StaticBatchEngine(lm, batch_size=2).run(
        make_requests(["one", "three", "x"], max_new_tokens=2)
    )
    first, last = slot_states(run)
    assert first.prefill[0] == ["padded", "padded", "active", "active", "active"]
    assert first.generation == [["active", "active"], ["active", "active"]]
    assert last.prefill == [["active"], ["empty"]]
    assert last.generation == [["active", "active"], ["empty", "empty"]]

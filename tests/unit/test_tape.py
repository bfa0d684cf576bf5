"""Replayed decode steps: the calls of two stand for the model as long as they are the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import engine.tape
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from engine.tape import MOST_TAPES, WORTH
from tests.families import FAMILIES, ends_often, prove
from tests.tiny import row_ids, tiny_lm
from tests.unit.test_equals_solo import assert_holds

PROMPTS = ["a", "and a longer one"]
SAME = ["the same", "the same"]


def run(lm, prompts=PROMPTS, *, tokens=40):
    requests = make_requests(prompts, max_new_tokens=tokens, ignore_eos=True)
    return row_ids(StaticBatchEngine(lm, batch_size=64).run(requests))


def plain_ids(lm, prompts=PROMPTS, *, tokens=40):
    return run(replace(lm, captures=False), prompts, tokens=tokens)


def count_forwards(lm) -> list[int]:
    """How often the model itself has run, in a list of one number."""
    count = [0]

    def add(*_):
        count[0] += 1

    lm.model.register_forward_hook(add)
    return count


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_replayed_steps_equal_their_solo_runs_and_generate(family):
    lm = FAMILIES[family]()
    assert_holds(prove(replace(lm, captures=False), batches=14, seed=19, batched=lm))
    assert lm.tapes.reason is None
    assert len(lm.tapes) > 1


def test_the_model_runs_for_two_steps_and_a_proof():
    lm = tiny_lm()
    forwards = count_forwards(lm)
    ids = run(lm)
    assert forwards == [1 + 2 + 1]  # with the prefill
    assert run(lm) == ids
    assert forwards == [4 + 2]  # every batch proves it
    assert run(lm, tokens=80)[0][:40] == ids[0]
    assert forwards == [6 + 2]
    assert ids == plain_ids(lm)


def test_a_short_run_is_not_worth_it():
    lm = tiny_lm()
    forwards = count_forwards(lm)
    run(lm, tokens=WORTH)
    assert forwards == [WORTH]
    assert len(lm.tapes) == 0


def test_what_is_not_asked_for_compiled_or_on_another_device_is_not_replayed():
    lm = tiny_lm()
    assert replace(lm, captures=False).tapes.reason == "not asked to"
    assert replace(lm, compiled=True).tapes.reason == "its steps are compiled"
    assert replace(lm, captures=False).decode_path == "eager"
    assert lm.decode_path == "eager, replayed"


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
@pytest.mark.parametrize("prompts", [PROMPTS, SAME, ["abc"], ["abc", "a"]])
def test_a_window_that_fills_has_steps_of_its_own_before_and_after(family, prompts):
    lm = tiny_lm(family)
    assert run(lm, prompts, tokens=60) == plain_ids(lm, prompts, tokens=60)
    assert lm.tapes.reason is None
    starts_full = max(map(len, prompts)) >= lm.model.config.sliding_window
    assert len(lm.tapes) == (1 if starts_full else 2)


def test_so_many_tapes_are_kept():
    lm = tiny_lm()
    for rows in range(1, MOST_TAPES + 3):
        run(lm, ["a"] * rows, tokens=20)
    assert len(lm.tapes) == MOST_TAPES
    forwards = count_forwards(lm)
    run(lm, ["a"] * (MOST_TAPES + 2), tokens=20)
    assert forwards == [2]  # the newest are


# What can't be replayed


def hooked(hook: Callable) -> tuple:
    """A model whose first layer is given what the hook makes of its states, and its ids."""
    lm = tiny_lm()
    lm.layers[0].register_forward_pre_hook(lambda _layer, given: (hook(given[0]), *given[1:]))
    return lm, plain_ids(lm)


def test_a_replay_of_many_calls_has_few_variables():
    """A frame of a kilobyte leaves CPython room for those of the functions that it calls."""
    lm = tiny_lm(num_hidden_layers=12)
    run(lm)
    (replay,) = lm.tapes._tapes.values()
    assert len(replay.__globals__) > 1000
    assert replay.__code__.co_nlocals < 32


def test_a_step_that_reads_a_number_is_not_replayed():
    lm, ids = hooked(lambda states: states * (2.0 if states.max().item() > 0 else 3.0))
    assert run(lm) == ids
    assert "it reads numbers" in lm.tapes.reason
    assert run(lm) == ids
    assert lm.decode_path == "eager"


def test_a_step_that_reads_a_list_is_not_replayed():
    lm, ids = hooked(lambda states: states * len(states[0, 0].tolist()))
    assert run(lm) == ids
    assert lm.tapes.reason == "it reads numbers (tolist)"


def test_a_step_whose_shapes_depend_on_numbers_is_not_replayed():
    lm, ids = hooked(lambda states: states + states[states > 0].sum())
    assert run(lm) == ids
    assert "it reads numbers" in lm.tapes.reason


def test_a_step_that_makes_tensors_of_numbers_in_python_is_not_replayed():
    lm, ids = hooked(lambda states: states * torch.tensor([2.0]))
    assert run(lm) == ids
    assert lm.tapes.reason == "it makes tensors in Python (tensor)"


def test_a_step_with_a_number_of_its_own_is_not_replayed():
    steps = iter(range(0, 10_000, 3))
    lm, _ = hooked(lambda states: states.roll(next(steps), -1))
    run(lm)
    assert "a number of its steps went from" in lm.tapes.reason


def test_a_step_with_a_factor_of_its_own_is_not_replayed():
    steps = iter(range(10_000))
    lm, _ = hooked(lambda states: states * (1.0 + next(steps)))
    run(lm)
    assert lm.tapes.reason == "its steps differ in what they are given"


def test_steps_that_take_turns_are_not_replayed():
    steps = iter(range(10_000))
    lm, _ = hooked(lambda states: states.neg() if next(steps) % 2 else states)
    run(lm)
    assert lm.tapes.reason == "its steps differ in their calls"


def test_a_step_that_keeps_a_tensor_for_the_next_one_is_not_replayed():
    kept = [torch.zeros(())]

    def smooth(states):
        kept[0] = 0.5 * kept[0] + states.mean()
        return states + kept[0]

    lm, _ = hooked(smooth)
    run(lm)
    assert lm.tapes.reason == "its steps differ in what they are given"


def test_a_replay_with_other_logits_is_not_believed(monkeypatch):
    lay_over = engine.tape.lay_over

    def other(*takes):
        replay = lay_over(*takes)
        return lambda tensors, seen: replay(tensors, seen) + 1e-6

    lm = tiny_lm()
    ids = plain_ids(lm)
    monkeypatch.setattr(engine.tape, "lay_over", other)
    assert run(lm) == ids
    assert lm.tapes.reason == "a replay gave other logits"
    assert len(lm.tapes) == 0


def test_a_replay_that_breaks_is_left_and_the_run_goes_on(monkeypatch, caplog):
    def broken(*_):
        def replay(*_):
            raise RuntimeError("shapes don't fit\nmore")

        return replay

    lm = ends_often(tiny_lm())
    ids = plain_ids(lm)
    monkeypatch.setattr(engine.tape, "lay_over", broken)
    with caplog.at_level("INFO", "batchscope.engine"):
        assert run(lm) == ids
    assert "decodes without replays: RuntimeError: shapes don't fit" in caplog.messages[0]
    assert "\n" not in caplog.messages[0]


def test_what_a_model_keeps_from_a_prefill_is_that_of_its_own_batch():
    kept = []

    def shift(states):
        if states.shape[1] > 1:
            kept[:] = [states.mean()]
        return states + kept[0]

    lm, _ = hooked(shift)
    for prompts in (SAME, ["another", "another"]):
        assert run(lm, prompts) == plain_ids(lm, prompts)


def test_a_weight_that_is_replaced_is_used():
    lm = tiny_lm()
    before = run(lm)
    layer = lm.layers[0].mlp.down_proj
    layer.weight = torch.nn.Parameter(-layer.weight)
    assert run(lm) == plain_ids(lm) != before


def test_a_step_that_changes_a_tensor_of_its_own_is_not_replayed():
    count = torch.zeros(())

    def add(states):
        count.add_(1)
        return states + count

    lm = tiny_lm()
    lm.layers[0].register_forward_pre_hook(lambda _layer, given: (add(given[0]), *given[1:]))
    ids = run(lm)
    count.zero_()
    assert plain_ids(lm) == ids
    assert lm.tapes.reason == "it keeps what it changes (aten::add_.Tensor)"


def test_a_step_that_draws_random_numbers_is_not_replayed():
    lm, _ = hooked(lambda states: states + 1e-9 * torch.rand_like(states))
    run(lm)
    assert lm.tapes.reason == "it draws random numbers"


@pytest.mark.parametrize(
    "calls",
    [
        (lambda states: states.roll(1), lambda states: states.roll(1, -1)),
        (lambda states: states + states.sum(), lambda states: states + states.sum(dim=0)),
    ],
)
def test_steps_with_other_arguments_are_not_replayed(calls):
    steps = iter(range(10_000))
    lm, _ = hooked(lambda states: calls[next(steps) % 2](states))
    run(lm)
    assert lm.tapes.reason == "its steps differ in what they are given"


def test_a_step_that_cant_be_written_down_is_run_as_it_is(monkeypatch):
    def broken(*_):
        raise NotImplementedError("no such thing in this mode")

    lm = tiny_lm()
    ids = plain_ids(lm)
    monkeypatch.setattr(engine.tape, "record", broken)
    assert run(lm) == ids
    assert lm.tapes.reason.startswith("NotImplementedError")

"""Collected batches as plain data: waits, records without texts, and the last minutes."""

from dataclasses import replace

from engine import StaticBatchEngine, make_requests
from engine.served import MINUTES, SLICE_SECONDS, SLICES, Served, Traffic, without_texts
from tests.tiny import EOS, scripted_lm, token_ids
from viz.slots import slot_states

SECRET = "the launch code"
SCRIPT = ([*token_ids("swordfish"), EOS], token_ids("ab"))


def run_of(prompts, *, batch_size=8, script=SCRIPT):
    lm = scripted_lm([list(row) for row in script])
    requests = make_requests(prompts, max_new_tokens=12, stop=("zz",), seed=7)
    return StaticBatchEngine(lm, batch_size=batch_size).run(requests)


def served(run, *, waited=None, left=None, number=1):
    rows = len(run.requests)
    return Served(number, run, waited or (0.5,) * rows, left or (None,) * rows)


def test_rows_of_a_call_that_is_larger_than_a_batch_waited_for_the_batches_before_theirs():
    run = run_of(["a", "b", "c"], batch_size=2)
    first, second = (batch.started for batch in run.batches)
    assert served(run, waited=(1.0, 1.0, 1.0)).queued == (1.0, 1.0, 1.0 + second - first)


def test_without_texts_a_record_keeps_its_picture_and_nothing_that_can_be_read():
    run = run_of([SECRET, "Hi"])
    hidden = without_texts(run)
    assert slot_states(hidden) == slot_states(run)
    assert [step.kv_bytes for step in hidden.steps] == [step.kv_bytes for step in run.steps]
    assert [step.seconds for step in hidden.steps] == [step.seconds for step in run.steps]
    assert hidden.batches[0].prompt_lengths == run.batches[0].prompt_lengths
    assert {token for step in hidden.steps for token in step.tokens} == {0, None}
    told = repr(hidden)
    for text in (SECRET, "swordfish", "zz", *run.texts, repr(run.batches[0].prompt_ids[0])):
        assert text in repr(run)
        assert text not in told


def test_what_a_model_raised_is_not_told_without_texts():
    run = replace(run_of(["a"]), status="error", error=f"ValueError: {SECRET}")
    assert SECRET not in repr(without_texts(run))


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_the_last_minutes_are_batches_rows_waits_and_a_mean_for_each_slice():
    clock = Clock()
    traffic = Traffic(clock)
    assert traffic.lately().fill == (None,) * SLICES
    traffic.add(served(run_of(["a", "b", "c"]), waited=(1.0, 2.0, 3.0)))
    traffic.add(served(run_of(["a"]), waited=(9.0,)))
    clock.now += SLICE_SECONDS
    traffic.add(served(run_of(["a", "b"]), waited=(4.0, 5.0)))
    lately = traffic.lately()
    assert (lately.batches, lately.rows) == (3, 6)
    assert lately.fill[-2:] == (2.0, 2.0)
    assert lately.fill[:-2] == (None,) * (SLICES - 2)
    assert (lately.waited.median, lately.waited.p90, lately.waited.largest) == (3.0, 9.0, 9.0)


def test_what_was_longer_ago_is_forgotten():
    clock = Clock()
    traffic = Traffic(clock)
    traffic.add(served(run_of(["a"])))
    clock.now += 60 * MINUTES - SLICE_SECONDS
    assert traffic.lately().batches == 1
    clock.now += SLICE_SECONDS
    assert traffic.lately().batches == 0


def test_a_batch_that_never_began_is_in_no_figure():
    run = run_of(["a", "b", "c"], batch_size=2)
    batches = (run.batches[0], replace(run.batches[1], started=None))
    traffic = Traffic()
    traffic.add(served(replace(run, batches=batches)))
    assert (traffic.lately().batches, traffic.lately().rows) == (1, 2)

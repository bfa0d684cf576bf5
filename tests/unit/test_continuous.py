"""Continuous batching: the ids of the other engines, a record of overlapping requests, and nothing
left behind."""

import threading
from contextlib import closing
from dataclasses import replace
from itertools import groupby

import pytest
import torch

from engine import paged, runfile
from engine.comparison import ids_by_request
from engine.continuous import ContinuousEngine
from engine.errors import RecordError, RequestError, RunError
from engine.lanes import lane_of
from engine.metrics import Meter, measure
from engine.peak import with_peak
from engine.pool import Lengths, pool_for
from engine.requests import make_requests
from engine.run import until
from engine.static import StaticBatchEngine
from engine.turns import turns_on
from tests.families import FAMILIES, ends_often
from tests.tiny import scripted_lm, tiny_lm
from viz.stage.desk import open_run

if reason := paged.reason_against(tiny_lm()):
    pytest.skip(reason, allow_module_level=True)

PROMPTS = ["hello", "a much longer prompt with some more words", "x", "foo bar", "q" * 30]
BUDGETS = [9, 20, 1, 14, 25]


def asked(prompts=tuple(PROMPTS), budgets=tuple(BUDGETS), **options):
    return make_requests(list(prompts), max_new_tokens=list(budgets), **options)


@pytest.fixture(scope="module")
def lm():
    return ends_often(tiny_lm("llama"))


@pytest.fixture(scope="module")
def run(lm):
    """With every kind of end, more requests than slots, and no two of a length."""
    return ContinuousEngine(lm, batch_size=2).run(asked(stop=["e"]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slots", [1, 3])
def test_float32_gives_the_ids_ends_and_texts_of_the_static_engine(family, slots):
    lm, requests = FAMILIES[family](), asked(stop=["e", "zz"])
    ours = ContinuousEngine(lm, batch_size=slots).run(requests)
    static = StaticBatchEngine(lm, batch_size=slots).run(requests)
    assert ids_by_request(ours) == ids_by_request(static)
    assert ours.texts == static.texts
    assert [row.end for row in measure(ours).rows] == [row.end for row in measure(static).rows]


def test_ignored_ends_leave_every_row_its_budget(lm):
    run = ContinuousEngine(lm, batch_size=2).run(asked(ignore_eos=True))
    assert [len(ids) for ids in ids_by_request(run)] == BUDGETS


def test_a_long_prompt_is_read_in_several_forwards(lm, monkeypatch):
    monkeypatch.setattr("engine.pool.TOKENS_PER_FORWARD", 7)
    requests = asked(ignore_eos=True)
    run = ContinuousEngine(lm, batch_size=2).run(requests)
    static = StaticBatchEngine(lm, batch_size=2).run(requests)
    assert ids_by_request(run) == ids_by_request(static)
    first = {step.batch: step.started for step in reversed(run.steps)}
    assert first[1] > run.batches[1].started  # 41 tokens, at most 7 at a time
    assert runfile.loads(runfile.dumps(run)) == run


# The record


def test_the_record_keeps_its_rules_and_comes_back(run):
    assert run.settings.engine == "continuous"
    assert run.status == "done"
    assert runfile.loads(runfile.dumps(run)) == run


def test_every_request_is_a_batch_of_its_own_and_a_forward_is_one_time(run):
    assert [batch.requests for batch in run.batches] == [(index,) for index in range(len(PROMPTS))]
    forwards = [list(steps) for _, steps in groupby(run.steps, key=lambda step: step.started)]
    assert max(map(len, forwards)) == run.settings.batch_size
    for steps in forwards:
        assert len({step.seconds for step in steps}) == 1
        assert len({step.batch for step in steps}) == len(steps)
    ends = [forward[0].finished for forward in forwards]
    starts = [forward[0].started for forward in forwards]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_slot_goes_to_the_next_request_with_the_forward_after_its_end(lm):
    run = ContinuousEngine(lm, batch_size=2).run(asked(ignore_eos=True))
    starts = sorted({step.started for step in run.steps})
    ends = {step.batch: step.started for step in run.steps}
    # 9 and 20 tokens first; then 1 and 14 after the nine; then 25 after the fourteen, at the 24th.
    assert starts.index(ends[0]) + 1 == starts.index(run.batches[2].started) == 9
    assert starts.index(run.batches[3].started) == 10
    assert starts.index(run.batches[4].started) == 20
    assert len(starts) == 45


def test_a_forward_counts_once_in_the_figures(run):
    figures, lane = measure(run), lane_of(run).figures
    forwards = {step.started: step.seconds for step in run.steps}
    assert figures.prefill_seconds + figures.decode_seconds == pytest.approx(sum(forwards.values()))
    assert figures.wall_seconds == pytest.approx(sum(forwards.values()) + figures.between_seconds)
    assert figures.decode_steps.count < len(forwards) == lane.forwards
    assert figures.padding.wasted == figures.idle.wasted == 0
    assert figures.prompt_tokens_per_second is None
    assert figures.peak_kv_bytes == lane.peak_kv_bytes <= run.kv_estimate
    meter = Meter(until(run, 0))
    for number in range(len(run.steps) + 1):  # as it grows, or all at once
        assert meter.read(until(run, number)) == measure(until(run, number))


def test_bytes_are_those_of_the_pages(lm, run):
    place = run.model.kv_bytes_per_token
    for step in run.steps:
        tokens = run.batches[step.batch].padded_length + step.forward - 1
        assert step.kv_bytes.live == tokens * place
        assert step.kv_bytes.total == -(-tokens // 16) * 16 * place
        assert step.kv_bytes.dead == 0


def edited(run, **changes):
    """The run with the third step changed."""
    steps = (*run.steps[:2], replace(run.steps[2], **changes), *run.steps[3:])
    return replace(run, steps=steps)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda run: edited(run, seconds=99.0), "takes two times"),
        (lambda run: edited(run, batch=run.steps[3].batch, forward=2), "out of order|two steps"),
        (lambda run: edited(run, forward=5), "out of order"),
        (lambda run: edited(run, batch=9), "out of order"),
        (lambda run: edited(run, started=0.0), "two steps of one batch|before what comes first"),
        (
            lambda run: replace(run, settings=replace(run.settings, batch_size=1)),
            "2 requests have a slot at once, of 1",
        ),
        (lambda run: replace(run, settings=replace(run.settings, engine="static")), "of order"),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused(run, change, named):
    with pytest.raises(RecordError, match=named):
        runfile.loads(runfile.dumps(change(run)))


def test_a_batch_of_two_is_no_continuous_run(lm):
    static = StaticBatchEngine(lm, batch_size=2).run(asked())
    text = runfile.dumps(replace(static, settings=replace(static.settings, engine="continuous")))
    with pytest.raises(RecordError, match="has more than one request"):
        runfile.loads(text)


def test_the_run_tab_says_where_it_is_shown(run):
    answer = open_run({"record": runfile.dumps(run)})
    assert answer == {"error": "A continuous run is shown in the Compare tab."}


# What it can't do


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temperature": 0.5}, "set the temperature to 0"),
        ({"repetition_penalty": 1.2}, "no repetition penalty"),
        ({"min_new_tokens": 1}, "no least number of new tokens"),
    ],
)
def test_what_the_manager_can_not_do_is_refused_in_words(lm, options, reason):
    with pytest.raises(RequestError, match=f"^tiny-llama can't be run by .*{reason}"):
        ContinuousEngine(lm).stream(make_requests(["a"], **options))


def test_an_old_transformers_is_refused(lm, monkeypatch):
    monkeypatch.setattr(paged, "__version__", "5.17.0")
    with pytest.raises(RequestError, match=r"takes transformers 5\.24 or newer, and here is 5\.17"):
        ContinuousEngine(lm)


def test_a_model_that_is_none_of_transformers_is_refused():
    with pytest.raises(RequestError, match="scripted can't be run by transformers' continuous"):
        ContinuousEngine(scripted_lm([[1]]))


def test_other_attention_is_refused():
    lm = tiny_lm()
    lm.model.config._attn_implementation = "flex_attention"
    with pytest.raises(RequestError, match="no pages for flex_attention attention"):
        ContinuousEngine(lm)


def test_what_does_not_fit_the_memory_is_refused_before_a_forward(lm, monkeypatch):
    monkeypatch.setattr("engine.pool.free_bytes", lambda _device: 200_000)
    with pytest.raises(RequestError, match=r"^This run needs about .* At most [1-4] of its rows"):
        ContinuousEngine(lm, batch_size=5).run(asked())
    assert works(lm)


# Ends before the end


def works(lm):
    """Whether both engines still come to their ends, on the attention that the model had."""
    requests = asked(["a", "bc"], [3, 3], ignore_eos=True)
    runs = [engine(lm).run(requests) for engine in (StaticBatchEngine, ContinuousEngine)]
    same = ids_by_request(runs[0]) == ids_by_request(runs[1])
    return same and not len(turns_on("cpu")) and not lm.model._forward_hooks


def test_stop_in_the_middle_keeps_what_was_measured(lm):
    stop = threading.Event()
    stream = ContinuousEngine(lm, batch_size=2).stream(asked(ignore_eos=True), stop=stop)
    for step in stream:
        if step.forward == 5:
            stop.set()
    record = stream.record()
    assert record.status == "stopped"
    assert record.steps[-1].forward == 5
    assert runfile.loads(runfile.dumps(record)) == record
    assert {row.end for row in measure(record).rows} == {"cancelled"}
    assert works(lm)


def test_closing_gives_the_device_back(lm):
    with closing(ContinuousEngine(lm, batch_size=2).stream(asked())) as stream:
        next(stream)
    assert stream.record().status == "stopped"
    assert works(lm)


def test_it_stands_in_the_line_of_the_device(lm):
    before = turns_on("cpu").join()
    stream = ContinuousEngine(lm).stream(asked())
    assert not stream.wait_turn(0.01)
    assert stream.ahead == 1
    before.leave()
    assert len(list(stream)) > 0


def test_the_deadline_ends_it_with_an_error(lm):
    stream = ContinuousEngine(lm).stream(asked(), seconds=0.0)
    with pytest.raises(RunError, match="took longer than this host allows"):
        list(stream)
    assert works(lm)


class Broken(torch.nn.Module):
    """A layer's first part, which raises at one forward or gives NaN from it on."""

    def __init__(self, part, at, error):
        super().__init__()
        self.part, self.at, self.error, self.calls = part, at, error, 0

    def forward(self, *arguments, **options):
        self.calls += 1
        if self.calls == self.at and self.error:
            raise self.error
        states = self.part(*arguments, **options)
        return states * float("nan") if self.calls >= self.at and not self.error else states


def breaking(lm, at, error=None):
    norm = lm.model.model.norm
    lm.model.model.norm = Broken(norm, at, error)
    return norm


@pytest.mark.parametrize(
    ("at", "error", "sentence"),
    [
        (4, ValueError("broken"), "The model failed in forward 4: ValueError: broken."),
        (1, ValueError("broken"), "can't be run by transformers' .*: ValueError: broken."),
        (4, MemoryError("no"), "Out of memory in forward 4: 2 requests at a time"),
        (4, None, r"The model produced NaN logits \(float32, sdpa attention\)"),
    ],
)
def test_a_failure_ends_the_run_with_a_sentence_and_leaves_nothing(at, error, sentence):
    lm = tiny_lm("llama")
    norm = breaking(lm, at, error)
    stream = ContinuousEngine(lm, batch_size=2).stream(asked(ignore_eos=True))
    with pytest.raises(RunError, match=sentence):
        list(stream)
    record = stream.record()
    assert (record.status, len(record.steps)) == ("error", 2 * (at - 1))
    assert runfile.loads(runfile.dumps(record)) == record
    lm.model.model.norm = norm
    assert works(lm)


def test_eager_attention_is_restored():
    lm = tiny_lm("llama")
    lm.model.set_attn_implementation("eager")
    requests = asked()
    run = ContinuousEngine(lm, batch_size=2).run(requests)
    assert lm.model.config._attn_implementation == "eager"
    static = StaticBatchEngine(lm, batch_size=2).run(requests)
    assert ids_by_request(run) == ids_by_request(static)


def test_random_numbers_of_the_process_are_left_alone(lm):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    ContinuousEngine(lm).run(asked())
    assert torch.equal(torch.rand(3), expected)


# The pool


def test_a_pool_holds_the_longest_requests_that_can_meet(lm):
    pool = pool_for(lm, [Lengths(10, 7), Lengths(1, 1), Lengths(30, 4)], slots=2)
    assert (pool.blocks, pool.tokens_per_forward) == (1 + 3, 40)


def test_no_request_ever_waits_for_a_page(lm):
    """All of the largest size at once, so that every page is used."""
    requests = asked(["a" * 16] * 6, [33] * 6, ignore_eos=True)
    run = ContinuousEngine(lm, batch_size=3).run(requests)
    assert lane_of(run).figures.forwards == 2 * 33
    assert measure(run).peak_kv_bytes == run.kv_estimate


@pytest.mark.parametrize(
    ("family", "prompt", "new", "slots"),
    [
        *(("llama", *shape) for shape in [(200, 3, 4), (4, 60, 4), (300, 8, 1), (1, 1, 2)]),
        *((family, 60, 12, 3) for family in ["gpt2", "gemma3", "mistral", "mixtral"]),
    ],
)
def test_the_forecast_is_an_upper_bound_of_what_is_held_at_once(family, prompt, new, slots):
    lm = tiny_lm(family)
    requests = asked(["a" * prompt] * 4, [new] * 4, ignore_eos=True)
    engine = ContinuousEngine(lm, batch_size=slots)
    engine.run(requests)  # what is made once stays
    _, peak = with_peak(lambda: engine.run(requests), lm.device)
    assert engine.forecast(requests).kv_bytes < peak <= engine.forecast(requests).bytes

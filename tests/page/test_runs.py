"""The page's run over HTTP: frames, refusals, failures, Stop, leaving, and the queue."""

import itertools
import logging
import threading

import gradio as gr
import httpx
import pytest

from engine import host
from engine.errors import RequestError
from engine.metrics import measure
from engine.requests import Limits
from engine.static import RunStream
from engine.turns import turns_on
from tests.serving import Visitor, rows_of, served, wait_for
from tests.shown import shown_tokens
from tests.tiny import EOS, scripted_lm, token_ids
from viz.page.sparing import SELDOM, SPARING_SECONDS

HELLO = token_ids("hello brave new world, and then some more of it")


@pytest.fixture
def slow():
    """A model that takes 30 ms a step: its frames are of single steps or a few."""
    return scripted_lm([HELLO, [*HELLO[:4], EOS]], seconds=0.03)


@pytest.fixture(scope="module")
def strict():
    """The address of a page with low limits, and its model."""
    lm = scripted_lm([HELLO], max_positions=100)
    limits = Limits(prompts=5, prompt_characters=100, new_tokens=50, batch_size=8)
    with served(lm, limits=limits) as url:
        yield url, lm


def test_a_browser_beside_a_busy_engine_is_told_seldom_and_all_in_the_end(slow, monkeypatch):
    monkeypatch.setattr("viz.page.sparing.IN_USE", 0)
    with served(slow) as url:
        frames = Visitor(url).run(rows_of(["first"], 120), "scripted")
    counts = [len(frame.tokens[0]) for frame in frames if frame.drawn]
    seconds = frames[-1].record.steps[-1].finished
    assert counts[0] == 0
    assert 1 <= counts[1] < 10
    assert len(counts) <= 4 + seconds / SPARING_SECONDS
    assert counts[-1] == 120
    assert SELDOM in {frame.says for frame in frames}
    assert SELDOM not in {frames[0].says, frames[-1].says}


def test_the_picture_grows_and_ends_as_the_saved_run_says(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        frames = visitor.run(rows_of(["first", "second prompt"], 40), "scripted")
        drawn = [frame.stage for frame in frames if frame.drawn]
        counts = [len(shown_tokens(stage)[0]) for stage in drawn]
        assert len(set(counts)) >= 5
        assert counts == sorted(counts)
        assert counts[-1] == 40
        last, run = drawn[-1], frames[-1].record
        assert last["status"] == run.status == "done"
        assert [len(tokens) for tokens in frames[-1].tokens] == [40, 5]
        assert last["ends"] == ["length", "eos"]
        assert run.texts == ("hello brave new world, and then some mor", "hell")
        assert last["summary"].startswith("2 requests, 45 tokens in ")
        assert frames[-1].run_button["interactive"]
        assert not frames[-1].stop_button["interactive"]


def test_e8_updates_are_few_and_the_last_state_is_shown():
    lm = scripted_lm([HELLO], seconds=0.001)
    with served(lm) as url:
        visitor = Visitor(url)
        frames = visitor.run(
            rows_of([f"prompt {i}" for i in range(16)], 512), "scripted", batch_size=16
        )
        run = frames[-1].record
        assert len(run.steps) == 512
        assert len(frames) <= 10 * run.steps[-1].finished + 5
        assert {len(tokens) for tokens in frames[-1].tokens} == {512}


def test_e8_an_update_costs_the_same_at_step_10_and_at_step_500():
    lm = scripted_lm([token_ids("word " * 200)], seconds=0.1)

    def skip_ahead(column):
        lm.model.seconds = 0.1 if column < 24 or column > 492 else 0  # a frame for each

    lm.model.before_forward = skip_ahead
    with served(lm) as url:
        frames = Visitor(url).run(
            rows_of([f"prompt {i}" for i in range(32)], 512), "scripted", batch_size=32
        )
    single = [
        (len(after.tokens[0]), after.size)
        for before, after in itertools.pairwise(frames)
        if before.drawn
        and after.stage["status"] == "running"
        and len(after.tokens[0]) - len(before.tokens[0]) == 1
    ]
    cost = {
        "early": [size for step, size in single if 5 <= step <= 22],
        "late": [size for step, size in single if 494 <= step <= 511],
    }
    assert min(len(cost["early"]), len(cost["late"])) >= 10
    early, late = (sum(sizes) / len(sizes) for sizes in cost.values())
    assert max(cost["early"] + cost["late"]) <= 3200
    assert late <= 1.1 * early


def test_consecutive_batches_are_laid_out_from_the_start(slow):
    with served(slow) as url:
        frames = Visitor(url).run(rows_of(["one", "two", "three"], 6), "scripted", batch_size=2)
    first = next(frame.stage for frame in frames if frame.drawn)
    assert [batch["requests"] for batch in first["batches"]] == [[0, 1], [2]]
    assert [len(times.split()) for times in frames[-1].stage["times"]] == [6, 6]


def test_e10_equal_prompts_are_rows_of_their_own(slow):
    with served(slow) as url:
        frames = Visitor(url).run(rows_of(["Hello", "Hello"], 3), "scripted")
    assert frames[-1].stage["prompts"] == ["Hello", "Hello"]
    assert len(frames[-1].tokens) == 2


@pytest.mark.parametrize(
    ("prompts", "settings", "sentence"),
    [
        ([], {}, "There are no prompts: enter at least one."),
        (rows_of(["Hello", ""], 3), {}, "Prompt 2 is empty."),
        (rows_of(["Hello", " \n "], 3), {}, "Prompt 2 is empty."),
        (rows_of(["Hello"], 0), {}, "Prompt 1: the token budget must be at least 1, not 0."),
        (rows_of(["Hello"], -3), {}, "Prompt 1: the token budget must be at least 1, not -3."),
        (
            [{"prompt": "Hello", "max_new_tokens": "not a number"}],
            {},
            "Prompt 1: the token budget must be a whole number, not 'not a number'.",
        ),
        (
            [{"prompt": "Hello", "max_new_tokens": None}],
            {},
            "Prompt 1: the token budget must be a whole number, not empty.",
        ),
        (rows_of(["Hello"], 99), {}, "Prompt 1: the token budget is 99, the limit is 50."),
        (rows_of(["x"] * 6, 3), {}, "6 prompts: the limit is 5."),
        (rows_of(["Hi", "y" * 101], 3), {}, "Prompt 2 has 101 characters: the limit is 100."),
        (
            rows_of(["a", "z" * 90], 30),
            {},
            "Prompt 2 does not fit the model's context: 90 prompt tokens + 30 new tokens > 100.",
        ),
        (rows_of(["Hello"], 3), {"batch_size": 0}, "The batch size must be at least 1, not 0."),
        (rows_of(["Hello"], 3), {"batch_size": 9}, "The batch size is 9, the limit is 8."),
        (
            rows_of(["Hello"], 3),
            {"temperature": -1},
            "The temperature must be 0 (greedy) or more, not -1.",
        ),
        (
            ["<b>not a row</b>"],
            {},
            'Prompts must be a list of {"prompt": text, "max_new_tokens": n}.',
        ),
    ],
)
def test_a14_a15_a17_a18_bad_input_is_refused_in_one_sentence_before_any_forward(
    strict, prompts, settings, sentence
):
    url, lm = strict
    visitor, seen = Visitor(url), len(lm.model.calls)
    refused = visitor.run(prompts, "scripted", **settings)[-1]
    assert refused.notice == {"text": sentence, "kind": "error"}
    assert refused.run_button["interactive"]
    assert len(lm.model.calls) == seen
    assert visitor.run(rows_of(["Hello"], 3), "scripted")[-1].stage["status"] == "done"


def test_a_model_outside_the_hosts_list_is_refused(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        refused = visitor.run(rows_of(["Hello"], 3), "/etc/passwd")[-1]
        assert refused.notice["kind"] == "error"
        assert visitor.run(rows_of(["Hello"], 3), "scripted")[-1].stage["status"] == "done"


def test_e1_stop_ends_the_run_within_one_step(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["long", "longer"], 500), "scripted")
        pressed_at = None
        for frame in visitor.frames():
            if pressed_at is None and frame.drawn and len(frame.tokens[0]) >= 5:
                visitor.stop()
                pressed_at = len(slow.model.calls)
        assert len(slow.model.calls) <= pressed_at + 1
        assert frame.stage["status"] == "stopped"
        assert frame.stage["ends"] == ["cancelled", "eos"]
        assert frame.run_button["interactive"]
        run = frame.record
        assert measure(run).generated_tokens == len(run.steps) + 5
        assert visitor.run(rows_of(["again"], 3), "scripted")[-1].stage["status"] == "done"


def test_stop_in_the_prefill_ends_after_it():
    lm = scripted_lm([HELLO])
    with served(lm) as url:
        visitor = Visitor(url)
        lm.model.before_forward = lambda column: visitor.stop()
        frame = visitor.run(rows_of(["Hi"], 5), "scripted")[-1]
        run = frame.record
        assert run.status == "stopped"
        assert len(run.steps) == len(lm.model.calls) == 1
        lm.model.before_forward = None
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"


def test_a_visitor_has_one_run_at_a_time(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["first"], 400), "scripted")
        frames = visitor.frames()
        next(frame for frame in frames if frame.drawn)
        visitor.join(rows_of(["second"], 3), "scripted")
        still = "Your last run is still under way: stop it, or wait."
        assert next(frame for frame in frames if frame.says == still).notice["kind"] == "info"
        visitor.stop()
        frames.close()
        wait_for(lambda: len(turns_on("cpu")) == 0)
        assert sum(call.ids.shape[1] > 1 for call in slow.model.calls) == 1


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("No GPU was available after 60s.", "No GPU was available after 60s."),
        ('It is used up. <a href="#">Sign up</a> &amp; go', "It is used up. Sign up & go"),
    ],
)
def test_a_lent_gpu_that_is_refused_is_said_in_its_own_words(monkeypatch, slow, message, sentence):
    def refused(*_, **__):
        raise gr.Error(message, print_exception=False)
        yield

    with served(slow) as url:
        visitor = Visitor(url)
        with monkeypatch.context() as patch:
            patch.setattr(host, "frames", refused)
            frame = visitor.run(rows_of(["Hi"], 5), "scripted")[-1]
        assert frame.notice == {"text": sentence, "kind": "error"}
        assert frame.run_button["interactive"]
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"


def test_a_failure_that_is_no_text_is_said_all_the_same(caplog):
    # What pytest captures of a log must be text, to be told by one process to another.
    caplog.set_level(logging.CRITICAL + 1, logger="batchscope.engine")

    def fail(column):
        raise RuntimeError("\ud800 <i>odd</i>")

    lm = scripted_lm([HELLO], before_forward=fail)
    with served(lm) as url:
        frame = Visitor(url).run(rows_of(["Hi"], 5), "scripted")[-1]
    assert frame.stage["status"] == "error"
    assert "RuntimeError: ? <i>odd</i>." in frame.stage["summary"]


def test_e2_closing_the_tab_ends_the_engine(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["long"], 500), "scripted")
        with visitor.messages() as messages:
            for message, _ in messages:
                if message["msg"] == "process_generating" and len(slow.model.calls) >= 5:
                    break
        left_at = len(slow.model.calls)
        wait_for(lambda: len(turns_on("cpu")) == 0)
        assert len(slow.model.calls) <= left_at + 1
        assert Visitor(url).run(rows_of(["next"], 3), "scripted")[-1].stage["status"] == "done"


def test_e4_two_visitors_see_only_their_own():
    echo = scripted_lm([token_ids("A" * 30)], seconds=0.01)
    other = scripted_lm([token_ids("B" * 30)], seconds=0.01)
    other = type(other)(other.model, other.tokenizer, name="other")
    seen = {}
    with served(echo, other) as url:

        def visit(prompt, model):
            seen[prompt] = Visitor(url).run(rows_of([prompt], 30), model)

        threads = [
            threading.Thread(target=visit, args=pair)
            for pair in (("AAA", "scripted"), ("BBB", "other"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for prompt, frames in seen.items():
        assert frames[-1].stage["prompts"] == [prompt]
        text = "".join(text for _, text in frames[-1].tokens[0])
        assert text == prompt[0] * 30
        assert frames[-1].record.model.name == {"AAA": "scripted", "BBB": "other"}[prompt]


def test_e4_e6_a_second_visitor_waits_in_a_visible_queue_and_stop_acts_at_once():
    gate = threading.Event()
    lm = scripted_lm([HELLO], before_forward=lambda column: column > 3 and gate.wait(0.05))
    with served(lm) as url:
        first, second, third = (Visitor(url) for _ in range(3))
        first.join(rows_of(["first"], 400), "scripted")
        first_frames = first.frames()
        next(frame for frame in first_frames if frame.drawn)
        second.join(rows_of(["second"], 3), "scripted")
        second_frames = second.frames()
        assert next(f for f in second_frames if "Waiting" in f.says).says == (
            "Waiting: 1 run before yours; 0 s so far, at most 5 min more."
        )
        third.join(rows_of(["third"], 3), "scripted")
        third_frames = third.frames()
        assert next(f for f in third_frames if "Waiting" in f.says).says == (
            "Waiting: 2 runs before yours; 0 s so far, at most 10 min more."
        )
        third.stop()
        assert list(third_frames)[-1].stage["status"] == "stopped"
        first.stop()
        assert list(first_frames)[-1].stage["status"] == "stopped"
        gate.set()
        assert list(second_frames)[-1].stage["status"] == "done"
    prompts = [call.ids.shape for call in lm.model.calls if call.ids.shape[1] > 1]
    assert len(prompts) == 2  # the stopped third never ran a forward


def test_a_run_past_its_deadline_keeps_its_picture_and_gives_the_device_back(slow):
    with served(slow, limits=Limits(run_seconds=1)) as url:
        visitor = Visitor(url)
        frame = visitor.run(rows_of(["long", "longer"], 400), "scripted")[-1]
        assert frame.record.status == frame.stage["status"] == "error"
        assert frame.record.error == "The run took longer than this host allows: 1 s."
        assert frame.record.error in frame.stage["summary"]
        assert frame.stage["ends"] == ["error", "eos"]
        assert 5 < len(frame.record.steps) < 400
        assert frame.run_button["interactive"]
        assert len(turns_on("cpu")) == 0
        assert visitor.run(rows_of(["again"], 3), "scripted")[-1].stage["status"] == "done"


def test_a_run_that_does_not_fit_into_memory_is_refused_with_the_numbers(monkeypatch, slow):
    def refuse(stream):
        raise RequestError("It needs 9 GB, 1 GB is free.")

    with served(slow) as url:
        visitor = Visitor(url)
        with monkeypatch.context() as patch:
            patch.setattr(RunStream, "check_memory", refuse)
            frames = visitor.run(rows_of(["Hi"], 5), "scripted")
        assert not any(frame.drawn for frame in frames)
        assert frames[-1].notice == {"text": "It needs 9 GB, 1 GB is free.", "kind": "error"}
        assert frames[-1].run_button["interactive"]
        assert slow.model.calls == []
        assert visitor.run(rows_of(["Hi"], 5), "scripted")[-1].stage["status"] == "done"


def test_e5_a_failing_model_keeps_the_picture_and_the_next_run_works():
    def fail_once(column):
        if column == 3 and not failed:
            failed.append(column)
            raise RuntimeError("kernel <b>exploded</b>")

    failed = []
    lm = scripted_lm([HELLO], before_forward=fail_once)
    with served(lm) as url:
        visitor = Visitor(url)
        broken = visitor.run(rows_of(["Hi", "Ho"], 9), "scripted")[-1]
        assert broken.stage["status"] == "error"
        assert [len(tokens) for tokens in broken.tokens] == [2, 2]
        assert broken.stage["ends"] == ["error", "error"]
        assert "kernel <b>exploded</b>" in broken.stage["summary"]
        assert broken.run_button["interactive"]
        assert broken.record.error in broken.stage["summary"]
        assert visitor.run(rows_of(["Hi"], 9), "scripted")[-1].stage["status"] == "done"


def test_b7_b8_markup_travels_as_it_is():
    markup = "use <div>, List<int>, `${x}` {{y}} <think>x</think>, 1 < 2 & 3 > 2, **b**, $x$ \\n"
    lm = scripted_lm([[*token_ids(markup), EOS]])
    with served(lm) as url:
        visitor = Visitor(url)
        prompt = "<img src=x onerror=alert(1)><script>alert(2)</script>"
        frame = visitor.run(rows_of([prompt], 200), "scripted")[-1]
        assert frame.stage["prompts"] == [prompt]
        assert frame.record.texts == (markup,)


def test_the_page_serves_its_own_plotly(slow):
    with served(slow) as url:
        config = httpx.get(f"{url}/config").json()
        source = next(
            component["props"]["head"]
            for component in config["components"]
            if component["props"].get("head")
        ).split('"')[1]
        script = httpx.get(f"{url}/{source}")
    assert script.status_code == 200
    assert "plotly.js v" in script.text[:200]

"""Stop strings: they end their own row, with the piece that completes one, and stay out of it."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.metrics import measure, rows
from engine.models import LanguageModel
from engine.requests import MAX_STOP_CHARACTERS, MAX_STOPS, make_requests
from engine.static import StaticBatchEngine
from engine.text import StopStrings
from tests.tiny import (
    EOS,
    VOCABULARY,
    ScriptedModel,
    row_ids,
    scripted_lm,
    sentencepiece_tokenizer,
    tiny_lm,
    token_ids,
)
from tests.unit.streams import stream_of


def run(script, *, prompts=("one", "two"), **options):
    lm = scripted_lm([token_ids(text) if isinstance(text, str) else text for text in script])
    options = {"max_new_tokens": 12} | options
    return StaticBatchEngine(lm).run(make_requests(prompts, **options))


def test_a10_a_stop_string_ends_its_own_row_alone():
    record = run(["aEND of it", "going on"], stop="END")
    assert [row.end for row in rows(record)] == ["stop", "length"]
    assert row_ids(record)[0] == token_ids("aEND")
    assert record.steps[3].ends == ("stop", None)
    assert [step.tokens[0] for step in record.steps[4:]] == [None] * 8
    assert record.texts[0] == "a"
    assert measure(record).idle == (8, 24)


def test_what_may_be_the_beginning_of_a_stop_string_is_held_back():
    record = run(["aEN or E", "b"], stop=["END"], max_new_tokens=8)
    assert [step.pieces[0] for step in record.steps] == ["a", "", "", "EN ", "o", "r", " ", "E"]
    assert record.texts[0] == "aEN or E"


def test_a_stop_string_inside_a_token_takes_the_rest_of_the_token_along():
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer("Hello world", add_special_tokens=False)["input_ids"]
    model = ScriptedModel([ids], vocabulary=len(tokenizer))
    record = StaticBatchEngine(LanguageModel(model, tokenizer, name="scripted")).run(
        make_requests(["a"], stop="wor", max_new_tokens=9)
    )
    assert row_ids(record) == [ids]
    assert record.texts == ("Hello ",)
    assert rows(record)[0].end == "stop"


@pytest.mark.parametrize("stop", ["\n", "b\n", "\n\n"])
def test_a_stop_string_in_a_run_of_byte_tokens_is_found_with_its_last_byte(stop):
    tokenizer = sentencepiece_tokenizer()
    newline, a, b = tokenizer.convert_tokens_to_ids(["<0x0A>", "a", "b"])
    said = [a, b, newline, newline, a, a]
    at = "ab\n\n".index(stop) + len(stop)
    for budget, rest in ((9, said[at:]), (at, []), (9, [tokenizer.eos_token_id])):
        model = ScriptedModel([said[:at] + rest], vocabulary=len(tokenizer))
        record = StaticBatchEngine(LanguageModel(model, tokenizer, name="scripted")).run(
            make_requests(["a"], stop=stop, max_new_tokens=budget)
        )
        assert row_ids(record) == [said[:at]]
        assert record.texts == ("ab\n\n"[: at - len(stop)],)
        assert rows(record)[0].end == "stop"


def test_a_stop_string_of_several_bytes_is_found_with_its_last_byte():
    record = run(["a🤗b", "c"], stop="🤗")
    assert row_ids(record)[0] == token_ids("a🤗")
    assert record.texts[0] == "a"


def test_several_stop_strings_and_one_over_several_lines():
    record = run(["line\n\nx", "sum;"], stop=["\n\n", ";"])
    assert record.texts == ("line", "sum")
    assert [row.end for row in rows(record)] == ["stop", "stop"]


def test_a_stop_string_of_the_prompt_stops_nothing():
    record = run(["abc", "abc"], prompts=("END", "two END"), stop="END", max_new_tokens=3)
    assert [row.end for row in rows(record)] == ["length", "length"]


def test_stop_strings_are_not_looked_for_before_the_least_tokens():
    script = ["xENDxxENDxx", "y"]
    assert row_ids(run(script, stop="END"))[0] == token_ids("xEND")
    later = run(script, stop="END", min_new_tokens=5)
    assert row_ids(later)[0] == token_ids("xENDxxEND")
    assert later.texts[0] == "xENDxx"


def test_an_end_token_and_the_budget_release_what_was_held_back():
    ended = run([[*token_ids("aEN"), EOS], "cEN"], stop="END", max_new_tokens=[9, 3])
    assert ended.texts == ("aEN", "cEN")
    assert [row.end for row in rows(ended)] == ["eos", "length"]
    assert "".join(step.pieces[0] for step in ended.steps) == "aEN"


def test_stopping_the_run_releases_what_was_held_back():
    lm = scripted_lm([token_ids("aENDx")])
    with closing(stream_of(lm, stop="END")) as stream:
        next(stream)
        next(stream)
        stream.stop()
        assert list(stream) == []
    assert stream.record().texts == ("aE", "aE")
    assert [row.end for row in rows(stream.record())] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_string_also_ends_rows_that_ignore_eos(ignore_eos):
    record = run([[65, EOS, *token_ids("END")], "b"], stop="END", ignore_eos=ignore_eos)
    assert rows(record)[0].end == ("stop" if ignore_eos else "eos")


def test_rows_equal_generate_with_stop_strings():
    lm = tiny_lm("llama")
    prompts = ["The sea", "a", "slots and pads"]
    free = StaticBatchEngine(lm).run(make_requests(prompts, max_new_tokens=24, ignore_eos=True))
    stop = [text[9:11] for text in free.texts if text[9:11].isascii()]
    assert stop
    record = StaticBatchEngine(lm).run(
        make_requests(prompts, max_new_tokens=24, ignore_eos=True, stop=stop)
    )
    assert "stop" in [row.end for row in rows(record)]
    for prompt, row in zip(prompts, row_ids(record), strict=True):
        inputs = lm.tokenizer(prompt, return_tensors="pt")
        out = lm.model.generate(
            **inputs,
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=EOS,
            eos_token_id=[VOCABULARY],  # none that the model could say
            stop_strings=stop,
            tokenizer=lm.tokenizer,
        )
        assert row == out[0, inputs["input_ids"].shape[1] :].tolist()


TEXTS = st.text("abE", max_size=12)


@given(st.lists(TEXTS, max_size=8), st.lists(st.text("abE", min_size=1, max_size=4), max_size=3))
def test_pieces_show_the_text_up_to_the_stop_string_that_is_completed_first(pieces, stops):
    scan, shown = StopStrings(stops), ""
    for piece in pieces:
        shown += scan.push(piece)
        if scan.found:
            break
    shown += "" if scan.found else scan.flush()
    text = "".join(pieces)
    completed = [
        (end, end - len(stop))
        for end in range(len(text) + 1)
        for stop in stops
        if text[:end].endswith(stop)
    ]
    assert scan.found == bool(completed)
    assert shown == (text[: min(completed)[1]] if completed else text)


@pytest.mark.parametrize(
    ("stop", "sentence"),
    [
        ([""], "Stop string 1 is empty"),
        (["a", "b" * 101], f"Stop string 2 has 101 characters: the limit is {MAX_STOP_CHARACTERS}"),
        (["a"] * 9, f"9 stop strings: the limit is {MAX_STOPS}"),
        (["\ud800"], "half of a surrogate pair"),
        ([5], "must be a list of texts"),
        (5, "must be a list of texts"),
        (None, "must be a list of texts"),
    ],
)
def test_other_stop_strings_are_refused(stop, sentence):
    with pytest.raises(RequestError, match=sentence):
        make_requests(["a"], stop=stop)

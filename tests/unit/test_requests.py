"""Bad input is refused with one sentence that names the prompt, the limit, or both."""

import math

import pytest

from engine.errors import RequestError
from engine.requests import Limits, check_batch_size, make_requests
from engine.run import Sampling
from engine.static import StaticBatchEngine
from tests.tiny import VOCABULARY, scripted_lm

SMALL = Limits(prompts=3, prompt_characters=10, new_tokens=20, batch_size=4)


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments, **options)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 200
    return sentence


def test_good_input_becomes_requests():
    requests = make_requests(
        ["a", [1, 2]],
        max_new_tokens=[3, 4],
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        repetition_penalty=1.3,
        seed=8,
        min_new_tokens=2,
        stop=["END", "\n"],
    )
    assert [request.index for request in requests] == [0, 1]
    assert [request.prompt for request in requests] == ["a", (1, 2)]
    assert [request.max_new_tokens for request in requests] == [3, 4]
    assert {request.sampling for request in requests} == {Sampling(0.5, 0.9, 7, 0.1, 1.3)}
    assert {request.seed for request in requests} == {8}
    assert not any(request.ignore_eos for request in requests)
    assert {request.min_new_tokens for request in requests} == {2}
    assert {request.stop for request in requests} == {("END", "\n")}


def test_what_is_not_asked_for_is_off():
    [request] = make_requests(["a"])
    assert request.sampling == Sampling(0.0, 1.0, 0, min_p=0.0, repetition_penalty=1.0)
    assert (request.min_new_tokens, request.stop, request.ignore_eos) == (0, (), False)


def test_one_stop_string_is_a_list_of_one():
    [request] = make_requests(["a"], stop="END")
    assert request.stop == ("END",)


def test_input_at_the_limits_is_taken():
    requests = make_requests(["x" * 10] * 3, max_new_tokens=20, limits=SMALL)
    assert len(requests) == 3
    assert check_batch_size(4, SMALL) == 4


def test_without_limits_any_size_is_taken():
    [request] = make_requests(["x" * 100_000], max_new_tokens=100_000)
    assert (len(request.prompt), request.max_new_tokens) == (100_000, 100_000)
    assert check_batch_size(10_000) == 10_000


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([], "There are no prompts: enter at least one."),
        ("Hello", "Prompts must be a list, not one text."),
        (["a"] * 4, "4 prompts: the limit is 3."),
        (["a", ""], "Prompt 2 is empty."),
        (["a", "b", " \n\t"], "Prompt 3 is empty."),
        (["a", []], "Prompt 2 is empty."),
        (["a", None], "Prompt 2 is empty."),
        (["a", "x" * 11], "Prompt 2 has 11 characters: the limit is 10."),
    ],
)
def test_bad_prompts_are_named(prompts, sentence):
    assert refusal(make_requests, prompts, max_new_tokens=20, limits=SMALL) == sentence


@pytest.mark.parametrize("prompt", [5, 1.5, True, object()])
def test_a_prompt_that_is_neither_text_nor_ids_is_named(prompt):
    assert "Prompt 2" in refusal(make_requests, ["a", prompt])


def test_the_first_bad_prompt_is_named():
    assert refusal(make_requests, ["a", "", ""]) == "Prompt 2 is empty."


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        (0, "Prompt 1: the token budget must be at least 1, not 0."),
        (-5, "Prompt 1: the token budget must be at least 1, not -5."),
        (21, "Prompt 1: the token budget is 21, the limit is 20."),
        ([5, 0], "Prompt 2: the token budget must be at least 1, not 0."),
        ([5, 2000], "Prompt 2: the token budget is 2,000, the limit is 20."),
        ([5], "1 token budgets for 2 prompts."),
        ([5, 5, 5], "3 token budgets for 2 prompts."),
        (2.5, "Prompt 1: the token budget must be a whole number, not 2.5."),
        ([5, None], "Prompt 2: the token budget must be a whole number, not empty."),
        ("", "Prompt 1: the token budget must be a whole number, not empty."),
        ("many", "Prompt 1: the token budget must be a whole number, not 'many'."),
        (True, "Prompt 1: the token budget must be a whole number, not True."),
        (math.nan, "Prompt 1: the token budget must be a whole number, not nan."),
        (math.inf, "Prompt 1: the token budget must be a whole number, not inf."),
    ],
)
def test_bad_budgets_are_named(budget, sentence):
    assert refusal(make_requests, ["a", "b"], max_new_tokens=budget, limits=SMALL) == sentence


@pytest.mark.parametrize("budget", [7, 7.0, "7", [7.0, "7"]])
def test_whole_numbers_are_taken_in_any_spelling(budget):
    requests = make_requests(["a", "b"], max_new_tokens=budget)
    assert [request.max_new_tokens for request in requests] == [7, 7]
    assert all(type(request.max_new_tokens) is int for request in requests)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -1}, "The temperature must be 0 (greedy) or more, not -1."),
        ({"temperature": math.nan}, "The temperature must be a number, not nan."),
        ({"temperature": math.inf}, "The temperature must be a number, not inf."),
        ({"temperature": "hot"}, "The temperature must be a number, not 'hot'."),
        ({"temperature": None}, "The temperature must be a number, not None."),
        ({"top_p": 0}, "Top-p must be above 0 and at most 1, not 0."),
        ({"top_p": 1.1}, "Top-p must be above 0 and at most 1, not 1.1."),
        ({"top_p": -0.5}, "Top-p must be above 0 and at most 1, not -0.5."),
        ({"top_p": math.nan}, "Top-p must be a number, not nan."),
        ({"top_k": -1}, "Top-k must be 0 (off) or more, not -1."),
        ({"top_k": 1.5}, "Top-k must be a whole number, not 1.5."),
        ({"top_k": None}, "Top-k must be a whole number, not empty."),
        ({"min_p": -0.1}, "Min-p must be from 0 (off) to 1, not -0.1."),
        ({"min_p": 1.5}, "Min-p must be from 0 (off) to 1, not 1.5."),
        ({"min_p": "low"}, "Min-p must be a number, not 'low'."),
        (
            {"repetition_penalty": 0},
            "The repetition penalty must be from 0.1 to 10 (1: off), not 0.",
        ),
        (
            {"repetition_penalty": 11},
            "The repetition penalty must be from 0.1 to 10 (1: off), not 11.",
        ),
        ({"repetition_penalty": None}, "The repetition penalty must be a number, not None."),
        ({"repetition_penalty": True}, "The repetition penalty must be a number, not True."),
        ({"seed": "x"}, "The seed must be a whole number, not 'x'."),
        ({"seed": 1.5}, "The seed must be a whole number, not 1.5."),
    ],
)
def test_bad_sampling_is_named(options, sentence):
    assert refusal(make_requests, ["a"], **options) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_new_tokens": -1}, "The least number of new tokens must be 0 or more, not -1."),
        (
            {"min_new_tokens": 1.5},
            "The least number of new tokens must be a whole number, not 1.5.",
        ),
        (
            {"min_new_tokens": 6, "max_new_tokens": [6, 5]},
            "Prompt 2: at least 6 new tokens do not fit its token budget of 5.",
        ),
        ({"stop": 5}, "Stop strings must be a list of texts."),
        ({"stop": None}, "Stop strings must be a list of texts."),
        ({"stop": ["a", 5]}, "Stop strings must be a list of texts."),
        ({"stop": b"END"}, "Stop strings must be a list of texts."),
        ({"stop": {"a": 1}}, "Stop strings must be a list of texts."),
        ({"stop": ["x"] * 9}, "9 stop strings: the limit is 8."),
        ({"stop": ""}, "Stop string 1 is empty."),
        ({"stop": ["a", ""]}, "Stop string 2 is empty."),
        ({"stop": ["x" * 101]}, "Stop string 1 has 101 characters: the limit is 100."),
        (
            {"stop": ["\ud83d"]},
            "Stop string 1 is not Unicode text: it has half of a surrogate pair.",
        ),
        ({"ignore_eos": "yes"}, "Ignore EOS must be on or off, not 'yes'."),
    ],
)
def test_bad_ends_are_named(options, sentence):
    assert refusal(make_requests, ["a", "b"], **options) == sentence


def test_ends_at_the_limits_are_taken():
    stop = ["x" * 100] * 8
    [request] = make_requests(["a"], max_new_tokens=5, min_new_tokens=5, stop=stop)
    assert (request.min_new_tokens, request.stop) == (5, tuple(stop))


@pytest.mark.parametrize("option", ["temperature", "top_p", "min_p", "repetition_penalty"])
def test_a_number_too_large_for_a_float_is_refused(option):
    assert len(refusal(make_requests, ["a"], **{option: 10**400})) < 100


def test_a_top_k_too_large_for_a_float_is_refused_or_runs():
    """Refused or off, as any top-k above the vocabulary is; but never a run that breaks."""
    lm = scripted_lm([[65]])
    try:
        requests = make_requests(["a"], temperature=1, top_k=10**400, max_new_tokens=1)
    except RequestError:
        return
    assert StaticBatchEngine(lm).run(requests).status == "done"


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (0, "The batch size must be at least 1, not 0."),
        (-2, "The batch size must be at least 1, not -2."),
        (5, "The batch size is 5, the limit is 4."),
        (2.5, "The batch size must be a whole number, not 2.5."),
        (None, "The batch size must be a whole number, not empty."),
        ("", "The batch size must be a whole number, not empty."),
        ("two", "The batch size must be a whole number, not 'two'."),
        (True, "The batch size must be a whole number, not True."),
        ([4], "The batch size must be a whole number, not [4]."),
    ],
)
def test_bad_batch_sizes_are_named(size, sentence):
    assert refusal(check_batch_size, size, SMALL) == sentence


def test_the_engine_checks_its_batch_size():
    assert "at least 1" in refusal(StaticBatchEngine, scripted_lm([[65]]), batch_size=0)


def test_a_long_wrong_value_is_shown_shortened():
    assert len(refusal(check_batch_size, "x" * 10_000)) < 100
    assert len(refusal(make_requests, ["a"], temperature="x" * 10_000)) < 100


# What only the engine can know: refused before any forward


@pytest.mark.parametrize("ids", [[VOCABULARY], [-1], [1.5], ["a"], [1, None]])
def test_token_ids_outside_the_vocabulary_are_named(ids):
    lm = scripted_lm([[65]])
    requests = make_requests([[1], ids])
    sentence = refusal(StaticBatchEngine(lm).stream, requests)
    assert sentence == f"Prompt 2 has a token id outside 0 to {VOCABULARY - 1}."
    assert lm.model.calls == []


def test_text_that_is_no_unicode_is_named():
    """A browser can send half a surrogate pair, which no tokenizer takes."""
    lm = scripted_lm([[65]])

    def run():
        StaticBatchEngine(lm).run(make_requests(["a", "\ud83d"], max_new_tokens=1))

    assert "Prompt 2" in refusal(run)

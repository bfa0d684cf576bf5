"""Orders, and the links that carry them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.orders import (
    DAMAGED,
    PageSettings,
    make_order,
    read_link,
    stop_strings,
    stop_text,
)
from engine.presets import PRESETS, find_preset
from engine.requests import Limits
from engine.run import Sampling

LIMITS = Limits(prompts=8, prompt_characters=300, new_tokens=50, batch_size=8)


def link(order) -> str:
    text = json.dumps(order).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def test_a_link_gives_back_what_it_was_made_of():
    order = {
        "prompts": ["Grüße <b>&</b>", "中文 🌊", "  spaces and\nlines  "],
        "max_new_tokens": [5, 6, 7],
        "model": "Qwen/Qwen3-0.6B",
        "batch_size": 2,
        "chat_template": False,
        "ignore_eos": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 123,
        "padding_side": "right",
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "min_new_tokens": 3,
        "stop": ["END", "a\n\\n"],
    }
    read = read_link(link(order), LIMITS)
    assert [request.prompt for request in read.requests] == order["prompts"]
    assert [request.max_new_tokens for request in read.requests] == [5, 6, 7]
    assert (read.model, read.batch_size, read.seed) == ("Qwen/Qwen3-0.6B", 2, 123)
    assert (read.chat_template, read.padding_side) == (False, "right")
    assert all(request.ignore_eos for request in read.requests)
    sampling = read.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.05, 1.1)
    assert {(request.min_new_tokens, request.stop) for request in read.requests} == {
        (3, ("END", "a\n\\n"))
    }
    assert read == make_order(LIMITS, **order)


def test_what_a_link_leaves_out_is_as_if_nothing_had_been_chosen():
    read = read_link(link({"prompts": ["a", "b"]}), LIMITS)
    assert (read.model, read.seed, read.batch_size, read.padding_side) == (None, None, 2, "left")
    assert read.requests[0].sampling == Sampling()
    assert (read.requests[0].min_new_tokens, read.requests[0].stop) == (0, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "not base64!",
        "ü",
        link({"prompts": ["Hello"]})[:-4],
        link([1]),
        link("text"),
        link({}),
        link({"prompts": ["Hello"], "limits": 9}),
        link({"prompts": ["Hello"], "colour": "red"}),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
def test_a_damaged_link_is_called_so(text):
    with pytest.raises(RequestError) as refused:
        read_link(text, LIMITS)
    assert str(refused.value) == DAMAGED


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompts": ["x"] * 9}, "9 prompts: the limit is 8."),
        ({"prompts": ["x" * 301]}, "Prompt 1 has 301 characters: the limit is 300."),
        ({"prompts": [[1, 2]]}, "Prompts must be a list of texts."),
        ({"prompts": {"a": 1}}, "Prompts must be a list of texts."),
        ({"prompts": ["\ud800"]}, "Prompt 1 is not Unicode text: it has half of a surrogate pair."),
        ({"max_new_tokens": 51}, "Prompt 1: the token budget is 51, the limit is 50."),
        (
            {"max_new_tokens": {"a": 1}},
            "Prompt 1: the token budget must be a whole number, not {'a': 1}.",
        ),
        ({"batch_size": 9}, "The batch size is 9, the limit is 8."),
        ({"temperature": "hot"}, "The temperature must be a number, not 'hot'."),
        ({"top_p": 2}, "Top-p must be above 0 and at most 1, not 2."),
        ({"seed": "x"}, "The seed must be a whole number, not 'x'."),
        ({"chat_template": "yes"}, "The chat template must be on or off, not 'yes'."),
        ({"stop": ["x"] * 9}, "9 stop strings: the limit is 8."),
        ({"stop": {"a": 1}}, "Stop strings must be a list of texts."),
        ({"min_new_tokens": -1}, "The least number of new tokens must be 0 or more, not -1."),
        ({"padding_side": ["left"]}, "The padding side must be left or right, not ['left']."),
    ],
)
def test_what_a_link_asks_for_is_checked_as_if_typed(changes, sentence):
    with pytest.raises(RequestError) as refused:
        read_link(link({"prompts": ["Hello"]} | changes), LIMITS)
    assert str(refused.value) == f"The link can't be opened. {sentence}"


def test_settings_of_an_order_ask_for_the_same_order_again():
    order = make_order(
        LIMITS,
        prompts=["a", "b"],
        batch_size=2,
        chat_template=False,
        ignore_eos=True,
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        seed=123,
        padding_side="right",
        min_p=0.05,
        repetition_penalty=1.1,
        min_new_tokens=3,
        stop=["END", "a\n\\n"],
    )
    settings = PageSettings.of_order(order)
    assert settings == PageSettings(
        *(2, False, True, 0.7, 0.9, 40, "123", "right", 0.05, 1.1, 3, "END\na\\n\\\\n")
    )
    assert make_order(LIMITS, prompts=["a", "b"], **settings.asked()) == order


@given(st.lists(st.text(min_size=1)))
def test_stop_strings_are_typed_one_per_line(stop):
    assert stop_strings(stop_text(stop)) == stop


@pytest.mark.parametrize(
    ("typed", "stop"),
    [
        ("", []),
        ("\n\n", []),
        (" \nEND\n", [" ", "END"]),
        (r"a\nb\\nc\t\\ ".removesuffix(" "), ["a\nb\\nc\\t\\"]),
    ],
)
def test_what_stop_strings_are_typed_as(typed, stop):
    assert stop_strings(typed) == stop


def test_an_empty_seed_is_drawn():
    settings = PageSettings.of_order(make_order(LIMITS, prompts=["a"]))
    assert settings.seed == ""
    assert settings.asked()["seed"] is None


def test_settings_of_a_list_are_those_of_its_preset_or_plain():
    limits = Limits()
    same = find_preset("same")
    assert PageSettings.of_prompts(same.prompts, limits) == PageSettings(8, temperature=0.8)
    assert PageSettings.of_prompts(["a", "b", "c"], limits) == PageSettings(3)
    assert PageSettings.of_prompts(["a"] * 50, limits) == PageSettings(limits.batch_size)
    assert PageSettings.of_prompts([], limits) == PageSettings(1)
    first = PRESETS[0].within(LIMITS)
    assert PageSettings.of_prompts(first.prompts, LIMITS) == PageSettings.of_preset(first)


def test_the_page_has_a_field_for_each_setting_in_the_same_order():
    from viz.page.form import Settings

    assert Settings._fields == PageSettings._fields

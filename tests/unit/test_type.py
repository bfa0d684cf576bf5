"""Widths of text without a browser: what is said to fit has to fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viz.type import clusters, fit, is_rtl, text_width, wrap

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1eb\U0001f1f7"
THUMB = "\U0001f44d\U0001f3fd"
TEXTS = st.text(
    st.sampled_from("aW .,\n海洋ع\u0301\u200d\U0001f1eb\U0001f468\U0001f3fd"), max_size=60
)


def test_widths_are_those_of_inter():
    assert text_width("Wi", 1000) == 949 + 237
    assert text_width("Wi", 1000, bold=True) == 1036 + 272
    assert text_width("海", 20) == 20
    assert text_width("é", 1000) == text_width("e", 1000) == text_width("e\u0301", 1000)
    assert text_width("🌊", 1000) == 1250
    assert text_width("", 48) == 0


@pytest.mark.parametrize("whole", [FAMILY, FLAG, THUMB, "e\u0301", "क\u093f"])
def test_what_a_reader_sees_as_one_character_is_one(whole):
    assert list(clusters(f"a{whole}b")) == ["a", whole, "b"]


def test_two_flags_are_two():
    assert list(clusters(FLAG + FLAG)) == [FLAG, FLAG]


def test_lines_break_at_spaces_and_newlines():
    assert wrap("one two three", 10, text_width("one two", 10), 5) == ["one two", "three"]
    assert wrap("one\ntwo\n\nthree", 10, 1000, 5) == ["one", "two", "three"]


def test_lines_break_between_wide_characters():
    assert wrap("海洋大海", 10, 25, 5) == ["海洋", "大海"]


def test_a_long_word_breaks_inside():
    assert wrap("aaaaa bb", 10, text_width("aaa", 10), 5) == ["aaa", "aa", "bb"]


def test_an_ellipsis_says_that_text_is_left():
    assert wrap("one two three", 10, text_width("one two…", 10), 1) == ["one two…"]
    assert wrap("one two three", 10, text_width("one two t…", 10), 1) == ["one two…"]
    assert wrap("a, b, c", 10, text_width("a, b,…", 10), 1) == ["a, b…"]
    assert wrap("one\ntwo\nthree", 10, 1000, 2) == ["one", "two…"]
    assert wrap("one\ntwo", 10, 1000, 2) == ["one", "two"]


def test_fit_is_one_line():
    assert fit(" one\n two ", 10, 1000) == "one two"
    assert fit("", 10, 100) == ""
    assert fit("aaaaaa", 10, text_width("aaa…", 10)) == "aaa…"


@given(TEXTS, st.integers(1, 4))
def test_no_line_is_wider_than_asked_nor_splits_a_character(text, lines):
    made = wrap(text, 10, 45, lines)
    assert len(made) <= lines
    whole = {each.strip() for part in text.splitlines() for each in clusters(part)} | {"", "…"}
    for line in made:
        assert text_width(line, 10) <= 45
        assert {each.strip() for each in clusters(line)} <= whole


@given(TEXTS)
def test_with_room_nothing_is_lost(text):
    assert "".join("".join(wrap(text, 10, 45, 1000)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "rtl"), [("عن البحر", True), ("12 שלום", True), ("sea عن", False), ("12 !", False)]
)
def test_direction_is_that_of_the_first_letter(text, rtl):
    assert is_rtl(text) is rtl

"""Text that grows per row: never half a character, and in the end exactly decode(all ids)."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models import LanguageModel
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from engine.text import TextStream
from tests.tiny import (
    EOS,
    VOCABULARY,
    ScriptedModel,
    byte_tokenizer,
    row_ids,
    scripted_lm,
    sentencepiece_tokenizer,
    token_ids,
)

BYTES = byte_tokenizer()
LLAMA_STYLE = sentencepiece_tokenizer()
GEMMA_STYLE = sentencepiece_tokenizer(strip=False)
SENTENCEPIECE = pytest.mark.parametrize(
    "tokenizer", [LLAMA_STYLE, GEMMA_STYLE], ids=["llama", "gemma"]
)


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def pieces(tokenizer, ids):
    """What each id made readable, and last what the flush gave."""
    stream = TextStream(tokenizer)
    return [*(stream.push(id) for id in ids), stream.flush()]


def encoded(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def run(lm, prompts=("one", "two"), **options):
    return StaticBatchEngine(lm).run(make_requests(prompts, **options))


# Characters of several tokens


def test_b1_an_emoji_shows_with_its_last_byte():
    assert pieces(BYTES, token_ids("🤗")) == ["", "", "", "🤗", ""]


def test_b1_each_row_has_a_decoder_of_its_own():
    record = run(scripted_lm([token_ids("🤗é"), token_ids("plain.")]), max_new_tokens=6)
    assert [step.pieces for step in record.steps] == [
        ("", "p"),
        ("", "l"),
        ("", "a"),
        ("🤗", "i"),
        ("", "n"),
        ("é", "."),
    ]
    assert record.texts == ("🤗é", "plain.")


def test_b2_half_an_emoji_shows_nothing_until_the_row_ends():
    lm = scripted_lm([token_ids("a🤗"), token_ids("bcdef")])
    requests = make_requests(["one", "two"], max_new_tokens=[3, 5])
    with closing(StaticBatchEngine(lm).stream(requests)) as stream:
        shown = [(next(stream).pieces[0], stream.record().texts[0]) for _ in range(2)]
        assert shown == [("a", "a"), ("", "a")]
        assert next(stream).pieces == ("\ufffd", "d")
    record = stream.record()
    assert record.texts[0] == decode(BYTES, row_ids(record)[0]) == "a\ufffd"


def test_b2_half_an_emoji_of_a_stopped_row_is_shown():
    lm = scripted_lm([token_ids("a🤗")])
    with closing(StaticBatchEngine(lm).stream(make_requests(["one"]))) as stream:
        next(stream)
        next(stream)
        stream.stop()
        assert list(stream) == []
    assert stream.record().texts == ("a\ufffd",)


def test_a_broken_character_is_shown_as_soon_as_it_can_no_longer_be_completed():
    assert pieces(BYTES, [*token_ids("🤗")[:2], *token_ids("ok")]) == ["", "", "\ufffdo", "k", ""]


# SentencePiece


@SENTENCEPIECE
def test_b3_no_space_is_lost_or_doubled(tokenizer):
    ids = encoded(tokenizer, "Hello world!")
    assert "".join(pieces(tokenizer, ids)) == decode(tokenizer, ids) == "Hello world!"
    assert len(ids) == 3


@SENTENCEPIECE
@pytest.mark.parametrize(
    "text", ["🤗", "a🤗b", "🤗🤗🤗", "a 🤗 Hello🤗", "é", "a\ufffdb", "日本 a"]
)
def test_b3_byte_tokens_show_whole_characters(tokenizer, text):
    ids = encoded(tokenizer, text)
    assert any(id in range(3, 259) for id in ids)
    parts = pieces(tokenizer, ids)
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts if "\ufffd" not in text)


@SENTENCEPIECE
@pytest.mark.parametrize("missing", [1, 2, 3])
def test_b3_a_truncated_byte_run_shows_at_the_end_only(tokenizer, missing):
    ids = encoded(tokenizer, "a🤗")[:-missing]
    *running, flushed = pieces(tokenizer, ids)
    assert "".join(running) == "a"
    assert "a" + flushed == decode(tokenizer, ids)
    assert set(flushed) == {"\ufffd"}


# Spaces, end tokens


@SENTENCEPIECE
@pytest.mark.parametrize("text", ["a ,b", "a    .", "a , . !", "Hello .    world"])
def test_b5_spaces_are_never_cleaned_up_in_sentencepiece(tokenizer, text):
    assert "".join(pieces(tokenizer, encoded(tokenizer, text))) == text


@pytest.mark.parametrize("text", ["a ,b", "    .", " ,", "do n't ?", "a  b\n\n c"])
def test_b5_spaces_are_never_cleaned_up(text):
    tokenizer = byte_tokenizer()
    tokenizer.clean_up_tokenization_spaces = True
    script = [token_ids(text), token_ids("b")]
    lm = LanguageModel(ScriptedModel(script), tokenizer, name="scripted")
    record = run(lm, max_new_tokens=len(text))
    assert record.texts[0] == "".join(step.pieces[0] for step in record.steps) == text


def assert_only_real_text(lm, pad_id):
    record = run(lm, max_new_tokens=4)
    fed_after_the_end = [call.ids[0].tolist() for call in lm.model.calls[2:]]
    assert fed_after_the_end == [[pad_id]] * 2
    assert record.texts == ("a", "aaaa")
    assert [step.pieces[0] for step in record.steps] == ["a", "", "", ""]
    return row_ids(record)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("pad", ["<eos>", "!"])
def test_b6_no_end_or_pad_text_is_in_any_row(pad, special):
    tokenizer = byte_tokenizer()
    if special:
        tokenizer.add_special_tokens({"pad_token": pad})
    else:
        tokenizer.pad_token = pad
    [a] = token_ids("a")
    lm = LanguageModel(ScriptedModel([[a, EOS], [a]]), tokenizer, name="scripted")
    assert assert_only_real_text(lm, pad_id={"<eos>": EOS, "!": 0}[pad]) == [[a, EOS], [a] * 4]


def test_b6_no_unk_pad_is_in_any_row():
    tokenizer = sentencepiece_tokenizer()
    tokenizer.pad_token = "<unk>"
    a, end = tokenizer.convert_tokens_to_ids(["▁a", "</s>"])
    script = [[a, end], [a, *[tokenizer.convert_tokens_to_ids("a")] * 3]]
    model = ScriptedModel(script, vocabulary=len(tokenizer), eos_token_id=end)
    ids = assert_only_real_text(LanguageModel(model, tokenizer, name="scripted"), pad_id=0)
    assert ids[0] == [a, end]


def test_b10_rows_stream_on_after_the_first_has_ended():
    lm = scripted_lm([[*token_ids("a"), EOS], [*token_ids("abcdefgh"), EOS]])
    record = run(lm, max_new_tokens=20)
    assert len(record.steps) == 9
    assert [step.pieces[1] for step in record.steps] == [*"abcdefgh", ""]
    assert record.texts == ("a", "abcdefgh")


def test_b7_markup_is_kept_character_by_character():
    text = "use <div>, List<int>, <think>x</think>, 1 < 2 & 3 > 2, **b**, $x$"
    record = run(scripted_lm([[*token_ids(text), EOS]]), max_new_tokens=200)
    assert record.texts[0] == text


# Any ids at all

BYTE_IDS = st.one_of(
    st.lists(st.integers(0, VOCABULARY - 1), max_size=6),
    st.text(max_size=4).map(lambda text: encoded(BYTES, text)),
    st.text(max_size=2).map(lambda text: encoded(BYTES, text)[:-1]),
)
SENTENCEPIECE_IDS = st.one_of(
    st.lists(st.integers(0, len(LLAMA_STYLE) - 1), max_size=6),
    st.lists(st.sampled_from([0, 1, 2, *range(259, len(LLAMA_STYLE))]), max_size=6),
    st.text(max_size=4).map(lambda text: encoded(GEMMA_STYLE, text)),
    st.text(max_size=2).map(lambda text: encoded(GEMMA_STYLE, text)[:-1]),
)


def joined(parts):
    return st.lists(parts, max_size=8).map(lambda lists: [id for part in lists for id in part])


def assert_grows_into_decode(tokenizer, ids):
    *running, flushed = pieces(tokenizer, ids)
    assert "".join(running) + flushed == decode(tokenizer, ids)
    assert not any(piece.endswith("\ufffd") for piece in running)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(joined(BYTE_IDS))
def test_any_bytes_grow_into_decode_of_all_ids(ids):
    assert_grows_into_decode(BYTES, ids)


@SENTENCEPIECE
@settings(max_examples=300, deadline=None, derandomize=True)
@given(ids=joined(SENTENCEPIECE_IDS))
def test_any_sentencepiece_ids_grow_into_decode_of_all_ids(tokenizer, ids):
    assert_grows_into_decode(tokenizer, ids)

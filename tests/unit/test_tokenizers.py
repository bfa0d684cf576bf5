"""What tokenizers put round a prompt, and which ids end a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.batching import encode
from engine.errors import RequestError
from engine.models import LanguageModel, load_model
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import (
    BOS,
    EOS,
    VOCABULARY,
    byte_tokenizer,
    row_ids,
    scripted_lm,
    tiny_lm,
    token_ids,
)


def lm_with(**options: bool) -> LanguageModel:
    return LanguageModel(
        tiny_lm(vocab_size=BOS + 1).model, byte_tokenizer(**options), name="tiny-llama"
    )


def ids_of(lm: LanguageModel, prompt: object, *, chat: bool = False) -> list[int]:
    [request] = make_requests([prompt])
    return list(encode(lm, request, chat=chat))


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("append_eos", [False, True])
def test_bos_is_kept_and_an_appended_end_is_not_fed(bos, append_eos):
    lm = lm_with(bos=bos, append_eos=append_eos)
    assert lm.tokenizer("Hi")["input_ids"][-1] == (EOS if append_eos else token_ids("i")[0])
    assert ids_of(lm, "Hi") == [BOS] * bos + token_ids("Hi")
    assert any("ends every prompt" in note for note in lm.notes) == append_eos


def test_an_end_token_that_is_typed_or_given_stays():
    lm = lm_with(append_eos=True)
    assert ids_of(lm, "Hi<eos>") == [*token_ids("Hi"), EOS]
    assert ids_of(lm, "<eos>") == [EOS]
    assert ids_of(lm, [72, EOS]) == [72, EOS]
    assert ids_of(lm_with(), "Hi<eos>") == [*token_ids("Hi"), EOS]


def test_an_appended_token_that_ends_nothing_stays():
    lm = lm_with(append_eos=True)
    lm.tokenizer.eos_token = None
    lm.model.generation_config.eos_token_id = 7
    assert lm.end_ids == {7}
    assert ids_of(lm, "Hi") == [*token_ids("Hi"), EOS]
    assert not any("ends every prompt" in note for note in lm.notes)


def test_no_appended_end_is_counted_where_the_text_itself_is_an_end():
    lm = lm_with(bos=True)
    lm.model.generation_config.eos_token_id = token_ids("a")
    assert lm.appended_ends == 0
    assert ids_of(lm, "Hia") == [BOS, *token_ids("Hia")]


def test_a_tokenizer_file_that_appends_eos_is_told(tmp_path):
    lm = lm_with(bos=True, append_eos=True)
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu", dtype="float32")
    assert loaded.tokenizer("Hi")["input_ids"] == [BOS, *token_ids("Hi"), EOS]
    assert ids_of(loaded, "Hi") == [BOS, *token_ids("Hi")]
    assert any("ends every prompt" in note for note in loaded.notes)


@pytest.mark.parametrize("append_eos", [False, True])
def test_a12_a_template_with_bos_gets_no_second_one(append_eos):
    lm = lm_with(bos=True, append_eos=append_eos)
    lm.tokenizer.chat_template = "{{ bos_token }}[{{ messages[0]['content'] }}]"
    expected = [BOS, *token_ids("[hello]")]
    assert ids_of(lm, "hello", chat=True) == expected
    run = StaticBatchEngine(lm, chat_template=True).run(make_requests(["hello"], max_new_tokens=1))
    assert run.batches[0].prompt_lengths == (len(expected),)


def test_a14_a_prompt_without_tokens_is_refused_before_the_run():
    lm = lm_with()
    lm.tokenizer.chat_template = "{# says nothing #}"
    with pytest.raises(RequestError, match="Prompt 1 has no tokens"):
        ids_of(lm, "hello", chat=True)


def test_what_else_a_tokenizer_returns_is_harmless():
    plain, talkative = lm_with(), lm_with()
    talkative.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    assert "token_type_ids" in talkative.tokenizer("Hi")
    requests = make_requests(["Hi", "a longer one"], max_new_tokens=4)
    runs = [StaticBatchEngine(lm).run(requests) for lm in (plain, talkative)]
    assert row_ids(runs[0]) == row_ids(runs[1])


# which ids end a row


def test_a9_every_listed_end_ends_a_row():
    lm = scripted_lm([[65, 66, 9, 67], [65, 7], [65, EOS], [65]], eos_token_id=[7, 9])
    run = StaticBatchEngine(lm).run(make_requests(list("abcd"), max_new_tokens=5))
    assert row_ids(run) == [[65, 66, 9], [65, 7], [65, EOS], [65] * 5]
    ends = [[step.ends[row] for step in run.steps if step.ends[row]] for row in range(4)]
    assert ends == [["eos"], ["eos"], ["eos"], ["length"]]
    assert run.texts == tuple(lm.tokenizer.decode(ids) for ids in ([65, 66], [65], [65], [65] * 5))


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": [7, 9]}, 3, {7, 9, EOS}),
        ({"eos_token_id": 7}, 3, {7, EOS}),
        ({}, 3, {3, EOS}),
        ({}, [3, 4], {3, 4, EOS}),
        (None, 3, {3, EOS}),
        ({}, None, {EOS}),
        (None, None, {EOS}),
        ({"eos_token_id": [7, VOCABULARY + 9, -1]}, 3, {7, EOS}),
    ],
)
def test_end_ids_of_a_folder(tmp_path, generation, config, ends):
    """The generation config's, else the config's, and always the tokenizer's."""
    save(tmp_path, generation=generation, eos_token_id=config)
    assert load_model(str(tmp_path), device="cpu", dtype="float32").end_ids == ends


def save(folder: Path, *, generation: dict | None, eos_token_id: int | list[int] | None) -> None:
    lm = tiny_lm()
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": eos_token_id}))
    path = folder / "generation_config.json"
    path.unlink()
    if generation is not None:
        path.write_text(json.dumps(generation))

"""What the page says of a model before a run of it is taken for more than it is."""

import pytest
import torch
from tokenizers import processors

from engine.models import LanguageModel
from tests.serving import Visitor, rows_of, served
from tests.tiny import EOS, ScriptedModel, byte_tokenizer, scripted_lm, tiny_lm, token_ids


def first_word(lm, **settings):
    """What the notice says beside the first picture of a run."""
    with served(lm) as url:
        frames = Visitor(url).run(
            rows_of(["Hi", "The capital of France is"], 3), lm.name, **settings
        )
    assert frames[-1].record.status == "done"
    return next(frame.says for frame in frames if frame.drawn)


def with_tokenizer(tokenizer):
    return LanguageModel(ScriptedModel([token_ids("ab")]), tokenizer, name="scripted")


def test_a8_the_page_says_that_eos_pads_where_there_is_no_pad_token():
    assert "no pad token: using EOS" in first_word(scripted_lm([token_ids("ab")]))
    assert "pad token" not in first_word(with_tokenizer(byte_tokenizer(pad=True)))


@pytest.mark.parametrize("chat_template", [True, False])
def test_f3_the_page_says_that_a_base_model_is_given_the_raw_prompt(chat_template):
    said = first_word(scripted_lm([token_ids("ab")]), chat_template=chat_template)
    assert "no chat template: raw prompt used" in said
    assert "template" not in first_word(with_tokenizer(byte_tokenizer(chat=True)))


def test_a3_the_page_says_that_half_precision_rounds_by_batch_shape():
    half = tiny_lm()
    half.model.to(torch.bfloat16)
    assert "bfloat16 rounds by batch shape" in first_word(half)
    assert "rounds" not in first_word(tiny_lm())


def test_a12_the_prompt_length_that_is_shown_counts_one_bos():
    tokenizer = byte_tokenizer(chat=True)
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", EOS)]
    )
    with served(with_tokenizer(tokenizer)) as url:
        last = Visitor(url).run(rows_of(["hello"], 3), "scripted", chat_template=True)[-1]
    assert last.stage["batches"][0]["lengths"] == [1 + len("<hello>")]
    assert last.record.batches[0].prompt_ids[0][:2] == (EOS, *token_ids("<"))

"""Where rows begin and end: prompts, end ids, budgets, contexts, consecutive batches."""

import pytest
from tokenizers import normalizers, processors

from engine.errors import RequestError
from engine.metrics import measure, rows
from engine.models import LanguageModel
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import (
    EOS,
    VOCABULARY,
    ScriptedModel,
    byte_tokenizer,
    row_ids,
    scripted_lm,
    tiny_lm,
    token_ids,
)

A, B = token_ids("AB")


def run(lm, prompts, *, engine=None, **options):
    return StaticBatchEngine(lm, **(engine or {})).run(make_requests(prompts, **options))


def with_tokenizer(tokenizer, script=((A,),), **options) -> LanguageModel:
    return LanguageModel(ScriptedModel(script, **options), tokenizer, name="scripted")


# Pads and end ids


def test_a8_a_tokenizer_without_a_pad_token_runs_and_is_noted():
    lm = tiny_lm("gpt2")
    assert lm.tokenizer.pad_token_id is None
    record = run(lm, ["The capital of France is", "Hi"], max_new_tokens=5)
    assert record.status == "done"
    assert lm.pad_id == EOS
    assert "no pad token: using EOS" in lm.notes


def test_a8_a_pad_id_outside_the_vocabulary_is_not_used():
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    assert tokenizer.pad_token_id == VOCABULARY
    lm = with_tokenizer(tokenizer)
    assert run(lm, ["abcde", "Hi"], max_new_tokens=3).status == "done"
    assert lm.pad_id == EOS
    assert all(call.ids.max() < VOCABULARY for call in lm.model.calls)


def test_a8_without_any_special_token_the_pad_id_is_inside_the_vocabulary():
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    lm = with_tokenizer(tokenizer, eos_token_id=None)
    assert 0 <= lm.pad_id < VOCABULARY
    record = run(lm, ["abcde", "Hi"], max_new_tokens=3)
    assert [row.end for row in rows(record)] == ["length", "length"]


def test_a8_a_real_token_with_the_pad_id_is_seen():
    lm = scripted_lm([[A]])
    run(lm, [[B, lm.pad_id, A], [B]], max_new_tokens=1)
    assert lm.model.calls[0].mask[0, 0, -1].tolist() == [True, True, True]


def test_a9_any_of_several_end_ids_ends_a_row():
    lm = scripted_lm([[A, B, 9, A], [A, A, A, A, 7]], eos_token_id=[7, 9])
    record = run(lm, ["one", "two"], max_new_tokens=8)
    assert row_ids(record) == [[A, B, 9], [A, A, A, A, 7]]
    assert [row.end for row in rows(record)] == ["eos", "eos"]
    assert record.steps[2].ends == ("eos", None)
    assert [step.tokens[0] for step in record.steps[3:]] == [None, None]


def test_a9_the_tokenizers_end_id_ends_a_row_too():
    lm = scripted_lm([[A, EOS]], eos_token_id=[7, 9])
    assert row_ids(run(lm, ["one"], max_new_tokens=8)) == [[A, EOS]]


def test_a9_b6_the_text_leaves_the_end_token_out_also_when_it_is_no_special_token():
    lm = scripted_lm([[A, B, 9, A], [A] * 5], eos_token_id=[7, 9])
    record = run(lm, ["one", "two"], max_new_tokens=5)
    assert record.texts == ("AB", "AAAAA")
    assert [step.pieces[0] for step in record.steps] == ["A", "B", "", "", ""]


def test_a10_a_row_that_ends_is_idle_while_its_neighbour_goes_on():
    lm = scripted_lm([[A, A, A, EOS], [B]])
    record = run(lm, ["one", "two"], max_new_tokens=10)
    assert row_ids(record) == [[A, A, A, EOS], [B] * 10]
    assert [row.end for row in rows(record)] == ["eos", "length"]
    assert [step.tokens[0] for step in record.steps[4:]] == [None] * 6
    assert measure(record).idle == (6, 20)


def test_ended_rows_are_fed_pads():
    lm = scripted_lm([[EOS], [B]])
    run(lm, ["one", "two"], max_new_tokens=4)
    assert [call.ids.tolist() for call in lm.model.calls[1:]] == [[[EOS], [B]]] * 3


def test_ignore_eos_runs_to_the_budget_and_keeps_the_end_token_in_the_ids():
    lm = scripted_lm([[A, EOS, B]])
    record = run(lm, ["one"], max_new_tokens=5, ignore_eos=True)
    assert row_ids(record) == [[A, EOS, B, B, B]]
    assert rows(record)[0].end == "length"
    assert record.texts == ("ABBB",)


def test_an_end_token_at_the_last_column_counts_as_eos():
    record = run(scripted_lm([[A, EOS]]), ["one"], max_new_tokens=2)
    assert rows(record)[0].end == "eos"


# Budgets


def test_each_request_has_its_own_budget():
    record = run(scripted_lm([[A]]), ["a", "b", "c"], max_new_tokens=[4, 1, 6])
    assert [len(ids) for ids in row_ids(record)] == [4, 1, 6]
    assert len(record.steps) == 6


def test_a17_a_budget_of_0_is_refused():
    with pytest.raises(RequestError, match="at least 1"):
        make_requests(["one"], max_new_tokens=0)


def test_a17_a_budget_of_1_gives_one_column_out_of_the_prefill():
    lm = scripted_lm([[A]])
    record = run(lm, ["one", "two"], max_new_tokens=1)
    assert [step.phase for step in record.steps] == ["prefill"]
    assert len(lm.model.calls) == 1
    assert row_ids(record) == [[A], [A]]
    figures = measure(record)
    assert figures.idle.fraction is None
    assert figures.decode_tokens_per_second is None
    assert figures.mean_tpot is None
    assert [row.tpot for row in rows(record)] == [None, None]


# The context


def test_a15_a_prompt_that_does_not_fit_is_refused_before_any_forward():
    lm = scripted_lm([[A]], max_positions=1024)
    requests = make_requests([[A] * 1020, "Hi"], max_new_tokens=20)
    with pytest.raises(RequestError, match=r"Prompt 1 .*1020 .*\+ 20 .*> 1024"):
        StaticBatchEngine(lm).stream(requests)
    assert lm.model.calls == []
    assert run(lm, ["Hi"], max_new_tokens=20).status == "done"


def test_a15_prompt_and_budget_may_fill_the_context_and_no_more():
    lm = scripted_lm([[A]], max_positions=16)
    assert run(lm, [[A] * 10], max_new_tokens=6).status == "done"
    with pytest.raises(RequestError, match=r"10 prompt tokens \+ 7 new tokens > 16"):
        run(lm, [[A] * 10], max_new_tokens=7)


def test_a15_gpt2s_position_table_is_the_limit():
    lm = tiny_lm("gpt2", n_positions=1024)
    with pytest.raises(RequestError, match=r"1020 prompt tokens \+ 20 new tokens > 1024"):
        run(lm, [[A] * 1020, "Hi"], max_new_tokens=20)
    record = run(lm, [[A] * 1020, "Hi"], max_new_tokens=4, ignore_eos=True)
    assert [len(ids) for ids in row_ids(record)] == [4, 4]


def test_a15_a_full_row_stays_in_the_position_table_while_its_neighbour_decodes_on():
    lm = tiny_lm("gpt2", n_positions=64)
    options = {"max_new_tokens": [4, 62], "ignore_eos": True}
    together = run(lm, [[A] * 60, "Hi"], **options)
    alone = run(lm, [[A] * 60, "Hi"], engine={"batch_size": 1}, **options)
    assert len(together.steps) == 62
    assert row_ids(together) == row_ids(alone)


# Empty prompts


@pytest.mark.parametrize("blank", ["", "   ", "\n", "\t \n", []])
def test_a14_an_empty_prompt_is_named_before_the_run(blank):
    with pytest.raises(RequestError, match="Prompt 2 is empty"):
        make_requests(["Hello", blank, "World"])


def test_a14_a_prompt_that_has_no_tokens_is_named_and_the_next_run_works():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("x", "")
    lm = with_tokenizer(tokenizer)
    with pytest.raises(RequestError, match="Prompt 2 has no tokens"):
        run(lm, ["Hello", "xxx"])
    assert lm.model.calls == []
    assert run(lm, ["Hello", "xxxy"], max_new_tokens=2).status == "done"


# Consecutive batches


def test_more_prompts_than_the_batch_size_make_consecutive_batches():
    lm = scripted_lm([[A, A, EOS], [B, EOS]])
    record = run(lm, ["a", "b", "c", "d", "e"], engine={"batch_size": 2}, max_new_tokens=5)
    assert [batch.requests for batch in record.batches] == [(0, 1), (2, 3), (4,)]
    assert [(step.batch, step.forward) for step in record.steps] == [
        (batch, forward) for batch in range(3) for forward in (1, 2, 3)
    ]
    assert [len(step.tokens) for step in record.steps] == [2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert row_ids(record) == [[A, A, EOS], [B, EOS]] * 2 + [[A, A, EOS]]
    assert [len(call.ids) for call in lm.model.calls] == [2, 2, 2, 2, 2, 2, 1, 1, 1]


def test_a_batch_starts_when_the_one_before_has_ended():
    record = run(scripted_lm([[A]]), list("abcd"), engine={"batch_size": 2}, max_new_tokens=3)
    first, second = record.batches
    assert first.started >= 0
    assert second.started >= record.steps[2].finished
    assert second.started <= record.steps[3].started


def test_each_batch_is_as_wide_as_its_own_longest_prompt():
    prompts = ["a" * 9, "a" * 4, "a" * 2, "a" * 3]
    record = run(scripted_lm([[A]]), prompts, engine={"batch_size": 2}, max_new_tokens=1)
    assert [batch.padded_length for batch in record.batches] == [9, 3]
    assert measure(record).padding == (5 + 1, 18 + 6)


# Templates


def chat_tokenizer_with_bos():
    """Adds a BOS to every text, and its template writes one too."""
    tokenizer = byte_tokenizer(chat=True)
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", EOS)]
    )
    assert tokenizer("hello")["input_ids"][:2] == [EOS, token_ids("h")[0]]
    return tokenizer


@pytest.mark.parametrize(("chat", "expected"), [(True, "<hello>"), (False, "hello")])
def test_a12_a_prompt_has_exactly_one_bos(chat, expected):
    lm = with_tokenizer(chat_tokenizer_with_bos())
    record = run(lm, ["hello"], engine={"chat_template": chat}, max_new_tokens=1)
    assert record.batches[0].prompt_ids == ((EOS, *token_ids(expected)),)
    assert rows(record)[0].prompt_tokens == 1 + len(expected)


def test_f3_a_model_without_a_template_is_given_the_raw_prompt():
    lm = scripted_lm([[A]])
    engine = StaticBatchEngine(lm, chat_template=True)
    record = engine.run(make_requests(["one", "three"], max_new_tokens=1))
    assert record.settings.chat_template is False
    assert record.batches[0].prompt_ids == (tuple(token_ids("one")), tuple(token_ids("three")))
    assert "no chat template: raw prompt used" in lm.notes


def test_f3_a_model_with_a_template_is_given_the_raw_prompt_unless_asked():
    lm = tiny_lm(chat=True)
    raw = run(lm, ["one"], max_new_tokens=1)
    chat = run(lm, ["one"], engine={"chat_template": True}, max_new_tokens=1)
    assert raw.batches[0].prompt_ids == (tuple(token_ids("one")),)
    assert chat.batches[0].prompt_ids == (tuple(token_ids("<one>")),)
    assert (raw.settings.chat_template, chat.settings.chat_template) == (False, True)


def test_a_prompt_of_ids_is_taken_as_it_is_also_with_a_template():
    record = run(tiny_lm(chat=True), [[A, B]], engine={"chat_template": True}, max_new_tokens=1)
    assert record.batches[0].prompt_ids == ((A, B),)

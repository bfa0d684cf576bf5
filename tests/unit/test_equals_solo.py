"""float32: whatever is beside it, a row's ids equal its solo run and transformers' generate."""

import sys

import pytest
import torch

import engine.masks
from engine.errors import RequestError
from engine.masks import attention_mask
from engine.requests import make_requests
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.families import FAMILIES, Tally, ends_often, main, prove
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids

FULL_ATTENTION = ["llama", "qwen3", "gpt2"]
WINDOWED = ["mistral", "gemma3"]


def assert_holds(tally: Tally) -> None:
    """No row differs, and there was something to differ in."""
    assert tally.not_solo == []
    assert tally.not_generate == []
    assert tally.rows > tally.batches
    assert 0 < tally.compared < tally.rows
    assert min(tally.ends["eos"], tally.ends["length"]) > 0
    assert (tally.window is None) == (tally.crossed == 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_of_30_random_batches_equals_its_solo_run_and_generate(family):
    assert_holds(prove(FAMILIES[family](), batches=30, seed=11))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_every_row_equals_its_solo_run_with_eager_attention(family):
    lm = ends_often(tiny_lm(family))
    lm.model.set_attn_implementation("eager")
    assert_holds(prove(lm, batches=16, seed=14))


def test_the_proof_finds_rows_that_see_their_pads(monkeypatch, capsys):
    def see_all(model, cache, real, *, queries):
        return attention_mask(model, cache, torch.ones_like(real), queries=queries)

    monkeypatch.setattr(sys, "argv", ["families", "--batches", "6", "--family", "llama"])
    assert main() == 0
    monkeypatch.setattr(engine.masks, "attention_mask", see_all)
    assert main() == 1
    assert "alone Answer" in capsys.readouterr().err


@pytest.mark.parametrize("family", [*FULL_ATTENTION, *WINDOWED])
def test_a1_a_row_is_the_same_without_and_with_short_and_long_neighbours(family):
    lm = tiny_lm(family)
    options = {"max_new_tokens": 24, "ignore_eos": True}
    answers = []
    for neighbours in ([], ["x" * 10], ["The long one. " * 14 + "abcd"]):
        assert [len(token_ids(prompt)) for prompt in neighbours] in ([], [10], [200])
        run = StaticBatchEngine(lm).run(make_requests(["Hi", *neighbours], **options))
        answers.append(row_ids(run)[0])
    assert len(answers[0]) == 24
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("family", FULL_ATTENTION)
def test_a3_a_prompt_answers_the_same_alone_and_four_times_in_a_batch(family):
    lm = tiny_lm(family)
    alone = row_ids(StaticBatchEngine(lm).run(make_requests(["Slots and pads"])))
    four = row_ids(StaticBatchEngine(lm).run(make_requests(["Slots and pads"] * 4)))
    assert four == alone * 4


@pytest.mark.parametrize("side", ["left", "right"])
def test_a4_positions_count_each_rows_real_tokens(side):
    lm = scripted_lm([[65], [66]])
    prompts = ["abc", "a longer prompt"]
    StaticBatchEngine(lm, padding_side=side).run(make_requests(prompts, max_new_tokens=4))
    prefill, *decodes = [call.positions for call in lm.model.calls]
    short = prefill[0, -3:] if side == "left" else prefill[0, :3]
    assert short.tolist() == [0, 1, 2]
    assert prefill[1].tolist() == list(range(15))
    assert prefill.min() >= 0
    assert prefill.max() < 15
    assert [positions.tolist() for positions in decodes] == [
        [[3 + step], [15 + step]] for step in range(3)
    ]


def test_a5_the_tokenizers_padding_side_is_ignored_and_left_as_it_was():
    lm = tiny_lm("gpt2")
    lm.tokenizer.padding_side = "right"
    prompts = ["The capital of France is", "Hi"]
    alone = row_ids(SerialEngine(lm).run(make_requests(prompts)))
    assert row_ids(StaticBatchEngine(lm).run(make_requests(prompts))) == alone
    assert lm.tokenizer.padding_side == "right"


@pytest.mark.parametrize("tokenizer_side", ["left", "right"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a5_pads_are_on_the_engines_side(side, tokenizer_side):
    lm = scripted_lm([[65]])
    lm.tokenizer.padding_side = tokenizer_side
    engine = StaticBatchEngine(lm, padding_side=side)
    engine.run(make_requests(["abcde", "Hi"], max_new_tokens=1))
    pads, real = [EOS] * 3, token_ids("Hi")
    expected = pads + real if side == "left" else real + pads
    assert lm.model.calls[0].ids[1].tolist() == expected


@pytest.mark.parametrize("side", ["left", "right"])
def test_a6_the_mask_hides_each_rows_pads_at_every_step(side):
    lm = scripted_lm([[65], [66, 66, EOS]])
    engine = StaticBatchEngine(lm, padding_side=side)
    engine.run(make_requests(["abcde", "Hi"], max_new_tokens=20))
    pads = [0, 1, 2] if side == "left" else [2, 3, 4]
    assert len(lm.model.calls) == 20
    for step, call in enumerate(lm.model.calls):
        # Decode steps add their mask to the scores.
        assert call.mask.dtype == (torch.float32 if step else torch.bool)
        assert call.mask.shape == (2, 1, 1 if step else 5, 5 + step)
        visible = call.mask.eq(0) if step else call.mask
        full, short = visible[:, 0, -1].tolist()
        assert full == [True] * (5 + step)
        hidden = [column for column, visible in enumerate(short) if not visible]
        # In the prefill a right pad asks last, and sees itself.
        assert hidden == (pads[:-1] if side == "right" and not step else pads)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a2_no_query_sees_nothing_and_none_sees_the_future(side):
    lm = scripted_lm([[65]])
    engine = StaticBatchEngine(lm, padding_side=side)
    engine.run(make_requests(["abcde", "Hi", "abc"], max_new_tokens=2))
    mask = lm.model.calls[0].mask[:, 0]
    assert mask.diagonal(dim1=-2, dim2=-1).all()
    assert not mask.triu(1).any()
    # Apart from itself, a query sees real keys only.
    others = mask & ~torch.eye(5, dtype=torch.bool)
    pads = {"left": {1: [0, 1, 2], 2: [0, 1]}, "right": {1: [2, 3, 4], 2: [3, 4]}}[side]
    for row, columns in pads.items():
        assert not others[row][:, columns].any()
        real = [column for column in range(5) if column not in columns]
        assert others[row][real[-1], real[:-1]].all()


@pytest.mark.parametrize("family", WINDOWED)
def test_right_padding_is_refused_for_sliding_windows(family):
    with pytest.raises(RequestError, match="Use left padding"):
        StaticBatchEngine(tiny_lm(family), padding_side="right")

"""float32: whatever is beside it, a row's ids equal its solo run and transformers' generate."""

import random
import string

import pytest
import torch

from engine.errors import RequestError
from engine.models import LanguageModel
from engine.requests import make_requests
from engine.run import Request
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.tiny import EOS, VOCABULARY, row_ids, scripted_lm, tiny_lm, token_ids

FULL_ATTENTION = ["llama", "qwen3", "gpt2"]
WINDOWED = ["mistral", "gemma3"]
END_IDS = [EOS, *range(5, 250, 18)]
"""Many, so that random rows end by themselves at every length."""


def random_requests(count: int, *, seed: int) -> list[Request]:
    """Prompts of 1 to 40 tokens, half of them text, with budgets of 1 to 24 tokens."""
    rng = random.Random(seed)
    prompts = []
    for index in range(count):
        length = rng.randint(1, 40)
        text = rng.choice(string.ascii_letters) + "".join(
            rng.choices(string.printable[:95], k=length - 1)
        )
        ids = rng.choices(range(VOCABULARY), k=length)
        prompts.append(text if index % 2 else ids)
    budgets = [rng.randint(1, 24) for _ in prompts]
    return make_requests(prompts, max_new_tokens=budgets)


def ends_often(lm: LanguageModel) -> LanguageModel:
    lm.model.generation_config.eos_token_id = END_IDS
    lm.model.generation_config.pad_token_id = EOS
    return lm


def solo_ids(lm: LanguageModel, requests: list[Request]) -> list[list[int]]:
    """Each request alone in a batch of one."""
    run = SerialEngine(lm).run(requests)
    assert {len(batch.requests) for batch in run.batches} == {1}
    return row_ids(run)


def generate_ids(lm: LanguageModel, request: Request) -> list[int]:
    """What transformers' own greedy generate says for one request."""
    prompt = request.prompt
    ids = torch.tensor([token_ids(prompt) if isinstance(prompt, str) else prompt])
    with torch.inference_mode():
        out = lm.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
        )
    return out[0, ids.shape[1] :].tolist()


def mismatches(
    lm: LanguageModel, *, batches: int, pool: int, sides: list[str], seed: int
) -> tuple[int, list[str]]:
    """Runs random batches drawn from a pool of requests; (rows run, what differs from solo)."""
    requests = random_requests(pool, seed=seed)
    alone = solo_ids(lm, requests)
    assert alone == [generate_ids(lm, request) for request in requests]
    ended_early = [
        len(ids) < request.max_new_tokens for ids, request in zip(alone, requests, strict=True)
    ]
    assert any(ended_early)
    assert not all(ended_early)

    rng = random.Random(seed + 1)
    rows, wrong = 0, []
    for number in range(batches):
        picked = rng.sample(requests, k=rng.randint(2, 6))
        side = sides[number % len(sides)]
        batch = make_requests(
            [request.prompt for request in picked],
            max_new_tokens=[request.max_new_tokens for request in picked],
        )
        run = StaticBatchEngine(lm, batch_size=len(batch), padding_side=side).run(batch)
        rows += len(picked)
        for request, ids in zip(picked, row_ids(run), strict=True):
            if ids != alone[request.index]:
                wrong.append(f"batch {number} ({side}): {request}: {ids} {alone[request.index]}")
    return rows, wrong


@pytest.mark.parametrize("family", FULL_ATTENTION)
def test_every_row_of_200_random_batches_equals_its_solo_run_and_generate(family):
    lm = ends_often(tiny_lm(family))
    rows, wrong = mismatches(lm, batches=200, pool=150, sides=["left", "right"], seed=11)
    print(f"{family}: 200 batches, {rows} rows, {len(wrong)} mismatches")
    assert rows >= 400
    assert wrong == []


@pytest.mark.parametrize("family", WINDOWED)
def test_every_row_equals_its_solo_run_with_sliding_windows(family):
    lm = ends_often(tiny_lm(family))
    rows, wrong = mismatches(lm, batches=40, pool=60, sides=["left"], seed=12)
    print(f"{family}: 40 batches, {rows} rows, {len(wrong)} mismatches")
    assert wrong == []


def test_every_row_equals_its_solo_run_with_experts():
    lm = ends_often(tiny_lm("qwen3_moe"))
    rows, wrong = mismatches(lm, batches=10, pool=20, sides=["left", "right"], seed=13)
    print(f"qwen3_moe: 10 batches, {rows} rows, {len(wrong)} mismatches")
    assert wrong == []


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_every_row_equals_its_solo_run_with_eager_attention(family):
    lm = ends_often(tiny_lm(family))
    lm.model.set_attn_implementation("eager")
    rows, wrong = mismatches(lm, batches=10, pool=20, sides=["left"], seed=14)
    print(f"{family}, eager: 10 batches, {rows} rows, {len(wrong)} mismatches")
    assert wrong == []


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
    alone = solo_ids(lm, make_requests(prompts))
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
        assert call.mask.dtype == torch.bool
        assert call.mask.shape == (2, 1, 1 if step else 5, 5 + step)
        full, short = call.mask[:, 0, -1].tolist()
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

"""Greedy and sampled picks: reproducible, row by row, and from the right distribution."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch

from engine.errors import RequestError
from engine.requests import PENALTIES, make_requests
from engine.run import Request, Sampling
from engine.sampling import RowSettings, draw, make_processors, row_uniforms
from engine.serial import SerialEngine
from engine.static import StaticBatchEngine
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids

PROMPTS = ["The sea", "A much longer neighbour"]


@pytest.fixture(scope="module")
def lm():
    return tiny_lm("llama")


def answers(lm, prompts=PROMPTS, **options):
    options = {"max_new_tokens": 16, "seed": 42, "ignore_eos": True} | options
    return row_ids(StaticBatchEngine(lm).run(make_requests(prompts, **options)))


# Temperature


@pytest.mark.parametrize("zero", [0, 0.0, "0", -0.0])
def test_a18_temperature_0_is_greedy(lm, zero):
    assert make_requests(["a"], temperature=zero)[0].sampling.temperature == 0
    assert answers(lm, temperature=zero) == answers(lm)


@pytest.mark.parametrize("tiny", [1e-8, 1e-40, 1e-46, 1e-300])
def test_a18_a_tiny_temperature_is_finite_and_as_good_as_greedy(lm, tiny):
    assert answers(lm, temperature=tiny) == answers(lm)


@pytest.mark.parametrize("tiny", [1e-8, 1e-40, 1e-300])
def test_a18_a_tiny_temperature_is_finite_where_the_logits_are_large(tiny):
    """The scripted logits of 10 are beyond float32 once they are divided by its smallest number."""
    lm = scripted_lm([token_ids("abc")])
    requests = make_requests(["a"], max_new_tokens=3, temperature=tiny)
    assert row_ids(StaticBatchEngine(lm).run(requests)) == [token_ids("abc")]


def test_a18_a_huge_temperature_is_finite(lm):
    assert len(answers(lm, temperature=1e300)[0]) == 16


@pytest.mark.parametrize("temperature", [-1, -1e-9, float("nan"), float("inf"), "warm", None])
def test_a18_any_other_temperature_is_refused(temperature):
    with pytest.raises(RequestError, match="temperature must be"):
        make_requests(["a"], temperature=temperature)


# Seeds


def test_a20_the_same_batch_twice_is_the_same(lm):
    first = answers(lm, temperature=1.0)
    assert first == answers(lm, temperature=1.0)
    assert first != answers(lm)


def test_a20_a_row_is_unchanged_by_its_neighbours(lm):
    row = answers(lm, ["The sea"], temperature=1.0)[0]
    for neighbours in (["x"], ["A much longer neighbour"], ["b", "cc", "ddd"]):
        assert answers(lm, ["The sea", *neighbours], temperature=1.0)[0] == row


def test_a20_a_row_is_unchanged_by_its_neighbours_sampling(lm):
    sampled = make_requests(PROMPTS, max_new_tokens=16, temperature=1.0, seed=42)
    mixed = [sampled[0], replace(sampled[1], sampling=Sampling())]
    both, one = (row_ids(StaticBatchEngine(lm).run(batch)) for batch in (sampled, mixed))
    assert both[0] == one[0]
    assert both[1] != one[1]


def test_a20_a_row_is_the_same_in_any_batch_size(lm):
    requests = make_requests(["a", "bb", "ccc", "dddd"], temperature=1.0, seed=3)
    runs = [StaticBatchEngine(lm, batch_size=size).run(requests) for size in (1, 2, 4)]
    assert row_ids(runs[0]) == row_ids(runs[1]) == row_ids(runs[2])


def test_other_seeds_give_other_rows(lm):
    assert answers(lm, temperature=1.0, seed=1) != answers(lm, temperature=1.0, seed=2)


def test_equal_prompts_in_one_batch_draw_differently(lm):
    first, second = answers(lm, ["The sea", "The sea"], temperature=1.0)
    assert first != second


def test_each_column_draws_anew():
    lm = scripted_lm([[0]])
    lm.model.poison = lambda column, logits: torch.zeros_like(logits)
    [row] = answers(lm, ["a"], temperature=1.0, max_new_tokens=40)
    # Of 257 equally likely tokens, 40 draws hold 37 different ones on average.
    assert len(set(row)) > 30


def test_a_seed_is_drawn_and_recorded_where_none_is_given(lm):
    requests = make_requests(PROMPTS, temperature=1.0)
    assert requests[0].seed == requests[1].seed != make_requests(PROMPTS)[0].seed
    again = make_requests(PROMPTS, temperature=1.0, seed=requests[0].seed)
    first, second = (StaticBatchEngine(lm).run(batch) for batch in (requests, again))
    assert row_ids(first) == row_ids(second)


def test_a_rows_random_numbers_depend_on_seed_and_index_alone():
    def numbers(index, seed, budget=4, prompt="a"):
        return row_uniforms(Request(index, prompt, budget, seed=seed))

    assert numbers(1, 42) == numbers(1, 42, prompt="b") == numbers(1, 42, budget=9)[:4]
    assert len({tuple(numbers(index, seed)) for index in range(20) for seed in range(20)}) == 400
    assert all(0 <= number < 1 for number in numbers(0, 0, budget=1000))


# Truncation


def test_top_k_1_is_greedy(lm):
    assert answers(lm, temperature=5.0, top_k=1) == answers(lm)


@pytest.mark.parametrize("top_p", [1e-6, 1e-40, 1e-46, 1e-300])
def test_a_tiny_top_p_is_greedy(lm, top_p):
    assert answers(lm, temperature=5.0, top_p=top_p) == answers(lm)


@pytest.mark.parametrize("top_k", [257, 1000, 10**9])
def test_a_top_k_of_the_whole_vocabulary_is_off(lm, top_k):
    assert answers(lm, temperature=1.0, top_k=top_k) == answers(lm, temperature=1.0)


def test_greedy_and_sampled_rows_share_a_batch(lm):
    greedy, sampled = Sampling(), Sampling(temperature=1.0)
    requests = make_requests(["The sea"] * 4, max_new_tokens=12, seed=5, ignore_eos=True)
    kinds = [greedy, sampled, greedy, sampled]
    mixed = [replace(req, sampling=kind) for req, kind in zip(requests, kinds, strict=True)]
    rows = row_ids(StaticBatchEngine(lm).run(mixed))
    all_greedy = row_ids(StaticBatchEngine(lm).run(requests))
    all_sampled = row_ids(
        StaticBatchEngine(lm).run([replace(req, sampling=sampled) for req in requests])
    )
    assert rows == [all_greedy[0], all_sampled[1], all_greedy[2], all_sampled[3]]


# The distribution

DRAWS = 20_000


def drawn(logits, sampling):
    """How often each token is drawn over evenly random numbers."""
    processors = make_processors(
        RowSettings(sampling, 0, ()), prompt_width=1, device=torch.device("cpu")
    )
    uniform = torch.rand(DRAWS, 1, generator=torch.Generator().manual_seed(0))
    scores = torch.tensor(logits).expand(DRAWS, -1)
    said = torch.zeros(DRAWS, 1, dtype=torch.long)
    return Counter(draw(processors(said, scores), uniform).tolist())


def chi_square(counts, probabilities):
    return sum(
        (counts[token] - DRAWS * probability) ** 2 / (DRAWS * probability)
        for token, probability in enumerate(probabilities)
        if probability
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    rng = random.Random(0)
    logits = [rng.uniform(-2, 2) for _ in range(12)]
    probabilities = (torch.tensor(logits) / temperature).softmax(-1).tolist()
    # 11 degrees of freedom: above 31.3 once in a thousand.
    assert chi_square(drawn(logits, Sampling(temperature)), probabilities) < 31.3


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(1.0, top_k=2), [0.5, 0.0, 0.25, 0.0]),
        (Sampling(1.0, top_p=0.6), [0.5, 0.0, 0.25, 0.0]),
        (Sampling(1.0, top_p=0.49), [0.5, 0.0, 0.0, 0.0]),
        # Top-p is a share of what top-k left: 0.5 of 0.75 is already 0.667.
        (Sampling(1.0, top_k=2, top_p=0.6), [0.5, 0.0, 0.0, 0.0]),
        (Sampling(1.0, top_p=0.8), [0.5, 0.15, 0.25, 0.0]),
        # Min-p is a share of the likeliest: 0.25 of 0.5 is 0.125.
        (Sampling(1.0, min_p=0.25), [0.5, 0.15, 0.25, 0.0]),
        (Sampling(1.0, min_p=1.0), [0.5, 0.0, 0.0, 0.0]),
        (Sampling(1.0, top_k=3, min_p=0.4), [0.5, 0.0, 0.25, 0.0]),
        (Sampling(1.0), [0.5, 0.15, 0.25, 0.1]),
    ],
)
def test_truncation_keeps_the_likeliest_and_rescales(sampling, kept):
    logits = torch.tensor([0.5, 0.15, 0.25, 0.1]).log().tolist()
    counts = drawn(logits, sampling)
    assert set(counts) == {token for token, probability in enumerate(kept) if probability}
    # 3 degrees of freedom: above 16.3 once in a thousand.
    assert chi_square(counts, [probability / sum(kept) for probability in kept]) < 16.3


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
def test_a_draw_never_falls_on_a_token_without_probability(uniform):
    impossible = [-math.inf] * 3
    for width in (1, 3, 50_000):
        scores = torch.tensor([[*impossible, *[0.1] * width, *impossible]])
        [token] = draw(scores, torch.tensor([[uniform]])).tolist()
        assert 3 <= token < 3 + width


# Penalty, least tokens and end ids


@pytest.mark.parametrize("min_p", [-0.1, 1.1, float("nan"), "much", None])
def test_any_other_min_p_is_refused(min_p):
    with pytest.raises(RequestError, match="Min-p must be"):
        make_requests(["a"], min_p=min_p)


@pytest.mark.parametrize("penalty", [0, 0.09, 10.1, -1, float("inf"), "high", None])
def test_any_other_repetition_penalty_is_refused(penalty):
    with pytest.raises(RequestError, match="repetition penalty must be"):
        make_requests(["a"], repetition_penalty=penalty)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("temperature", [0, 1e-300, 1.0, 1e300])
def test_the_strongest_penalties_stay_finite(lm, penalty, temperature):
    made = answers(lm, temperature=temperature, repetition_penalty=penalty)
    assert [len(row) for row in made] == [16, 16]


def test_a_penalty_lets_no_row_repeat_itself_where_greedy_would():
    lm = scripted_lm([[65, 66]])
    assert answers(lm, ["x"])[0][1:] == [66] * 15
    [row] = answers(lm, ["x"], repetition_penalty=10.0, max_new_tokens=2)
    assert row == [65, 66]
    # The scripted token has a logit of 10 and all others 0: divided by 10 it is still ahead.
    lm.model.poison = lambda column, logits: logits.where(logits > 0, 2.0)
    [row] = answers(lm, ["x"], repetition_penalty=10.0, max_new_tokens=3)
    assert row[:2] == [65, 66]
    assert row[2] not in (65, 66, token_ids("x")[0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_pads_are_no_repetition(side):
    # The scripted row is the same whether the pad's id was penalised or not only if it was not.
    lm = scripted_lm([[EOS]])
    lm.model.poison = lambda column, logits: logits.where(logits > 0, 2.0)
    engine = StaticBatchEngine(lm, padding_side=side)
    assert lm.pad_id == EOS
    options = {"max_new_tokens": 1, "repetition_penalty": 10.0}
    assert row_ids(engine.run(make_requests(["a", "a long one"], **options))) == [[EOS], [EOS]]


def test_rows_with_settings_of_their_own_share_a_batch(lm):
    kinds = [
        Sampling(),
        Sampling(repetition_penalty=3.0),
        Sampling(temperature=1.0, min_p=0.2),
        Sampling(temperature=1.0, top_k=5, repetition_penalty=1.5),
    ]
    requests = [
        replace(request, sampling=kind, min_new_tokens=index)
        for index, (request, kind) in enumerate(
            zip(make_requests(["The sea", "a", "b" * 9, "The sea"], seed=5), kinds, strict=True)
        )
    ]
    together = row_ids(StaticBatchEngine(lm).run(requests))
    assert together == row_ids(SerialEngine(lm).run(requests))


def test_a21_no_end_id_ends_a_row_before_its_least_tokens():
    lm = scripted_lm([[9, 9, 9, 9, 9, 9, 9]], eos_token_id=[7, 9])
    options = {"max_new_tokens": 20, "ignore_eos": False}
    assert answers(lm, ["a"], **options) == [[9]]
    lm.model.poison = lambda column, logits: logits.index_fill(-1, torch.tensor([7]), 9.0)
    [row] = answers(lm, ["a"], min_new_tokens=5, **options)
    assert len(row) == 6
    assert row[-1] == 9
    assert not {7, 9, EOS} & set(row[:-1])


@pytest.mark.parametrize("temperature", [1e38, 1e39, 1e300])
def test_a18_a_huge_temperature_never_picks_what_is_blocked(temperature):
    lm = scripted_lm([[0]], eos_token_id=[0])
    lm.model.poison = lambda column, logits: logits.where(logits > 0, -float("inf")).index_fill(
        -1, torch.tensor([7, 9]), 0.0
    )
    for seed in range(20):
        options = {"temperature": temperature, "min_new_tokens": 3, "ignore_eos": False}
        [row] = answers(lm, ["a"], seed=seed, max_new_tokens=3, **options)
        assert set(row) <= {7, 9}


def test_least_tokens_that_do_not_fit_a_budget_are_refused():
    with pytest.raises(RequestError, match="Prompt 2: at least 5 new tokens do not fit"):
        make_requests(["a", "b"], max_new_tokens=[9, 4], min_new_tokens=5)
    with pytest.raises(RequestError, match="must be 0 or more, not -1"):
        make_requests(["a"], min_new_tokens=-1)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.5},
        {"min_new_tokens": 6},
        {"repetition_penalty": 3.0, "min_new_tokens": 9},
    ],
)
def test_penalty_and_least_tokens_equal_generate(options):
    lm = tiny_lm("qwen3")
    lm.model.generation_config.eos_token_id = [*range(0, 250, 9)]
    prompts = ["The sea", "a", "The quick brown fox jumps over the lazy dog"]
    requests = make_requests(prompts, max_new_tokens=12, **options)
    made = row_ids(StaticBatchEngine(lm).run(requests))
    for prompt, row in zip(prompts, made, strict=True):
        ids = torch.tensor([token_ids(prompt)])
        out = lm.model.generate(ids, max_new_tokens=12, do_sample=False, **options)
        assert row == out[0, ids.shape[1] :].tolist()
    assert made != row_ids(StaticBatchEngine(lm).run(make_requests(prompts, max_new_tokens=12)))

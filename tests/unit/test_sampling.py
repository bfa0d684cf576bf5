"""Greedy and sampled picks: reproducible, row by row, and from the right distribution."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch

from engine.errors import RequestError
from engine.requests import make_requests
from engine.run import Request, Sampling
from engine.sampling import Sampler, row_uniforms
from engine.static import StaticBatchEngine
from tests.tiny import row_ids, scripted_lm, tiny_lm

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
    sampler = Sampler([Request(0, "a", 1, sampling)], torch.device("cpu"))
    uniform = torch.rand(DRAWS, 1, generator=torch.Generator().manual_seed(0))
    return Counter(sampler.draw(torch.tensor(logits).expand(DRAWS, -1), uniform).tolist())


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
        (Sampling(1.0, top_p=0.8), [0.5, 0.125, 0.25, 0.0]),
        (Sampling(1.0), [0.5, 0.125, 0.25, 0.125]),
    ],
)
def test_truncation_keeps_the_likeliest_and_rescales(sampling, kept):
    logits = torch.tensor([0.5, 0.125, 0.25, 0.125]).log().tolist()
    counts = drawn(logits, sampling)
    assert set(counts) == {token for token, probability in enumerate(kept) if probability}
    # 3 degrees of freedom: above 16.3 once in a thousand.
    assert chi_square(counts, [probability / sum(kept) for probability in kept]) < 16.3

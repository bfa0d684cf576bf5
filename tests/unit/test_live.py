"""For how long a lent GPU is asked for, on paper."""

import pytest

from engine.live import gpu_seconds
from engine.requests import make_requests


@pytest.mark.parametrize(
    ("budgets", "batch_size", "seconds"),
    [
        ([20], 1, 15 + 1),
        ([15, 10, 20, 12], 4, 15 + 1),  # the longest row of the batch: 20 steps
        ([15, 10, 20, 12], 1, 15 + 2),  # 57 steps one after another
        ([100, 40, 60, 400, 20], 2, 15 + 26),  # 100 + 400 + 20
        ([512] * 64, 32, 15 + 51),
        ([512] * 64, 8, 120),  # no more than that
    ],
)
def test_a_gpu_is_asked_for_as_long_as_the_budgets_may_take(budgets, batch_size, seconds):
    requests = make_requests(["x"] * len(budgets), max_new_tokens=budgets)
    assert gpu_seconds(None, requests, None, batch_size=batch_size) == seconds

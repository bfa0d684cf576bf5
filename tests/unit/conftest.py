"""What holds around every unit test."""

import pytest
import torch

from engine.turns import turns_on

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _device_is_given_back():
    """Whatever a test did to its runs, the device is free afterwards."""
    yield
    assert len(turns_on("cpu")) == 0

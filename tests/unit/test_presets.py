"""Presets by their key, and within a host's limits."""

import pytest

from engine.errors import RequestError
from engine.presets import PRESETS, find_preset
from engine.requests import Limits


def test_a_preset_is_found_by_its_key():
    assert [find_preset(preset.key) for preset in PRESETS] == list(PRESETS)


@pytest.mark.parametrize("key", ["", "nowhere", None, ["tutorial"], 7])
def test_a_key_of_no_preset_is_refused_in_words(key):
    with pytest.raises(RequestError) as refused:
        find_preset(key)
    assert str(refused.value) == f"There is no preset {key!r}."


def test_within_limits_a_preset_keeps_what_they_allow():
    straggler = find_preset("straggler")
    assert straggler.within(Limits()) == straggler
    cut = straggler.within(Limits(prompts=4, new_tokens=20, batch_size=3))
    assert cut.prompts == straggler.prompts[:4]
    assert cut.budgets == (16, 16, 16, 20)
    assert cut.batch_size == 3

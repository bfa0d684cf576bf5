"""Shared by all tests: the default model once, and no telemetry."""

import os

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import pytest


@pytest.fixture(scope="session")
def default_lm():
    """The embedded default model in float32, fetched on the first use on a machine."""
    from engine.models import load_model

    return load_model(dtype="float32", device="cpu")

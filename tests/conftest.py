"""Shared by all tests: the default model once, no telemetry, and ports of its own for each
worker."""

import os

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
os.environ["GRADIO_SERVER_PORT"] = str(7860 + 100 * worker)

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def default_lm():
    """The embedded default model in float32, fetched on the first use on a machine."""
    from engine.models import load_model

    return load_model(dtype="float32", device="cpu")

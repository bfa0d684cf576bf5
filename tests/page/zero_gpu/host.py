"""A Space on ZeroGPU: `app.demo` as it is, with the stand-in for `spaces` and a scripted model."""

import engine.live  # first of all, as in app.py: it brings `spaces`, and torch comes after it

# isort: split
from engine import models
from tests.tiny import EOS, scripted_lm, token_ids

HELLO = token_ids("hello brave new world, and then some more of it")


def load_scripted(name: str, **_: object) -> models.LanguageModel:
    """Not the real default model, but one that notes each forward, in whichever process."""
    import spaces

    return scripted_lm(
        [HELLO, [*HELLO[:4], EOS]],
        seconds=0.03,
        max_positions=100,
        before_forward=lambda column: spaces.note(f"forward {column}"),
    )


if __name__ == "__main__":
    assert engine.live.ON_ZERO_GPU
    models.load_model = load_scripted
    import app

    _, url, _ = app.demo.launch(prevent_thread_lock=True, quiet=True)
    print(url, flush=True)
    app.demo.block_thread()

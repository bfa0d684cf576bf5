"""Runs under way, for the tests of streams, turns and the KV cache."""

from contextlib import closing

from engine.models import LanguageModel
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import token_ids

A, B = token_ids("AB")
PATIENCE = 30
"""Seconds after which a thread that should have ended counts as stuck."""


def stream_of(lm, prompts=("one", "three"), *, batch_size=8, **options):
    options = {"max_new_tokens": 10} | options
    return StaticBatchEngine(lm, batch_size=batch_size).stream(make_requests(prompts, **options))


def works(lm):
    """Whether a run on this model still comes to its end."""
    with closing(stream_of(lm, max_new_tokens=3)) as stream:
        return len(list(stream)) == 3 and stream.record().status == "done"


class FailingOnce:
    """A `before_forward` that raises at one forward of the first run only."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def __call__(self, column):
        if self.error and column == self.at:
            error, self.error = self.error, None
            raise error


def kept_caches(monkeypatch):
    """Every cache that a LanguageModel makes from now on."""
    caches = []
    new_cache = LanguageModel.new_cache

    def keep(lm):
        caches.append(new_cache(lm))
        return caches[-1]

    monkeypatch.setattr(LanguageModel, "new_cache", keep)
    return caches

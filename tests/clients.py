"""A page with OpenAI's endpoints, and OpenAI's own clients of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

from openai import OpenAI

from engine.openai.api import mounted
from engine.openai.server import Server, Serving
from engine.requests import Limits
from tests.serving import served_shelf, shelf_of, wait_for
from tests.tiny import byte_tokenizer


class Served:
    """A page with OpenAI's endpoints: its address, what collects its calls, and clients of it."""

    def __init__(self, url, server):
        self.url = url
        self.server = server

    def client(self, key="none", **options):
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30, **options)

    def batches(self, name="scripted"):
        """How many rows each batch had, once nothing runs or waits."""
        here = self.server.collectors[name]
        wait_for(lambda: here.current is None and here.waiting == 0)
        return [[len(batch.requests) for batch in served.run.batches] for served in here.recent]


@contextmanager
def served(*lms, shelf=None, limits=None, **serving):
    shelf = shelf or shelf_of(*lms)
    server = Server(shelf, limits or Limits(), Serving(**{"window": 0.02} | serving))
    with served_shelf(shelf, limits=limits, beside=[mounted(server)]) as url:
        yield Served(url, server)


def chatting(lm):
    return replace(lm, tokenizer=byte_tokenizer(chat=True))


def has_left(collector):
    """Whether the client of a first row, under way or over, is known to have left."""
    batches = [*collector.recent, collector.current]
    return any(batch.left[0] is not None for batch in batches if batch)

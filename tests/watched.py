"""A page with OpenAI's endpoints, its Watch tab and its metrics, and who calls and scrapes it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import pairwise

import httpx
from prometheus_client.parser import text_string_to_metric_families

from engine.openai.api import mounted
from engine.openai.server import Server, Serving
from engine.prometheus import Metrics
from engine.requests import Limits
from tests.clients import Served
from tests.serving import served_shelf, shelf_of, wait_for
from tests.shown import applied
from viz.watch.feed import Watch


class Watched(Served):
    """Such a page; `watch` is what its tab is told by."""

    def __init__(self, url, server, watch):
        super().__init__(url, server)
        self.watch = watch

    def samples(self):
        """What is scraped: {(name, label values in the order of their names): value}."""
        text = httpx.get(f"{self.url}/metrics").raise_for_status().text
        return samples(text)

    def wait_for_runs(self, count):
        """Until so many runs have been counted."""
        wait_for(lambda: total(self.samples(), "batchscope:runs_total") == count)

    @contextmanager
    def told(self, **asked):
        """The states that a watcher is told, one after another, and all that comes as text."""
        asked = {"timeout": 20, **asked}
        with httpx.stream("GET", f"{self.url}/watch/events", **asked) as answer:
            answer.raise_for_status()
            heard = Heard()
            yield heard.states(answer.iter_lines()), heard


class Heard:
    """What came on the wire."""

    def __init__(self):
        self.lines = []
        self.kinds = []

    def states(self, lines):
        state = None
        for before, line in pairwise(self._kept(lines)):
            if line.startswith("data: "):
                data, kind = json.loads(line[6:]), before.removeprefix("event: ")
                self.kinds.append(kind)
                state = data if kind == "whole" else applied(state, data)
                yield state

    def _kept(self, lines):
        for line in lines:
            self.lines.append(line)
            yield line


def samples(text):
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples, name):
    return sum(value for (found, *_), value in samples.items() if found == name)


@contextmanager
def watched(*lms, texts=False, log_prompts=False, limits=None, **serving):
    shelf = shelf_of(*lms)
    metrics = Metrics(shelf.names)
    server = Server(
        shelf,
        limits or Limits(),
        Serving(**{"window": 0.02} | serving),
        report=metrics.count_served,
        show_prompts=texts,
        log_prompts=log_prompts,
    )
    metrics.follow_server(server)
    watch = Watch(
        server.collectors.get,
        shelf.names,
        texts=texts,
        asks_for_key=server.serving.key is not None,
    )
    beside = [mounted(server)]
    with served_shelf(shelf, limits=limits, beside=beside, watch=watch, metrics=metrics) as url:
        yield Watched(url, server, watch)

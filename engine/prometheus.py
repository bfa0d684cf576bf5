"""What Prometheus scrapes at /metrics: counted from the records of what is over, read live else.

The names follow those of vLLM, with the words of a static batch beside them. Page runs and the
batches of OpenAI's endpoints are counted by one function, `Metrics.count`, from the same `Run` that
is drawn and saved. Comparisons and sweeps measure the machine and serve nobody: they are counted as
measurements, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.comparison import Comparison
from engine.metrics import Row, rows
from engine.run import Batch, End, KVBytes, Run, Status
from engine.served import Served

if TYPE_CHECKING:
    from engine.host import Host, Record
    from engine.openai.server import Server

PREFIX = "batchscope:"
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
EIGHTHS = tuple(eighth / 8 for eighth in range(1, 9))


class Counted(NamedTuple):
    """A counter: what it says, the labels that it has besides the model, and all their values."""

    told: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ((),)


COUNTERS = {
    "runs": Counted(
        "Runs of the page and collected batches that are over.",
        ("status",),
        tuple((status,) for status in get_args(Status) if status != "running"),
    ),
    "batches": Counted("Static batches whose prefill was over."),
    "prompt_tokens": Counted("Prompt tokens that were prefilled."),
    "generation_tokens": Counted("Tokens that were generated."),
    "request_success": Counted(
        "Requests that are over, by how they ended; cancelled and error had no end of their own "
        "when their run was stopped or failed.",
        ("finished_reason",),
        tuple((end,) for end in get_args(End)),
    ),
    "clients_left": Counted("Requests whose client left before their end."),
    "slots": Counted(
        "Slots that forwards were spent on: B * S of the prefill, prompt tokens (active) or pads "
        "(padded); B * T of the columns, new tokens (active) or nothing after a row's end (idle).",
        ("of", "state"),
        (("prompt", "active"), ("prompt", "padded"), ("column", "active"), ("column", "idle")),
    ),
}
HISTOGRAMS = {
    "batch_rows": ("Rows of a batch.", ROWS),
    "batch_fill": ("Rows of a batch over its batch size.", EIGHTHS),
    "request_prompt_tokens": ("Prompt tokens of a request.", TOKENS),
    "request_generation_tokens": ("Tokens generated for a request.", TOKENS),
    "request_queue_time_seconds": ("From a request's arrival to the start of its batch.", SECONDS),
    "time_to_first_token_seconds": (
        "From a request's arrival to its first token: the page's TTFT, and the wait before it.",
        SECONDS,
    ),
    "request_time_per_output_token_seconds": (
        "From first to last token, over the tokens after the first; n/a with one token.",
        SECONDS,
    ),
    "e2e_request_latency_seconds": (
        "From a request's arrival to its last token, where it came to an end of its own.",
        SECONDS,
    ),
}


class Now(NamedTuple):
    """The rows of a run at this moment: those that a forward works for, those that have ended and
    keep their slot, those that wait for a batch; and what the cache holds."""

    running: int = 0
    idle: int = 0
    waiting: int = 0
    kv_bytes: KVBytes = KVBytes(0, 0, 0)


def now(run: Run) -> Now:
    """How a run stands after its newest forward."""
    if run.status != "running":
        return Now()
    waiting = sum(len(batch.requests) for batch in run.batches if batch.started is None)
    started = [batch for batch in run.batches if batch.started is not None]
    if not started:
        return Now(waiting=waiting)
    newest = run.steps[-1] if run.steps else None
    if newest is None or newest.batch != started[-1].index:  # its prefill is under way
        return Now(running=len(started[-1].requests), waiting=waiting)
    outcomes = zip(newest.tokens, newest.ends, strict=True)
    running = sum(token is not None and end is None for token, end in outcomes)
    return Now(running, len(newest.tokens) - running, waiting, newest.kv_bytes)


class Slots(NamedTuple):
    """The slots of a batch that forwards were spent on, in the order of the labels."""

    prompt_active: int
    prompt_padded: int
    column_active: int
    column_idle: int


def slots(run: Run, batch: Batch) -> Slots | None:
    """None before the prefill was over."""
    steps = [step for step in run.steps if step.batch == batch.index]
    if not steps:
        return None
    read, made = sum(batch.prompt_lengths), sum(step.active_rows for step in steps)
    size = len(batch.requests)
    return Slots(read, batch.padded_length * size - read, made, len(steps) * size - made)


class Metrics:
    """The counters of a host, in a registry of their own, and the route that shows them.

    Labels have few values: a model is one that the host offers, and the others are words of the
    record. Whoever reaches the page may read them: they tell how much ran, never what.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._models = tuple(models)
        self._sources: list[Callable[[], Iterable[tuple[str, Now]]]] = []
        self._registry = registry = CollectorRegistry()
        self._counters = {
            name: Counter(PREFIX + name, told, ["model_name", *labels], registry=registry)
            for name, (told, labels, _) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(PREFIX + name, told, ["model_name"], registry=registry, buckets=buckets)
            for name, (told, buckets) in HISTOGRAMS.items()
        }
        told = "Runs, comparisons and sweeps that their visitor left; counted nowhere else."
        self._visitors_left = Counter(f"{PREFIX}visitors_left", told, registry=registry)
        told = "Comparisons and sweeps; what they ran is counted nowhere else."
        self._measurements = Counter(f"{PREFIX}measurements", told, ["kind"], registry=registry)
        self._begin_with_zeros()
        ProcessCollector(registry=registry)
        registry.register(self)

    @property
    def route(self) -> Route:
        return Route("/metrics", self._scrape, methods=["GET"])

    def follow_page(self, host: Host) -> None:
        """Read live what the page's visitors run."""

        def read() -> Iterator[tuple[str, Now]]:
            for run in host.under_way:
                yield run.model.name, now(run)
            for model, waiting in host.waiting.items():
                yield model, Now(waiting=waiting)

        self._sources.append(read)

    def follow_server(self, server: Server) -> None:
        """Read live what OpenAI's endpoints collect."""

        def read() -> Iterator[tuple[str, Now]]:
            for model, collector in list(server.collectors.items()):
                yield model, Now(waiting=collector.waiting)
                yield from zip(repeat(model), (now(each.run) for each in collector.under_way))

        self._sources.append(read)

    def count_record(self, record: Record | None) -> None:
        """Count what a visitor of the page had run; None is one that the visitor left."""
        if isinstance(record, Run):
            self.count(record, lambda row: record.queued_seconds + row.waited)
        elif record is None:
            self._visitors_left.inc()
        else:
            kind = "comparison" if isinstance(record, Comparison) else "sweep"
            self._measurements.labels(kind).inc()

    def count_served(self, served: Served) -> None:
        """Count a collected batch."""
        self.count(served.run, lambda row: served.queued[row.request])
        stayed = served.left.count(None)
        self._add("clients_left", served.run.model.name, len(served.left) - stayed)

    def count(self, run: Run, waited: Callable[[Row], float]) -> None:
        """Count a run that is over; `waited` is how long a row that has run waited for its batch,
        in seconds."""
        model = run.model.name
        self._add("runs", model, 1, run.status)
        for batch in run.batches:
            if spent := slots(run, batch):
                self._count_batch(model, spent, len(batch.requests), run.settings.batch_size)
        for row in rows(run):
            self._add("request_success", model, 1, row.end)
            if row.generated:
                self._count_row(model, row, waited(row))

    def _count_batch(self, model: str, spent: Slots, rows: int, batch_size: int) -> None:
        self._add("batches", model, 1)
        self._add("prompt_tokens", model, spent.prompt_active)
        self._add("generation_tokens", model, spent.column_active)
        for labels, count in zip(COUNTERS["slots"].values, spent, strict=True):
            self._add("slots", model, count, *labels)
        self._see("batch_rows", model, rows)
        self._see("batch_fill", model, rows / batch_size)

    def _count_row(self, model: str, row: Row, waited: float) -> None:
        self._see("request_prompt_tokens", model, row.prompt_tokens)
        self._see("request_generation_tokens", model, row.generated)
        self._see("request_queue_time_seconds", model, waited)
        self._see("time_to_first_token_seconds", model, waited + row.ttft)
        if row.tpot is not None:
            self._see("request_time_per_output_token_seconds", model, row.tpot)
        if row.end not in ("cancelled", "error"):
            latency = waited + row.last_token_at - row.batch.started
            self._see("e2e_request_latency_seconds", model, latency)

    def _add(self, name: str, model: str, count: int, *labels: str) -> None:
        self._counters[name].labels(model, *labels).inc(count)

    def _see(self, name: str, model: str, value: float) -> None:
        self._histograms[name].labels(model).observe(value)

    def _begin_with_zeros(self) -> None:
        """A series that began with its first event would hide it from rates."""
        for model in self._models:
            for name, (_, _, values) in COUNTERS.items():
                for labels in values:
                    self._add(name, model, 0, *labels)
            for histogram in self._histograms.values():
                histogram.labels(model)
        for kind in ("comparison", "sweep"):
            self._measurements.labels(kind)

    def collect(self) -> Iterator[Metric]:
        """The gauges as they stand; the registry calls it for each scrape."""
        running = _gauge("num_requests_running", "Requests that a forward works for.")
        idle = _gauge("num_slots_idle", "Rows that have ended and keep their slot in a batch.")
        waiting = _gauge("num_requests_waiting", "Requests whose batch has not begun.")
        cache = _gauge("kv_cache_bytes", "Bytes of the KV cache, by what holds them.", "held_by")
        seen = [each for read in self._sources for each in read()]
        for model in self._models:
            standing = [at for name, at in seen if name == model]
            running.add_metric([model], sum(at.running for at in standing))
            idle.add_metric([model], sum(at.idle for at in standing))
            waiting.add_metric([model], sum(at.waiting for at in standing))
            for holder in ("live", "padding", "dead"):
                held = sum(getattr(at.kv_bytes, holder) for at in standing)
                cache.add_metric([model, holder], held)
        yield from (running, idle, waiting, cache)

    async def _scrape(self, _: Request) -> Response:
        """Always as plain text: in OpenMetrics the library takes the colon out of the names."""
        text = await run_in_threadpool(generate_latest, self._registry)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _gauge(name: str, told: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, told, labels=["model_name", *labels])

"""/metrics beside the page: its counters are the sums over the records that were saved."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
from gradio_client import Client

from engine import runfile
from tests.clients import has_left
from tests.serving import Visitor, rows_of, served, wait_for
from tests.tiny import EOS, scripted_lm, token_ids
from tests.watched import samples, total, watched

ROOT = Path(__file__).parents[2]
MODEL = "scripted"
TEXT = token_ids("hello brave new world, and then some more of it")
SCRIPT = [TEXT, [*TEXT[:4], EOS]]
NEVER = 10**6


class Model:
    """What the model does at a forward of a test: waits, or breaks."""

    def __init__(self):
        self.breaks_at = NEVER
        self.lm = scripted_lm(SCRIPT, seconds=0.01, before_forward=self)

    def __call__(self, column):
        if column == self.breaks_at:
            raise ValueError("broken")


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.fixture(scope="module")
def here(model):
    with watched(model.lm, batch_size=4) as here:
        yield here


def sums(records):
    """What the counters must say, out of the JSON of saved runs alone."""
    found = Counter()
    for record in records:
        found["runs_total", MODEL, record["status"]] += 1
        ends = Counter(end for step in record["steps"] for end in step["ends"] if end)
        missing = {"stopped": "cancelled", "error": "error"}.get(record["status"])
        if missing:
            ends[missing] += len(record["requests"]) - ends.total()
        for end, count in ends.items():
            found["request_success_total", end, MODEL] += count
        for index, batch in enumerate(record["batches"]):
            tokens = [step["tokens"] for step in record["steps"] if step["batch"] == index]
            if not tokens:
                continue
            lengths = [len(ids) for ids in batch["prompt_ids"]]
            made = [token for row in tokens for token in row if token is not None]
            every = sum(map(len, tokens))
            rectangle = len(lengths) * max(lengths)
            found["batches_total", MODEL] += 1
            found["prompt_tokens_total", MODEL] += sum(lengths)
            found["generation_tokens_total", MODEL] += len(made)
            found["slots_total", MODEL, "prompt", "active"] += sum(lengths)
            found["slots_total", MODEL, "prompt", "padded"] += rectangle - sum(lengths)
            found["slots_total", MODEL, "column", "active"] += len(made)
            found["slots_total", MODEL, "column", "idle"] += every - len(made)
            found["batch_rows_count", MODEL] += 1
            found["batch_rows_sum", MODEL] += len(lengths)
            found["request_prompt_tokens_sum", MODEL] += sum(lengths)
            found["request_prompt_tokens_count", MODEL] += len(lengths)
            found["request_generation_tokens_sum", MODEL] += len(made)
            found["request_queue_time_seconds_count", MODEL] += len(lengths)
            found["time_to_first_token_seconds_count", MODEL] += len(lengths)
        own = sum(ends[end] for end in ("eos", "length", "stop"))
        found["e2e_request_latency_seconds_count", MODEL] += own
    return {(f"batchscope:{name}", *rest): value for (name, *rest), value in found.items() if value}


def test_counters_are_the_sums_over_the_saved_records(model, here):
    client = Client(here.url, verbose=False)
    three, budgets = ["Hi", "Ho, who is there?", "x"], [9, 20, 3]
    saved = [client.predict(three, max_new_tokens=budgets, batch_size=2, api_name="/run")]
    job = client.submit(["long", "longer"], max_new_tokens=400, api_name="/run")
    seen = len(model.lm.model.calls)
    wait_for(lambda: len(model.lm.model.calls) > seen + 2)
    client.predict(api_name="/stop")
    saved.append(job.result())
    model.breaks_at = 6
    saved.append(client.predict(["Hi", "Ho"], max_new_tokens=9, api_name="/run"))
    asked = here.client().completions.create
    with pytest.raises(Exception, match="ValueError"):
        asked(model=MODEL, prompt=["Hi", "you"], max_tokens=9, temperature=0)
    model.breaks_at = NEVER
    asked(model=MODEL, prompt=["Hi", "Ho there", "x"], max_tokens=9, temperature=0)
    asked(model=MODEL, prompt=["a", "bb", "ccc", "d", "e", "f"], max_tokens=3, temperature=0)
    assert [record["status"] for record in saved] == ["done", "stopped", "error"]
    here.wait_for_runs(6)
    batches = here.server.collectors[MODEL].recent
    saved += [json.loads(runfile.dumps(served.run)) for served in batches]
    expected = sums(saved)
    found = here.samples()
    assert len(expected) > 20
    assert {name: found[name] for name in expected} == expected
    counters = {name for name in found if name[0].endswith("_total")} - set(expected)
    assert {name for name in counters if name[0].startswith("batchscope:") and found[name]} == set()
    waited = sum(sum(served.waited) for served in batches if served.run.status == "done")
    assert found["batchscope:request_queue_time_seconds_sum", MODEL] >= waited


def test_who_leaves_is_counted_once_and_the_gauges_go_back_to_nothing(here, model):
    before = here.samples()
    asked = {"model": MODEL, "temperature": 0, "stream": True}
    leaving = here.client().completions.create(prompt="Hi", max_tokens=400, **asked)
    next(leaving)
    wait_for(lambda: here.samples()["batchscope:num_requests_running", MODEL] == 1)
    assert here.samples()["batchscope:kv_cache_bytes", "live", MODEL] > 0
    leaving.close()
    collector = here.server.collectors[MODEL]
    wait_for(lambda: has_left(collector))
    here.wait_for_runs(total(before, "batchscope:runs_total") + 1)
    found = here.samples()
    left = ("batchscope:clients_left_total", MODEL)
    assert found[left] == before[left] + 1
    stopped = ("batchscope:runs_total", MODEL, "stopped")
    assert found[stopped] == before[stopped] + 1
    for name in ("num_requests_running", "num_slots_idle", "num_requests_waiting"):
        assert found[f"batchscope:{name}", MODEL] == 0


def test_a_run_whose_visitor_leaves_is_counted_once(here):
    """Apart, unless it comes to its end before its last frame would have been drawn."""
    before = here.samples()
    visitor = Visitor(here.url)
    visitor.join(rows_of(["Hi"], 400), MODEL)
    with visitor.messages() as messages:
        shown = (message for message, _ in messages if message["msg"] == "process_generating")
        next(shown)  # "Starting."
        next(shown)  # its picture: the run is under way
    counted = ("batchscope:visitors_left_total", "batchscope:runs_total")

    def more():
        now = here.samples()
        return sum(total(now, name) - total(before, name) for name in counted)

    wait_for(lambda: more() > 0)
    wait_for(lambda: not here.samples()["batchscope:num_requests_running", MODEL])
    assert more() == 1


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", "*/*"])
def test_what_is_scraped_is_plain_text_for_get_and_head_alone(here, accept):
    address = f"{here.url}/metrics"
    answer = httpx.get(address, headers={"accept": accept})
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert samples(answer.text)
    assert httpx.head(address).status_code == 200
    for method in ("POST", "PUT", "DELETE"):
        assert httpx.request(method, address).status_code == 405


def test_names_keep_their_colon_whatever_is_asked_for(here):
    """In OpenMetrics, which Prometheus would rather have, they lose it."""
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = httpx.get(f"{here.url}/metrics", headers={"accept": accept})
    assert ("batchscope:runs_total", MODEL, "done") in samples(answer.text)


def test_labels_are_the_hosts_models_and_words_of_the_record(here):
    with pytest.raises(Exception, match="not"):
        here.client().completions.create(model="no-such-model", prompt="x")
    told = [name[1:] for name in here.samples() if name[0].startswith("batchscope:")]
    words = {word for labels in told for word in labels if not word.replace(".", "").isdecimal()}
    assert words - {MODEL, "+Inf"} <= {
        *("done", "stopped", "error", "eos", "length", "stop", "cancelled"),
        *("prompt", "column", "active", "padded", "idle", "live", "padding", "dead"),
        *("comparison", "sweep"),
    }


def test_without_the_flag_there_is_no_such_address():
    with served(scripted_lm(SCRIPT)) as url:
        answer = httpx.get(f"{url}/metrics")
    assert "batchscope:" not in answer.text
    assert answer.status_code == 404


IMPORTED = """
import sys
import app
from engine.options import page_options

def page(*flags):
    options = page_options(flags)
    metrics = app.metrics_of(app.shelf, options)
    server = app.openai_server(app.shelf, options, metrics)
    watch = app.watch_of(server, options)
    beside = app.openai_endpoints(server)
    demo = app.build_demo(app.shelf, watch=watch, metrics=metrics, beside=beside)
    tabs = [block.label for block in demo.blocks.values() if type(block).__name__ == "Tab"]
    paths = sorted(route.path for route in demo._beside)
    loaded = [name for name in ("prometheus_client", "viz.watch", "torch") if name in sys.modules]
    return "Watch" in tabs, paths, loaded

assert page() == (False, [], []), page()
sys.modules["prometheus_client"] = None
try:
    page("--metrics")
except SystemExit as left:
    assert left.code == "--metrics needs prometheus_client: pip install prometheus-client"
else:
    raise AssertionError("it was not missed")
del sys.modules["prometheus_client"]
seen = page("--metrics")
assert seen == (False, ["/metrics"], ["prometheus_client"]), seen
seen = page("--openai")
assert seen == (True, ["/v1", "/watch"], ["prometheus_client", "viz.watch"]), seen
assert page("--openai", "--metrics", "--watch-texts")[:2] == (True, ["/metrics", "/v1", "/watch"])
"""


def test_each_flag_brings_its_own_and_nothing_else():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr

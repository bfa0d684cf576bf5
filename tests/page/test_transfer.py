"""What travels between the page and a browser: how much, compressed for whom, kept for how long."""

import json
import re
from contextlib import closing

import httpx
import pytest
from gradio.utils import diff

from engine import StaticBatchEngine
from engine.requests import make_requests
from engine.run import until
from tests.serving import Visitor, rows_of, served
from tests.tiny import scripted_lm, token_ids
from viz.assets import PLOTLY_JS, PLOTLY_VERSION
from viz.page.transfer import KEEP, may_be_kept
from viz.stage.packed import PACKED, packed, unpacked
from viz.stage.state import StageWriter, stage_state

PLOTLY = f"/gradio_api/file={PLOTLY_JS}"


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([token_ids("hello")])) as url:
        yield url


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", f"{PLOTLY}?{PLOTLY_VERSION}"])
@pytest.mark.parametrize("wanted", ["gzip", "identity"])
def test_texts_are_compressed_for_who_takes_it(url, path, wanted):
    with httpx.stream("GET", url + path, headers={"accept-encoding": wanted}) as answer:
        sent = sum(map(len, answer.iter_raw()))
    whole = len(httpx.get(url + path, headers={"accept-encoding": "identity"}).content)
    compressed = wanted == "gzip"
    assert ("content-encoding" in answer.headers) is compressed
    assert (sent < whole / 2) if compressed else (sent == whole)


def test_the_stream_of_a_run_is_not_compressed(url):
    visitor = Visitor(url)
    visitor.join(rows_of(["Hi"], 3), "scripted")
    with (
        closing(visitor.http),
        visitor.http.stream(
            "GET",
            "/gradio_api/queue/data",
            params={"session_hash": visitor.session},
            headers={"accept-encoding": "gzip, br"},
        ) as events,
    ):
        assert events.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in events.headers
        assert next(events.iter_raw()).startswith(b"data: ")


def test_files_whose_address_tells_their_content_are_kept(url):
    page = httpx.get(url).text
    scripts = re.findall(r'src="\./(assets/[^"]+\.js)"', page)
    assert scripts
    for path in [*scripts, f"{PLOTLY[1:]}?{PLOTLY_VERSION}"]:
        assert httpx.get(f"{url}/{path}").headers["cache-control"] == KEEP
    assert f"{PLOTLY[1:]}?{PLOTLY_VERSION}" in page


@pytest.mark.parametrize(
    "path", ["/", "/config", PLOTLY, f"{PLOTLY}?v=0", "/assets/index-00000000.js", "/theme.css"]
)
def test_nothing_else_is_kept_unseen(url, path):
    assert "immutable" not in httpx.get(url + path).headers.get("cache-control", "")


def test_the_address_of_a_hashed_file_is_known_behind_a_proxy_too():
    assert may_be_kept({"path": "/talk/assets/index-DphvyggB.js"})
    assert not may_be_kept({"path": "/talk/assets/index.js"})
    assert not may_be_kept({"path": "/gradio_api/file=/assets/index-DphvyggB.js/../x"})


def test_an_update_tells_only_what_changed_and_the_end_nothing_again(url):
    visitor = Visitor(url)
    with served(scripted_lm([token_ids("hello")], seconds=0.05)) as slow:
        visitor = Visitor(slow)
        visitor.join(rows_of(["Hi", "Ho"], 12), "scripted")
        updates = []
        with visitor.messages() as messages:
            for message, _ in messages:
                if message["msg"] == "process_generating":
                    updates.append(message["output"]["data"])
                if message["msg"] == "process_completed":
                    break
    drawn = next(i for i, data in enumerate(updates) if '"add",["logs"]' in told(data[0]))
    middle = updates[drawn + 2 : -1]
    assert middle
    assert all(data[1:] == [[], [], []] for data in middle)
    assert message["output"]["data"] == [{"__type__": "update"}] * 4


def told(value):
    return json.dumps(value, separators=(",", ":"))


def test_an_update_weighs_the_same_at_step_10_and_at_step_2000():
    lm = scripted_lm([token_ids("slot by slot ")])
    requests = make_requests(["Why wait?"] * 32, max_new_tokens=2000, ignore_eos=True)
    run = StaticBatchEngine(lm, batch_size=32).run(requests)
    writer = StageWriter(run, key="k")
    sizes = []
    for step in (10, 1000, 1980):
        before = packed(writer.write(until(run, step)))
        after = packed(writer.write(until(run, step + 10)))
        sizes.append(len(told(diff(before, after))))
    assert max(sizes) < 1.2 * min(sizes), sizes


def test_what_is_packed_is_the_same_again():
    run = StaticBatchEngine(scripted_lm([token_ids("a\u2028\n<b>")])).run(
        make_requests(["one", "<i>🐟"], max_new_tokens=3)
    )
    state = stage_state(run, key="k")
    there = packed(state)
    assert all(isinstance(there[name], str) for name in PACKED)
    assert not any(part in there for parts in PACKED.values() for part in parts)
    assert unpacked(there) == json.loads(json.dumps(state))

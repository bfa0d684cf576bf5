"""The page over HTTP: headers, closed doors, and how much may come in."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from app import build_demo
from engine.runfile import MAX_BYTES
from engine.shelf import ModelShelf
from tests.serving import Visitor, rows_of, served
from tests.tiny import scripted_lm
from viz.assets import PLOTLY_JS
from viz.page.guard import HEADERS, LARGEST_BODY

SECRET = "a secret that nobody may read"


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([[1]])) as url:
        yield url


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", f"/gradio_api/file={PLOTLY_JS}", "/gradio_api/info", "/nowhere"],
)
def test_every_answer_has_the_headers(url, path):
    answer = httpx.get(url + path)
    assert answer.status_code == (404 if path == "/nowhere" else 200)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_the_page_may_be_shown_in_a_frame_as_a_space_is(url):
    answer = httpx.get(url)
    assert "frame-ancestors" not in answer.headers["content-security-policy"]
    assert "x-frame-options" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=http://example.org/",
        "/gradio_api/proxy=https://example.org/",
        "/gradio_api/custom_component/x/client/a%0Ab/c",
        "/gradio_api/deep_link",
        "/gradio_api/runs",
    ],
)
def test_nothing_else_is_served_or_fetched(url, path, capfd):
    answer = httpx.get(url + path)
    assert (answer.status_code, answer.text) == (404, "This page does not offer that.")
    assert capfd.readouterr().out == ""


def test_uploads_are_refused(url):
    answer = httpx.post(f"{url}/gradio_api/upload", files={"files": b"x"})
    assert (answer.status_code, answer.text) == (404, "This page does not offer that.")


def test_monitoring_is_off(url):
    assert httpx.get(f"{url}/monitoring").status_code == 403
    assert httpx.get(f"{url}/monitoring/summary").status_code == 403


def too_much(chunks):
    for _ in range(chunks):
        yield b'"' * 2**20


@pytest.mark.parametrize(
    "path", ["/gradio_api/component_server", "/gradio_api/queue/join", "/gradio_api/run/export"]
)
def test_a_body_without_an_end_is_cut_off(url, path):
    """Without a length, as a stream: it is read up to the limit and no further."""
    json_body = {"content-type": "application/json"}
    chunks = too_much(LARGEST_BODY // 2**20 + 8)
    answer = httpx.post(url + path, content=chunks, headers=json_body, timeout=60)
    assert answer.status_code == 413
    assert answer.text.startswith("This is more than a saved run can be: the limit is ")


def test_a_run_that_is_as_large_as_may_be_saved_still_goes_through(url):
    """It is refused for what it says, not for its size."""
    record = json.dumps({"x": '"' * ((MAX_BYTES - 10) // 2)})
    config = httpx.get(f"{url}/config").json()
    stage = next(
        part["id"]
        for part in config["components"]
        if "open_run" in part["props"].get("server_fns", [])
    )
    question = {"record": record}
    body = {"data": question, "fn_name": "open_run", "component_id": stage, "session_hash": "s"}
    assert len(record) + 10 > MAX_BYTES
    assert len(json.dumps(body)) > 1.9 * MAX_BYTES
    answer = httpx.post(f"{url}/gradio_api/component_server", json=body, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["error"].startswith("Not a saved run")


def test_a_call_that_makes_no_sense_says_nothing_of_a_prompt_to_the_log(url, capfd, caplog):
    rows = rows_of([SECRET], 3)
    wrong = [[], [rows], [SECRET], [rows] * 40, [{"x": SECRET}] * 14, [{"path": SECRET}] * 14]

    def call_all(data):
        visitor = Visitor(url)
        for name in visitor.ids:
            visitor.call(name, *data)
            visitor.http.post(f"/gradio_api/call/{name}", json={"data": data})
            visitor.session = uuid.uuid4().hex
            visitor.send(name, *data)
            with visitor.messages() as messages:
                assert [told for told, _ in messages if told["msg"] == "process_completed"]

    with ThreadPoolExecutor() as callers:
        list(callers.map(call_all, wrong))
    for body in ({"data": SECRET}, {"data": {"x": SECRET}}, SECRET, [SECRET], {SECRET: SECRET}):
        for path in ("run/export", "call/run", "queue/join", "component_server"):
            httpx.post(f"{url}/gradio_api/{path}", json=body)
    assert "secret" not in (caplog.text + "".join(capfd.readouterr())).lower()


def test_a_call_with_too_few_values_is_told_so(url):
    answer = Visitor(url).call("export", {"a": 1})
    assert answer.status_code == 400
    assert answer.json()["error"] == "This call has too few values, or one that makes no sense."


@pytest.mark.parametrize(
    ("path", "status"), [("login", 422), ("pwa_icon", 404), ("pwa_icon/99999", 404)]
)
def test_what_gradio_offers_beside_the_page_does_nothing(url, path, status):
    ask = httpx.post if path == "login" else httpx.get
    assert ask(f"{url}/{path}").status_code == status


def test_a_host_that_launches_with_its_own_handlers_keeps_both():
    class HostError(Exception):
        pass

    async def handle(request, error):
        return PlainTextResponse("handled by the host", 418)

    demo = build_demo(ModelShelf(["none"]))
    app, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, app_kwargs={"exception_handlers": {HostError: handle}}
    )
    try:
        assert app.exception_handlers[HostError] is handle
        answer = httpx.post(f"{url}gradio_api/run/export", json=[])
    finally:
        demo.close()
    assert answer.text == "This is no request that the page understands."


def test_a_host_that_launches_with_its_own_middleware_keeps_both():
    class Named:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            async def named(message):
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-host", b"ours")]
                await send(message)

            await self.app(scope, receive, named)

    demo = build_demo(ModelShelf(["none"]))
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, app_kwargs={"middleware": [Middleware(Named)]}
    )
    try:
        headers = httpx.get(url).headers
    finally:
        demo.close()
    assert headers["x-host"] == "ours"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("component_server", b'{"component_id": 99999, "fn_name": "open_run", "data": []}'),
        ("component_server", b'{"component_id": 1, "fn_name": "open_run", "session_hash": "x"}'),
        ("run/press_stop", b'{"data": [], "fn_index": 99999}'),
        ("run/press_stop", b"NaN"),
        ("run/press_stop", b'{"data": NaN}'),
        ("run/nothing", b'{"data": []}'),
        ("run/export", b'{"data": [{}], "session_hash": "x"}'),
        ("queue/join", b'{"data": [], "fn_index": -1, "session_hash": "x"}'),
        ("queue/join", b"[]"),
        ("cancel", b'{"session_hash": 5, "fn_index": "x", "event_id": []}'),
    ],
)
def test_a_request_that_makes_no_sense_is_the_visitors_fault(url, path, body):
    answer = httpx.post(
        f"{url}/gradio_api/{path}", content=body, headers={"content-type": "application/json"}
    )
    assert 400 <= answer.status_code < 500
    assert "Traceback" not in answer.text
    assert httpx.get(f"{url}/config").status_code == 200

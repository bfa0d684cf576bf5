"""The doors of the app: which are open, and how much may come in."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from viz.assets import PLOTLY_JS
from viz.page.guard import HEADERS, LARGEST_BODY, LARGEST_HEADERS, Guard
from viz.page.waiting import place_in_line


def in_a_loop_of_its_own(coroutine):
    """Playwright keeps a loop running in this thread as long as there is a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def visit(path="/", *, chunks=(b"",), headers=(), answers_first=False):
    """Ask for a path -> (status, headers, body), and how much of the body the app received."""
    sent, received = [], []

    async def app(scope, receive, send):
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if answers_first:
            await send(start)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            received.append(len(message["body"]))
            if not message["more_body"]:
                break
        if not answers_first:
            await send(start)
        await send({"type": "http.response.body", "body": b"from the app"})

    coming = [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks)
    ]

    async def receive():
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
    in_a_loop_of_its_own(Guard(app)(scope, receive, send))
    start, *bodies = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return (start["status"], told, b"".join(body["body"] for body in bodies).decode()), received


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/config",
        "/assets/index.js",
        "/gradio_api/info",
        "/gradio_api/run/press_stop",
        "/gradio_api/call/models",
        "/gradio_api/call/models/0123abcd",
        "/gradio_api/queue/join",
        "/gradio_api/queue/data",
        "/gradio_api/heartbeat/abc",
        "/gradio_api/cancel",
        "/gradio_api/component_server/",
        f"/gradio_api/file={PLOTLY_JS}",
    ],
)
def test_what_the_page_and_scripts_call_is_open(path):
    (status, headers, body), _ = visit(path)
    assert (status, body) == (200, "from the app")
    assert headers == {name.lower(): value for name, value in HEADERS.items()}


@pytest.mark.parametrize(
    "path",
    [
        "upload",
        "upload/",
        "upload_progress",
        "file=/etc/passwd",
        "file=http://example.org/x.png",
        f"file={PLOTLY_JS}/../../../x",
        "file/x",
        "proxy=https://example.org",
        "custom_component/x/client/a\nb/c",
        "dev/reload",
        "stream/x",
        "stream/x/close",
        "process_recording",
        "vibe-edit",
        "vibe-code/",
        "undo-vibe-edit",
        "vibe-starter-queries",
        "run-history/connect",
        "runs",
        "deep_link",
        "token",
        "mcp/",
        "call/v2/run",
        "profiling/traces",
        "",
        "something/new",
    ],
)
def test_the_other_routes_of_gradio_are_closed(path):
    for root in ("", "/behind/a/proxy"):
        (status, headers, body), received = visit(f"{root}/gradio_api/{path}")
        assert (status, body) == (404, "This page does not offer that.")
        assert headers["x-content-type-options"] == "nosniff"
        assert received == []


SENTENCE = f"This is more than a saved run can be: the limit is {LARGEST_BODY:,} bytes."


def test_a_body_that_announces_too_much_is_refused_unread():
    for announced in (str(LARGEST_BODY + 1), "9" * 5000):
        (status, headers, body), received = visit(headers=[(b"content-length", announced.encode())])
        assert (status, body, received) == (413, SENTENCE, [])
        assert headers["x-content-type-options"] == "nosniff"


def test_a_body_that_only_grows_too_long_is_refused_too(monkeypatch):
    monkeypatch.setattr("viz.page.guard.LARGEST_BODY", 10)
    (status, _, body), received = visit(chunks=[b"12345"] * 2)
    assert (status, body, received) == (200, "from the app", [5, 5])
    (status, _, body), received = visit(chunks=[b"12345"] * 2 + [b"6", b"7"])
    assert (status, body, received) == (413, SENTENCE, [5, 5])


def test_an_answer_that_has_begun_is_let_to_its_end(monkeypatch):
    monkeypatch.setattr("viz.page.guard.LARGEST_BODY", 10)
    (status, _, body), _ = visit(chunks=[b"1" * 11], answers_first=True)
    assert (status, body) == (200, "from the app")


def test_what_the_app_fails_on_is_logged_by_kind_and_place_without_its_text(caplog):
    caplog.set_level("DEBUG", "batchscope.page")

    async def app(scope, receive, send):
        raise ValueError("what was typed")

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
    in_a_loop_of_its_own(Guard(app)(scope, None, send))
    assert sent[0]["status"] == 400
    warning, debug = caplog.records
    line = app.__code__.co_firstlineno + 1
    assert warning.getMessage() == f"no answer to /x: ValueError at {__file__}:{line}"
    assert (warning.levelname, debug.levelname) == ("INFO", "DEBUG")
    assert "in app\n" in caplog.text
    assert "what was typed" not in caplog.text.replace('raise ValueError("what was typed")', "")


def test_an_icon_is_not_drawn_as_large_as_is_asked_for():
    assert visit("/pwa_icon/99999")[0][0] == 404
    assert visit("/behind/a/proxy/pwa_icon/99999")[0][0] == 404


def test_headers_have_a_limit():
    header = (b"cookie", b"x" * (LARGEST_HEADERS - len(b"cookie")))
    assert visit(headers=[header])[0][0] == 200
    (status, _, body), received = visit(headers=[header, (b"a", b"")])
    assert (status, body) == (431, "The headers of this request are too long.")
    assert received == []


@pytest.mark.parametrize(
    ("ahead", "waited", "run_seconds", "said"),
    [
        (1, 0.4, 300, "Waiting: 1 run before yours; 0 s so far, at most 5 min more."),
        (3, 12.9, 300, "Waiting: 3 runs before yours; 12 s so far, at most 15 min more."),
        (1, 119.9, 20, "Waiting: 1 run before yours; 119 s so far, at most 20 s more."),
        (2, 121, 65, "Waiting: 2 runs before yours; 2 min so far, at most 3 min more."),
    ],
)
def test_a_place_in_the_line_is_said_with_its_bound(ahead, waited, run_seconds, said):
    assert place_in_line(ahead=ahead, waited=waited, run_seconds=run_seconds) == said

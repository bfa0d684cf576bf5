"""Hostile requests: what Gradio would follow, quote or fail on is refused in a plain word."""

import json

import httpx
import pytest

from tests.injection import CORPUS
from tests.serving import Visitor, rows_of, served
from tests.tiny import scripted_lm, token_ids

ADDRESSES = ("http://127.0.0.1:9/x", "https://canary.invalid/x", "/etc/passwd", "../../app.py")


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([token_ids("hello")])) as url:
        yield url


@pytest.fixture(scope="module")
def post(url):
    """Send data to a route of the API."""
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=f"{url}/gradio_api/", headers=headers, timeout=60) as client:

        def post(route, data, session="visitor"):
            body = json.dumps({"data": data, "session_hash": session})
            return client.post(route, content=body)

        yield post


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_file_in_a_request_is_neither_fetched_nor_looked_for(post, address):
    file = {"path": address, "url": address, "meta": {"_type": "gradio.FileData"}}
    for route, data in (("load", [file]), ("export", [{"a": [file]}, "svg", "light"])):
        assert post(f"run/{route}", data).json()["error"] == "This page takes no files."


@pytest.mark.parametrize("kind", CORPUS)
def test_a_request_that_is_none_is_refused_without_quoting_it(post, kind):
    for text in CORPUS[kind].values():
        for route in ("run/load", "queue/join"):
            answer = post(route, text)
            assert answer.status_code == 422
            assert answer.text == "This is no request that the page understands."


@pytest.mark.parametrize("kind", CORPUS)
def test_visitors_may_call_themselves_what_they_like(url, post, kind):
    for text in CORPUS[kind].values():
        assert post("run/press_stop", [], session=text).status_code == 200
    assert Visitor(url).run(rows_of(["Hi"], 3), "scripted")[-1].stage["status"] == "done"

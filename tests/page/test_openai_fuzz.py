"""OpenAI's endpoints, asked what their own description allows and what it does not."""

import httpx
import pytest
from hypothesis import HealthCheck, settings
from schemathesis import checks

from tests import fuzz
from tests.clients import chatting, served
from tests.targets import FuzzError
from tests.targets.openai import described_api, refusal, told
from tests.targets.target import LIMITS, model

api = described_api()
KEPT_TO = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def url():
    with served(chatting(model()), limits=LIMITS, window=0) as here:
        yield f"{here.url}/v1"


@api.parametrize()
@settings(derandomize=True, max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_keeps_to_its_description(case, url):
    """At the bounds of each argument and beyond them, and with methods that it does not have."""
    answer = case.call(base_url=url)
    case.validate_response(answer, checks=KEPT_TO)
    if answer.status_code >= 400:
        assert refusal(answer.text)
    else:
        assert told(answer.headers["content-type"][0], answer.text)


def test_a_call_is_answered_or_refused_as_openai_would(caplog, capfd):
    tally = fuzz.fuzz("openai", examples=60, seed=0)
    assert tally.failures == {}
    assert tally.accepted
    assert tally.refused
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("path", ["models/a%0Ab", "models/%0D", "no%0Awhere", "%0A", "%2e%2e/"])
def test_every_path_below_is_answered_as_openai_would(url, path):
    """Also one with a line break in it, where Starlette's own patterns end."""
    answer = httpx.get(f"{url}/{path}")
    assert answer.status_code == 404
    assert refusal(answer.text)


@pytest.mark.parametrize(
    "body",
    [
        '{"detail": "Not Found"}',
        '{"error": "no"}',
        '{"error": {"message": "", "type": "t", "param": null, "code": null}}',
        '{"error": {"message": "m", "type": "t", "param": 1, "code": null}}',
        '{"error": {"message": "m", "type": "t", "param": null, "code": null, "more": 1}}',
        "[]",
        "no",
    ],
)
def test_a_refusal_of_another_shape_is_a_failure(body):
    with pytest.raises(FuzzError):
        refusal(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"object": "text_completion", "choices": []}', "application/json"),
        ('{"object": "surprise"}', "application/json"),
        ("no", "application/json"),
        ('data: {"type": "response.surprise"}\n\n', "text/event-stream"),
        ("data: [DONE]", "text/event-stream"),
    ],
)
def test_an_answer_that_openais_types_do_not_know_is_a_failure(body, kind):
    with pytest.raises(FuzzError):
        told(kind, body)

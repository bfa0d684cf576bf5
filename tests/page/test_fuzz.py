"""Random and mutated inputs over HTTP: no answer is a failure of the server."""

import httpx
import pytest

from tests import fuzz
from tests.targets import FuzzError
from tests.targets.page import check
from viz.page.guard import MALFORMED


def test_a_question_is_answered_or_refused(caplog, capfd):
    tally = fuzz.fuzz("endpoint", examples=60, seed=0)
    assert tally.failures == {}
    assert tally.accepted
    assert tally.refused
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("status", [400, 500])
def test_an_exception_outside_of_the_page_is_a_failure(status):
    headers = {"content-type": "text/plain; charset=utf-8"}
    with pytest.raises(FuzzError):
        check(httpx.Response(status, text=MALFORMED.body.decode(), headers=headers))

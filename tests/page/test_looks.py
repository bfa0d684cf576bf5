"""How often the server looks whether an event has come."""

import pytest

from tests.serving import Visitor, launched, rows_of, shelf_of, wait_for
from tests.tiny import scripted_lm, token_ids
from viz.page.demo import SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LOOKS_OF_A_RUN


@pytest.fixture(scope="module")
def demo():
    with launched(shelf_of(scripted_lm([token_ids("hello ")], seconds=0.05))) as demo:
        yield demo


def is_often(demo):
    return demo._queue.sleep_when_free == SECONDS_BETWEEN_LOOKS


def test_it_looks_seldom_while_a_run_streams_and_often_before_and_after(demo):
    assert is_often(demo)
    visitor = Visitor(demo.local_url.rstrip("/"))
    visitor.join(rows_of(["Hi"], 30), "scripted")
    during = {demo._queue.sleep_when_free for _ in visitor.frames()}
    assert SECONDS_BETWEEN_LOOKS_OF_A_RUN in during
    assert is_often(demo)


def test_it_looks_often_again_when_the_visitor_has_left(demo):
    visitor = Visitor(demo.local_url.rstrip("/"))
    visitor.join(rows_of(["Hi"], 400), "scripted")
    with visitor.messages() as messages:
        for message, _ in messages:
            if message["msg"] == "process_generating" and not is_often(demo):
                break
    wait_for(lambda: is_often(demo))

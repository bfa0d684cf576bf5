"""Random and mutated inputs over HTTP: no answer is a failure of the server."""

from tests import fuzz


def test_a_question_is_answered_or_refused(caplog, capfd):
    tally = fuzz.fuzz("endpoint", examples=60, seed=0)
    assert tally.failures == {}
    assert tally.accepted
    assert tally.refused
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())

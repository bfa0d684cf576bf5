"""The record of a comparison: strict JSON that comes back, and nothing but what fits together."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import comparison, runfile
from engine.comparison import ENGINES, Comparison, Entry, begun, same_ids, table, with_entry
from engine.errors import RecordError
from engine.run import until
from tests.unit.comparisons import comparison_of
from viz.terminal_compare import comparison_report

WHOLE = comparison_of([(3, 4), (5, 10), (12, 6)], slots=2)
LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=6)


@st.composite
def comparisons(draw) -> Comparison:
    """Of random lengths, at any moment, ended in any way, some engines refused."""
    whole = comparison_of(draw(LENGTHS), slots=draw(st.integers(1, 4)))
    if draw(st.booleans()):
        engine = draw(st.sampled_from(ENGINES))
        whole = with_entry(whole, Entry(engine, reason=draw(st.text(max_size=50))))
    if draw(st.booleans()):
        return whole
    engine = draw(st.sampled_from(ENGINES[: len(whole.runs)]))
    run = whole.entry(engine).run
    if run is None:
        return whole
    cut = until(run, draw(st.integers(0, len(run.steps) - 1)))
    status = draw(st.sampled_from(["running", "stopped", "error"]))
    error = "It broke." if status == "error" else None
    cut = replace(cut, status=status, error=error)
    return replace(with_entry(whole, Entry(engine, cut)), status=status, error=error)


@given(comparisons())
@settings(deadline=None)
def test_c12_a_saved_comparison_comes_back(compared):
    def refuse(constant):
        raise AssertionError(f"{constant} in the file")

    text = comparison.dumps(compared)
    json.loads(text, parse_constant=refuse)
    assert comparison.loads(text) == compared
    assert comparison.loads(text.encode("utf-8", "surrogatepass")) == compared


@given(comparisons())
@settings(deadline=None)
def test_every_moment_has_a_table_and_a_report(compared):
    rows = table(compared)
    assert [row.engine for row in rows] == list(ENGINES)
    for row, entry in zip(rows, compared.entries, strict=True):
        assert (row.figures is None) == (entry.run is None)
    for line in comparison_report(compared).splitlines():
        assert len(line) <= 100 or any(entry.reason for entry in compared.entries)


def change_run(engine, **changes):
    return lambda whole: with_entry(
        whole, Entry(engine, replace(whole.entry(engine).run, **changes))
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: replace(c, entries=c.entries[:2]), "one entry for each engine, in order"),
        (lambda c: replace(c, entries=c.entries[::-1]), "one entry for each engine, in order"),
        (lambda c: replace(c, started_at="then"), "'then' is no date and time"),
        (lambda c: replace(c, error="odd"), "called done, with an error"),
        (lambda c: replace(c, status="error"), "called error, with no error"),
        (lambda c: replace(c, status="error", error="x" * 2001), "longer than 2,000 characters"),
        (lambda c: with_entry(c, Entry("static")), "called done, but not every engine is"),
        (
            lambda c: with_entry(c, replace(c.entry("static"), reason="no")),
            "the static engine can't run, and has a run",
        ),
        (
            lambda c: with_entry(c, Entry("serial", c.entry("static").run)),
            "the serial run is of another engine",
        ),
        (change_run("static", status="running"), "it is over, but the static run is not"),
        (change_run("continuous", texts=()), "the continuous run: 0 texts for 3 requests"),
        (
            lambda c: with_entry(
                c, comparison_of([(3, 4), (5, 9), (12, 6)], slots=2).entry("static")
            ),
            "the static run has other requests",
        ),
        (lambda c: replace(c, schema_version=2), "schema version 2, this program reads 1"),
    ],
)
def test_c12_what_does_not_fit_together_is_refused_by_what_is_wrong(change, named):
    with pytest.raises(RecordError, match=f"^Not a saved comparison: .*{named}") as caught:
        comparison.loads(comparison.dumps(change(WHOLE)))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", b"\xff\xfe", "[" * 100_000])
def test_c12_what_is_no_comparison_is_refused(text):
    with pytest.raises(RecordError, match=r"^Not a saved comparison"):
        comparison.loads(text)


def test_c12_numbers_that_are_none_and_fields_that_are_unknown_are_refused():
    text = comparison.dumps(WHOLE)
    for change in (
        text.replace('"seconds":1.0', '"seconds":NaN', 1),
        text.replace('"seconds":1.0', '"seconds":1e999', 1),
        text.replace('"error":null', '"error":null,"extra":1', 1),
    ):
        assert change != text
        with pytest.raises(RecordError, match=r"^Not a saved comparison"):
            comparison.loads(change)


def test_c12_an_oversize_file_is_refused_unread():
    with pytest.raises(RecordError, match="The comparison is larger than 32 MiB"):
        comparison.loads(" " * (comparison.MAX_BYTES + 1))


def test_a_run_of_version_1_in_it_is_read_as_one_of_version_2():
    old = change_run("serial", schema_version=1)(WHOLE)
    assert comparison.loads(comparison.dumps(old)) == WHOLE
    with pytest.raises(RecordError, match="the serial run: schema version 7"):
        comparison.loads(comparison.dumps(change_run("serial", schema_version=7)(WHOLE)))


def test_whose_turn_it_is():
    now = begun("2026-01-01T00:00:00+00:00")
    assert now.under_way == "serial"
    assert now.runs == ()
    now = with_entry(now, WHOLE.entry("serial"))
    assert now.under_way == "static"
    now = with_entry(now, Entry("static", reason="no"))
    assert now.under_way == "continuous"
    assert replace(now, status="stopped").under_way is None


def test_ids_are_compared_between_runs_that_are_done():
    assert same_ids(WHOLE) is True
    run = WHOLE.entry("static").run
    other = replace(run, steps=(replace(run.steps[0], tokens=(1, 2)), *run.steps[1:]))
    differs = with_entry(WHOLE, Entry("static", other))
    assert same_ids(differs) is False
    assert [row.same_ids for row in table(differs)] == [True, False, True]
    assert "the ids are not the same in all" in comparison_report(differs)
    alone = begun(WHOLE.started_at)
    assert same_ids(with_entry(alone, WHOLE.entry("serial"))) is None


def test_the_table_worked_out_by_hand():
    """A second a forward: serial 4 + 10 + 6; static 10, then 6; continuous one slot goes to the
    third after the fourth, 4 + 6."""
    serial, static, continuous = table(WHOLE)
    walls = [row.figures.wall_seconds for row in (serial, static, continuous)]
    assert walls == [20, 16, 10]
    assert [row.speed_up for row in (serial, static, continuous)] == [1, 20 / 16, 2]
    assert static.figures.idle == (6, 26)
    assert continuous.figures.idle.wasted == 0
    assert static.figures.latency[1:] == (10, 16, 16, 16)
    assert runfile.problem(WHOLE.entry("continuous").run) is None

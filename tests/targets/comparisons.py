"""What the Compare and the Batch size tab ask the server, as they would or nearly."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine import comparison as comparisons
from engine import sweepfile
from tests.mutants import anything, broken_json, partly_wrong
from tests.unit.comparisons import TUTORIAL, comparison_of
from tests.unit.sweeps import WHOLE
from viz.compare.computed import basis_of

COMPARISON = comparison_of(TUTORIAL, slots=2)
RECORD, SWEEP = comparisons.dumps(COMPARISON), sweepfile.dumps(WHOLE)
BASIS = json.dumps(asdict(basis_of(COMPARISON)))


def questions() -> SearchStrategy[tuple[str, Any]]:
    record, sweep = (broken_json([whole]) | st.just(whole) for whole in (RECORD, SWEEP))
    basis = (broken_json([BASIS]) | st.just(BASIS)).map(json.loads)
    how = {
        "slots": st.integers(-1, 70),
        "order": st.sampled_from(["as given", "by prompt length", "by budget"]),
    }
    lanes = {"basis": basis, **how}
    arrivals = {"basis": basis, "slots": how["slots"], "per_second": st.floats(), "times": anything}
    plan = {"sweep": sweep, "kind": st.sampled_from(["ttft", "tpot"]), "limit": st.floats()}
    export = {
        "record": record,
        "recorded": st.booleans(),
        "format": st.sampled_from(["svg", "csv", "json"]),
        "theme": st.sampled_from(["light", "dark"]),
        **how,
    }
    return st.one_of(
        st.tuples(st.just("open_sweep"), sweep.map(lambda text: {"record": text}) | anything),
        st.tuples(st.just("open_comparison"), record.map(lambda text: {"record": text}) | anything),
        st.tuples(st.just("compute_lanes"), partly_wrong(lanes) | anything),
        st.tuples(st.just("let_arrive"), partly_wrong(arrivals) | anything),
        st.tuples(st.just("plan_batch"), partly_wrong(plan) | anything),
        st.tuples(st.just("export_comparison"), partly_wrong(export) | anything),
    )

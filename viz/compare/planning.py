"""The planner as the page shows it: a limit on latency and the memory -> the best batch size."""

from __future__ import annotations

import math
from typing import Any

from engine.errors import RequestError
from engine.planner import Memory, Plan, plan, row_bytes
from engine.sweep import Sweep
from viz import words

Value = dict[str, Any]

KINDS = {"tpot": "time per token (TPOT)", "ttft": "time to first token (TTFT)"}

BOUNDS = {
    "memory": "One more row would not fit the memory.",
    "latency": "One more row would take longer than the limit.",
    "saturation": "More rows bring no more throughput.",
    "measured": "No larger batch was measured.",
}


def planned(sweep: Sweep, asked: Value) -> Value:
    """What the page shows of a plan. `asked` has "kind" and, as typed, "limit" in milliseconds and
    "memory" in megabytes, each None where there is no limit; without "limit" both are such that
    they matter in this sweep. Raises RequestError."""
    kind = asked.get("kind", "tpot")
    if kind not in tuple(KINDS):
        raise RequestError(f"The limit must be on one of {', '.join(KINDS)}, not {kind!r:.40}.")
    if "limit" not in asked:
        asked = asked | _that_matter(sweep, kind)
    limit = _amount(asked.get("limit"), "The limit on the latency")
    megabytes = _amount(asked.get("memory"), "The memory")
    each = row_bytes(sweep)
    found = plan(
        sweep,
        **{f"{kind}_seconds": None if limit is None else limit / 1000},
        memory=Memory(each, int(1e6 * megabytes)) if each and megabytes is not None else None,
    )
    return {
        "kind": kind,
        "limit": limit,
        "memory": megabytes,
        "points": [[point.batch_size, point.tokens_per_second] for point in found.points],
        "measured": [
            [point.batch_size, point.tokens_per_second]
            for point in found.points
            if not point.computed
        ],
        "limits": found.limits._asdict(),
        "best": found.best and [found.best.batch_size, found.best.tokens_per_second],
        "told": told(found),
        "about": " · ".join(
            [
                words.caption(sweep.model),
                f"{words.size(each)} of KV cache per row" if each else "KV cache not known",
                words.date(sweep.started_at),
            ]
        ),
    }


def told(found: Plan) -> str:
    """The best batch size in a sentence, and why it is not larger."""
    best = found.best
    if best is None:
        return "No batch size that was measured keeps to these limits."
    between = ", computed between two measured sizes" if best.computed else ""
    return (
        f"Batch size {best.batch_size}: {words.rate(best.tokens_per_second)} output tok/s, first "
        f"token after {words.seconds(best.ttft_seconds)}, then one every "
        f"{words.seconds(best.tpot_seconds)}{between}. {BOUNDS[found.bound]}"
    )


def _that_matter(sweep: Sweep, kind: str) -> Value:
    """Limits a little below what the largest batch needs: they cut off the end of the curve."""
    points = plan(sweep).points
    slowest = max(getattr(point, f"{kind}_seconds") for point in points)
    each = row_bytes(sweep)
    memory = each and 0.9 * each * points[-1].batch_size / 1e6
    return {"limit": _rounded(0.95e3 * slowest), "memory": memory and _rounded(memory)}


def _rounded(value: float) -> float:
    """To two significant digits."""
    return float(f"{value:.2g}")


def _amount(value: object, what: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 < value < 1e12):
        raise RequestError(f"{what} must be a number above 0, not {value!r:.40}.")
    return float(value)

"""Twenty visitors press Run at the same moment: does each get its own, and how long do they wait?

python -m tests.crowd --default  the default model in float32; without it a tiny random one
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
from dataclasses import dataclass

from engine import StaticBatchEngine
from engine.metrics import measure
from engine.models import LanguageModel
from engine.requests import Limits, make_requests
from engine.run import Run
from tests.serving import Visitor, rows_of, served
from tests.soak import asked, served_lm
from tests.tiny import row_ids


@dataclass
class Visit:
    """What one visitor was shown: the longest wait that was announced, and the record."""

    number: int
    bound: float
    run: Run


def crowd(lm: LanguageModel, *, visitors: int, limits: Limits) -> list[Visit]:
    """So many visitors at once, each with prompts of its own."""
    visits, go = [], threading.Barrier(visitors)

    def visit(number: int) -> None:
        visitor = Visitor(url)
        prompts, budgets = asked(number, "done")
        go.wait(60)
        frames = visitor.run(rows_of(prompts, budgets), lm.name)
        places = [told for told in map(announced, (frame.says for frame in frames)) if told]
        bound = max((ahead * limits.run_seconds for ahead in places), default=limits.run_seconds)
        visits.append(Visit(number, bound, frames[-1].record))

    with served(lm, limits=limits) as url:
        threads = [threading.Thread(target=visit, args=[number]) for number in range(visitors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(visits) == visitors
    return visits


def announced(says: str) -> int | None:
    """How many runs are ahead, if that is what the page says."""
    told = re.match(r"Waiting: (\d+) run", says)
    return int(told[1]) if told else None


def right(lm: LanguageModel, visit: Visit) -> bool:
    """Whether a visitor got the prompts, ids, texts and figures of its own run: those that each
    prompt has alone."""
    prompts, budgets = asked(visit.number, "done")
    engine, run = StaticBatchEngine(lm), visit.run
    alone = [
        engine.run(make_requests([prompt], max_new_tokens=budget))
        for prompt, budget in zip(prompts, budgets, strict=True)
    ]
    return (
        [request.prompt for request in run.requests] == prompts
        and row_ids(run) == [row_ids(solo)[0] for solo in alone]
        and run.texts == tuple(solo.texts[0] for solo in alone)
        and measure(run).generated_tokens == sum(len(row_ids(solo)[0]) for solo in alone)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--default", action="store_true", help="the default model, not a tiny one")
    options = parser.parse_args()
    lm, limits = served_lm(default=options.default), Limits()
    visits = crowd(lm, visitors=options.visitors, limits=limits)
    longest = max(visits, key=lambda visit: visit.run.queued_seconds)
    print(
        f"longest wait {longest.run.queued_seconds:.1f} s, "
        f"announced as at most {longest.bound:.0f} s",
        flush=True,
    )
    own = sum(right(lm, visit) for visit in visits)
    print(f"{lm.name}: {own} of {len(visits)} got exactly their own")
    late = sum(visit.run.queued_seconds > visit.bound for visit in visits)
    return 0 if own == len(visits) and not late else 1


if __name__ == "__main__":
    sys.exit(main())

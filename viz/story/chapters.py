"""The story: chapters made of recorded runs, every figure in them worked out from the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.metrics import idle_waste, measure, rows
from engine.run import Run, until
from viz import words
from viz.recorded import SIZES, recorded
from viz.story import pictures
from viz.story.parts import Chapter, Figure, Try
from viz.story.pictures import Sheet
from viz.story.telling import (
    NANO_LLM_SERVE,
    comparison,
    generated,
    growth,
    idle_formula,
    limits_table,
    machine,
    padding_formula,
    prompts_table,
    published_table,
    scaling,
    source,
    step_times,
    took,
    weights,
)
from viz.story.timetable import continuous_timetable, recorded_timetable


class Runs(NamedTuple):
    """What the story is told with: `sizes` are runs of one prompt, the smallest batch first."""

    tutorial: Run
    serial: Run
    straggler: Run
    waves: Run
    sizes: tuple[Run, ...]


def recorded_runs() -> Runs:
    """The runs that come with the page."""
    return Runs(
        recorded("tutorial"),
        recorded("serial"),
        recorded("straggler"),
        recorded("waves"),
        tuple(recorded(f"size-{size}") for size in SIZES),
    )


def chapters(runs: Runs) -> list[Chapter]:
    """The two tutorials in order, from one request after another to what comes next."""
    return [
        serial(runs.serial),
        batch(runs.serial, runs.tutorial),
        padding(runs.tutorial),
        idle(runs.tutorial, runs.straggler),
        queue(runs.waves),
        memory(runs.tutorial),
        limits(runs.sizes),
        continuous(runs.waves),
    ]


def serial(run: Run) -> Chapter:
    figures = measure(run)
    count = len(run.requests)
    return Chapter(
        title="Serial: one request after another",
        text=(
            "A language model writes one **token** (a word, or a piece of one) per **forward**, "
            f"and every forward reads all {weights(run)} of the model. The first forward of a "
            "request reads its prompt and gives the first token: the **prefill**. Each further "
            "one gives one more token: **decode**.",
            f"One after another, {words.plural(count, 'request')} took "
            f"{words.plural(len(run.steps), 'forward')} and {took(figures)}: all the weights, "
            f"{len(run.steps)} times, for one token each.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.slots_picture(
                    pictures.first_request(run), sheet, title=title
                ),
                "Request 1 alone. A cell of the picture is a slot: one token of one row.",
                run,
            ),
            _figure(
                lambda sheet, title: pictures.time_picture([run], sheet, title=title),
                "Every block is a forward; each request waits for those before it.",
                run,
            ),
        ),
        tables=(prompts_table(run),),
        tries=(Try("serial", "Run them one by one"),),
    )


def batch(serial: Run, static: Run) -> Chapter:
    before, after = measure(serial), measure(static)
    return Chapter(
        title="The batch: one forward serves all rows",
        text=(
            f"A **batch** puts the {words.plural(len(static.requests), 'request')} into one "
            "tensor, a **row** each. One forward now gives a token to every row that still "
            "runs, and reads the weights once for all of them.",
            f"The same prompts took {words.plural(len(static.steps), 'forward')} instead of "
            f"{len(serial.steps)}, and {took(after)} instead of {took(before)}.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.time_picture([serial, static], sheet, title=title),
                "The same requests twice, over the same seconds. Grey: the row has ended.",
                static,
            ),
        ),
        tables=(comparison(serial, static),),
        tries=(Try("tutorial", "Run this batch"),),
    )


def padding(run: Run) -> Chapter:
    waste = measure(run).padding
    width = words.listing(batch.padded_length for batch in run.batches)
    lengths = words.listing(length for batch in run.batches for length in batch.prompt_lengths)
    return Chapter(
        title="Padding: the prompts become a rectangle",
        text=(
            f"A batch is a rectangle: every row is as wide as its longest prompt, S = {width}. "
            f"The prompts have {lengths} tokens; the rest is filled up with **pads**. The prefill "
            "computes pads like tokens, and their results are thrown away.",
            f"Here {words.fraction(waste, 'prompt slots')} were padding: {words.percent(waste)}.",
        ),
        formulas=(padding_formula(run),),
        figures=(
            _figure(
                lambda sheet, title: pictures.slots_picture(until(run, 1), sheet, title=title),
                "After the prefill: all prompts are read, and every row has its first token.",
                run,
            ),
        ),
        tries=(Try("long-short", "Run long and short prompts"),),
    )


def idle(run: Run, straggler: Run) -> Chapter:
    waste, worse = measure(run).idle, measure(straggler).idle
    return Chapter(
        title="Idle slots: who has ended keeps the slot",
        text=(
            f"The rows end at different times, here after {words.listing(generated(run))} "
            "tokens. A **static** batch stays together until its last row has ended, so a row that "
            f"ends early leaves an **idle** slot: {words.fraction(waste, 'decode slots')}, "
            f"{words.percent(waste)}. One long answer among short ones, a **straggler**, makes "
            f"it {worse.wasted:,} of {worse.slots:,}, {words.percent(worse)}.",
            f"Idle slots are not the same as lost time. {step_times(straggler)} An idle slot "
            "is room: another request could have used it.",
        ),
        formulas=(idle_formula(run),),
        figures=(
            _figure(
                lambda sheet, title: pictures.slots_picture(run, sheet, title=title),
                "The whole run. Column k of the new tokens is the k-th token of every row.",
                run,
            ),
            _figure(
                lambda sheet, title: pictures.slots_picture(straggler, sheet, title=title),
                f"One straggler: {words.plural(max(generated(straggler)), 'token')}, beside "
                f"rows that end after {words.listing(sorted(generated(straggler))[:-1])}.",
                straggler,
            ),
        ),
        tries=(Try("straggler", "Run one straggler"), Try("equal", "Run equal lengths")),
    )


def queue(run: Run) -> Chapter:
    first, last = rows(run)[0], rows(run)[-1]
    ahead = [[rows(run)[index].generated for index in batch.requests] for batch in run.batches]
    free = idle_waste(ahead[:1])
    return Chapter(
        title="More requests than slots: waiting",
        text=(
            f"{words.plural(len(run.requests), 'request')}, "
            f"{words.plural(run.settings.batch_size, 'slot')}: that makes "
            f"{words.plural(len(run.batches), 'batch', 'batches')}, one after another. No request "
            "may join a batch under way, so each batch waits for the longest row of the one "
            "before it.",
            f"The last batch **waited** {words.seconds(last.waited)}, while "
            f"{words.fraction(free, 'decode slots')} of the first were idle. Request "
            f"{first.request + 1} had its first token {words.seconds(first.first_token_at)} after "
            f"the start of the run, request {last.request + 1} after "
            f"{words.seconds(last.first_token_at)}.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.slots_picture(run, sheet, title=title),
                "The batches side by side; the dotted line parts them.",
                run,
            ),
        ),
        tries=(Try("waves", "Run eight requests"),),
    )


def memory(run: Run) -> Chapter:
    peak = max((step.kv_bytes for step in run.steps), key=lambda held: held.total)
    return Chapter(
        title="Memory: every column is kept",
        text=(
            "For every token that a row has read or written, the model keeps its keys and "
            "values, the **KV cache**, so as not to compute them again. It grows by one column "
            f"per forward, a token for every row: here {words.size(growth(run))} each time.",
            "Pads are in it too, and so are rows that have ended: they keep what they had, and "
            f"their idle slots add to it. At its peak the cache held {words.size(peak.total)}: "
            f"{words.size(peak.live)} of rows still running, {words.size(peak.padding)} of "
            f"their pads, and {words.size(peak.dead)} of rows that had ended.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.memory_picture(run, sheet, title=title),
                "Below the slots, column for column: the bytes of the KV cache by what holds "
                "them, in the colours of the slots.",
                run,
            ),
        ),
        tries=(Try("straggler", "Watch the memory of a straggler"),),
    )


def limits(sizes: Sequence[Run]) -> Chapter:
    first, last = measure(sizes[0]), measure(sizes[-1])
    few, many = len(sizes[0].requests), len(sizes[-1].requests)
    return Chapter(
        title="How large may a batch be? Three limits",
        text=(
            f"**Memory**: the cache grows with every row, from {words.size(first.peak_kv_bytes)} "
            f"at {words.plural(few, 'row')} to {words.size(last.peak_kv_bytes)} at {many}, even "
            f"for {words.plural(max(generated(sizes[-1])), 'new token')} each.",
            "**Latency**: a step does the work of all rows, and each of them waits for it. A "
            f"token took {words.seconds(first.mean_tpot)} at {words.plural(few, 'row')} and "
            f"{words.seconds(last.mean_tpot)} at {many}.",
            "**Saturation**: as long as reading the weights takes most of a step, more rows are "
            f"almost free; once computing does, they are not. {scaling(sizes)}",
            f"{machine(sizes[0])} A large GPU has far more arithmetic for each byte it reads, "
            "so its line stays straight for longer: "
            f"nanoLLMServe published {words.listing(p.tokens_per_second for p in NANO_LLM_SERVE)} "
            f"tok/s for {words.listing(p.rows for p in NANO_LLM_SERVE)} rows (Qwen3-8B, bf16, "
            "one A100; published figures, not measured here).",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.limits_picture(sizes, sheet, title=title),
                "Measured: the same prompt in every row. Dashed: twice the rows, twice the output.",
                *sizes,
            ),
        ),
        tables=(limits_table(sizes), published_table()),
        tries=(Try("same", "Run one prompt many times"),),
    )


def continuous(run: Run) -> Chapter:
    static, freed = recorded_timetable(run), continuous_timetable(run)
    return Chapter(
        title="What comes next: continuous batching",
        text=(
            "**Continuous batching** does not keep a batch together: as soon as a row has ended, "
            "the next request in line gets its slot, and the others go on. It is what serving "
            "engines do today.",
            f"With the lengths of the recorded run, the same {len(run.requests)} requests would "
            f"need {words.plural(freed.columns, 'column')} instead of {static.columns}, with "
            f"{words.fraction(freed.idle, 'slots')} idle instead of "
            f"{words.fraction(static.idle, 'slots')}. That is **computed**, not measured: it "
            "counts columns of new tokens, and leaves out what the prefills of joining requests "
            "cost.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.next_picture(run, sheet, title=title),
                "A bar per request, as long as its answer. Above as recorded; below computed from "
                "the same lengths, each slot given to the next request at once.",
                run,
            ),
        ),
        tries=(Try("waves", "Run them as static batches"),),
    )


def _figure(draw: Callable[[Sheet, str], str], shown: str, *runs: Run) -> Figure:
    """What is shown also names the picture for those who can't see it."""
    return Figure(lambda sheet: draw(sheet, shown), shown, source(*runs))

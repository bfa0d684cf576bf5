"""The story: chapters made of recorded runs, every figure in them worked out from the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import NamedTuple

from engine.metrics import Figures, Waste, columns, idle_waste, measure, rows
from engine.run import Run, until
from viz import words
from viz.explain import TILES
from viz.recorded import recorded
from viz.stage.state import caption
from viz.story import pictures
from viz.story.pictures import Sheet
from viz.story.timetable import continuous_timetable, recorded_timetable

SIZES = (1, 2, 4, 8, 16, 32)


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


@dataclass(frozen=True)
class Figure:
    """A picture for each width of page, what it shows, and what ran."""

    draw: Callable[[Sheet], str]
    caption: str
    source: str


class Table(NamedTuple):
    """Numbers beside a picture; the first cell of a row names it."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


class Try(NamedTuple):
    """A button that chooses a preset by its key."""

    preset: str
    label: str


@dataclass(frozen=True)
class Chapter:
    """`text` holds paragraphs, new words in **asterisks**; `formulas` are lines of their own."""

    title: str
    text: tuple[str, ...]
    figures: tuple[Figure, ...]
    formulas: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    tries: tuple[Try, ...] = ()


class Published(NamedTuple):
    """Figures that others published; the page says so."""

    rows: int
    tokens_per_second: float


NANO_LLM_SERVE = (
    Published(1, 33.1),
    Published(2, 64.3),
    Published(4, 131.5),
    Published(8, 257.3),
)
"""nanoLLMServe's benchmark: Qwen3-8B, bf16, one A100."""


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
            f"and every forward reads all {_weights(run)} of the model. The first forward of a "
            "request reads its prompt and gives the first token: the **prefill**. Each further "
            "one gives one more token: **decode**.",
            f"One after another, {words.plural(count, 'request')} took "
            f"{words.plural(len(run.steps), 'forward')} and {_time(figures)}: all the weights, "
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
        tables=(_prompts(run),),
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
            f"{len(serial.steps)}, and {_time(after)} instead of {_time(before)}.",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.time_picture([serial, static], sheet, title=title),
                "The same requests twice, over the same seconds. Grey: the row has ended.",
                static,
            ),
        ),
        tables=(
            Table(
                "Serial and batch in numbers",
                ("", "serial", "static batch"),
                tuple(
                    (name, told(serial, before), told(static, after))
                    for name, told in _COMPARED.items()
                ),
            ),
        ),
        tries=(Try("tutorial", "Run this batch"),),
    )


_COMPARED: dict[str, Callable[[Run, Figures], str]] = {
    "Forwards": lambda run, _: f"{len(run.steps)}",
    "New tokens": lambda _, figures: f"{figures.generated_tokens:,}",
    "Wall time": lambda _, figures: _time(figures),
    "Output": lambda _, figures: f"{words.rate(figures.output_tokens_per_second)} tok/s",
    "Time per token (TPOT), mean": lambda _, figures: words.seconds(figures.mean_tpot),
}


def padding(run: Run) -> Chapter:
    waste = measure(run).padding
    width = _list(batch.padded_length for batch in run.batches)
    lengths = _list(length for batch in run.batches for length in batch.prompt_lengths)
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
            f"The rows end at different times, here after {_list(_generated(run))} tokens. A "
            "**static** batch stays together until its last row has ended, so a row that ends "
            f"early leaves an **idle** slot: {words.fraction(waste, 'decode slots')}, "
            f"{words.percent(waste)}. One long answer among short ones, a **straggler**, makes "
            f"it {worse.wasted:,} of {worse.slots:,}, {words.percent(worse)}.",
            f"Idle slots are not the same as lost time. {_step_times(straggler)} An idle slot "
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
                f"One straggler: {words.plural(max(_generated(straggler)), 'token')}, beside "
                f"rows that end after {_list(sorted(_generated(straggler))[:-1])}.",
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
            f"{_plural(len(run.batches), 'batch', 'batches')}, one after another. No request "
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
            f"per forward, a token for every row: here {words.size(_growth(run))} each time.",
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
            f"for {words.plural(max(_generated(sizes[-1])), 'new token')} each.",
            "**Latency**: a step does the work of all rows, and each of them waits for it. A "
            f"token took {words.seconds(first.mean_tpot)} at {words.plural(few, 'row')} and "
            f"{words.seconds(last.mean_tpot)} at {many}.",
            "**Saturation**: as long as reading the weights takes most of a step, more rows are "
            f"almost free; once computing does, they are not. {_scaling(sizes)}",
            f"{_machine(sizes[0])} A large GPU has far more arithmetic for each byte it reads, "
            "so its line stays straight for longer: "
            f"nanoLLMServe published {_list(f'{p.tokens_per_second}' for p in NANO_LLM_SERVE)} "
            f"tok/s for {_list(p.rows for p in NANO_LLM_SERVE)} rows (Qwen3-8B, bf16, one A100; "
            "published figures, not measured here).",
        ),
        figures=(
            _figure(
                lambda sheet, title: pictures.limits_picture(sizes, sheet, title=title),
                "Measured: the same prompt in every row. Dashed: twice the rows, twice the output.",
                *sizes,
            ),
        ),
        tables=(_limits_table(sizes), _published_table()),
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


def padding_formula(run: Run) -> str:
    """The formula of prompt padding with the numbers of a run."""
    batches = [batch.prompt_lengths for batch in run.batches]
    return _waste_formula(TILES["Prompt padding"].formula, batches, measure(run).padding)


def idle_formula(run: Run) -> str:
    """The formula of idle slots with the numbers of a run."""
    table = rows(run)
    batches = [[table[index].generated for index in batch.requests] for batch in run.batches]
    return _waste_formula(TILES["Idle while decoding"].formula, batches, measure(run).idle)


def _waste_formula(formula: str, batches: Sequence[Sequence[int]], waste: Waste) -> str:
    missing = [max(lengths) - length for lengths in batches for length in lengths]
    areas = [f"{len(lengths)} · {max(lengths)}" for lengths in batches]
    return (
        f"{formula} = ({' + '.join(map(str, missing))}) / ({' + '.join(areas)}) = "
        f"{waste.wasted:,} / {waste.slots:,} = {words.percent(waste)}"
    )


def _figure(draw: Callable[[Sheet, str], str], shown: str, *runs: Run) -> Figure:
    """What is shown also names the picture for those who can't see it."""
    return Figure(lambda sheet: draw(sheet, shown), shown, _source(*runs))


def _source(*runs: Run) -> str:
    """What ran, how and when, on one line."""
    if runs[0].settings.engine == "serial":
        how = "one request after another"
    elif len(runs) == 1:
        how = f"static batch, {words.plural(runs[0].settings.batch_size, 'slot')}"
    else:
        how = f"static batches of {_list(len(run.requests) for run in runs)}"
    dates = [datetime.fromisoformat(run.started_at) for run in runs]
    days = dict.fromkeys(f"{date.day} {date:%b %Y}" for date in dates)
    return " · ".join([caption(runs[0].model), how, f"recorded {_list(days)}"])


def _prompts(run: Run) -> Table:
    return Table(
        "The prompts",
        ("", "prompt", "prompt tokens", "new tokens"),
        tuple(
            (
                str(row.request + 1),
                _prompt_text(run.requests[row.request].prompt),
                str(row.prompt_tokens),
                str(row.generated),
            )
            for row in rows(run)
        ),
    )


def _prompt_text(prompt: str | tuple[int, ...]) -> str:
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def _limits_table(sizes: Sequence[Run]) -> Table:
    measured = [(len(run.requests), measure(run)) for run in sizes]
    one = measured[0][1].output_tokens_per_second or 0
    return Table(
        "Measured, in numbers",
        (
            "rows",
            "output, tok/s",
            f"against {words.plural(measured[0][0], 'row')}",
            "TPOT",
            "KV cache",
        ),
        tuple(
            (
                str(count),
                words.rate(figures.output_tokens_per_second),
                _times((figures.output_tokens_per_second or 0), one),
                words.seconds(figures.mean_tpot),
                words.size(figures.peak_kv_bytes),
            )
            for count, figures in measured
        ),
    )


def _published_table() -> Table:
    one = NANO_LLM_SERVE[0]
    return Table(
        "Published by nanoLLMServe, not measured here: Qwen3-8B, bf16, one A100",
        ("rows", "output, tok/s", f"against {words.plural(one.rows, 'row')}"),
        tuple(
            (
                str(point.rows),
                words.rate(point.tokens_per_second),
                _times(point.tokens_per_second, one.tokens_per_second),
            )
            for point in NANO_LLM_SERVE
        ),
    )


def _times(value: float, one: float) -> str:
    return f"{value / one:.1f} ×" if one else "n/a"


def _scaling(sizes: Sequence[Run]) -> str:
    rows_more = len(sizes[-1].requests) / len(sizes[0].requests)
    first, last = (measure(sizes[at]).output_tokens_per_second or 0 for at in (0, -1))
    return (
        f"Output went from {words.rate(first)} to {words.rate(last)} tok/s: "
        f"{last / first:.1f} times as much for {rows_more:.3g} times the rows."
    )


def _machine(run: Run) -> str:
    """What kind of machine the curve is from."""
    if run.model.device != "CPU":
        return f"This is {run.model.device}."
    return (
        f"This is a CPU with {words.plural(run.model.threads, 'thread')}, and its line bends early."
    )


def _step_times(run: Run) -> str:
    """How long a decode step took while most rows worked, and when the fewest did."""
    by_rows: dict[int, list[float]] = {}
    for step in run.steps:
        if step.phase == "decode":
            working = sum(token is not None for token in step.tokens)
            by_rows.setdefault(working, []).append(step.seconds)
    if len(by_rows) < 2:
        return ""
    most, least = max(by_rows), min(by_rows)
    return (
        f"In that run, a step took {words.seconds(median(by_rows[most]))} while "
        f"{words.plural(most, 'row')} worked, and {words.seconds(median(by_rows[least]))} with "
        f"{least} left (medians)."
    )


def _growth(run: Run) -> int:
    """Bytes that the last forward of the first batch added to the cache."""
    steps = columns(run, 0)
    return steps[-1].kv_bytes.total - steps[-2].kv_bytes.total if len(steps) > 1 else 0


def _generated(run: Run) -> list[int]:
    return [row.generated for row in rows(run)]


def _time(figures: Figures) -> str:
    return words.seconds(figures.wall_seconds)


def _weights(run: Run) -> str:
    """ "135 million weights"."""
    count = run.model.parameters
    for scale, name in ((1e9, "billion"), (1e6, "million")):
        if count >= scale:
            return f"{count / scale:.3g} {name} weights"
    return words.plural(count, "weight")


def _plural(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _list(values: Iterable[object]) -> str:
    """ "10, 30, 5 and 20"."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last

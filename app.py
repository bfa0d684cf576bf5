"""The page: type prompts, watch a model run them as static batches, slot by slot.

python app.py                          the default model, http://127.0.0.1:7860
python app.py --model Qwen/Qwen3-0.6B  any hub id, folder or .gguf file

`demo` is the page as a Gradio Space takes it. The annotations of the endpoints are what their
clients see of them, so they are not postponed in this file.
"""

import gc
import os

gc.disable()  # for the imports: they leave no garbage, and looking for it takes half a second
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# Gradio's own statistics of events, which nobody sees here, would grow with each of them.
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(10**9))

import argparse
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

# Before anything that brings torch, which ZeroGPU changes.
from engine.live import ON_ZERO_GPU, WAIT_SECONDS, Waiting

# isort: split
import gradio as gr
from starlette.routing import BaseRoute, Mount

from engine.comparison import Comparison
from engine.errors import ModelError, RequestError
from engine.host import Host
from engine.logs import start_log
from engine.options import limits_of, page_options
from engine.orders import (
    SWEEP_RUNS,
    SWEEP_SIZES,
    PageSettings,
    make_order,
    read_link,
    sizes_to_offer,
)
from engine.presets import DEFAULT_MODEL, MIXED, PRESETS, Preset, find_preset
from engine.promptfile import MAX_BYTES, SUFFIXES, read_prompts, shown_name
from engine.ranks import processes
from engine.requests import DEFAULT_BUDGET, Limits
from engine.run import PaddingSide, Run
from engine.shelf import ModelShelf
from engine.sweep import DEFAULT_PROMPT, Progress, Sweep
from engine.sweepfile import report
from engine.visitors import LatestOnly, StillRunningError
from viz.compare.compare import CompareTab, source_in
from viz.compare.state import CompareWriter, compare_value
from viz.editor.editor import (
    COPY_LINK,
    KEEP_SETTINGS,
    editor_value,
    link_in,
    prompts_and_budgets,
)
from viz.export import Theme, export_text
from viz.page.demo import Demo
from viz.page.endpoint import add_endpoint
from viz.page.forecast import forecast_sentence
from viz.page.form import INTO_SIGHT, Form, build_form, run_outputs
from viz.page.notice import MENDED, notice
from viz.page.refusal import one_sentence, sentence
from viz.page.sparing import SELDOM, Sparing
from viz.page.title import TitleLine
from viz.page.waiting import place_in_line
from viz.page.wire import Wire, Wires
from viz.stage.desk import at_most_a_few, finished_run
from viz.stage.packed import packed
from viz.stage.stage import Stage
from viz.stage.state import StageWriter
from viz.story.story import Story
from viz.sweep.state import shown_state, sweep_value
from viz.sweep.sweep import SweepTab, order_in
from viz.words import plural, under_way

if TYPE_CHECKING:
    from engine.fleet import Fleet
    from engine.openai.server import Server
    from engine.prometheus import Metrics
    from viz.watch.feed import Watch

gc.enable()

run_numbers = itertools.count(1)

ExportFormat = Literal["svg", "html", "json", "csv", "trace"]


class Page:
    """What the page's events do."""

    def __init__(self, host: Host, is_heard: Callable[[str], bool], wires: Wires) -> None:
        self.host = host
        self._is_heard = is_heard
        self._wires = wires
        self._loads = LatestOnly()

    def load(self, request: gr.Request, model: str) -> Iterator[dict[str, str]]:
        """Say how far the model is until it is there -> notice. The visitor's next choice of a
        model ends it, and so does a run, which has more to say."""
        with self._loads.flag(request.session_hash) as over:
            try:
                loading = self.host.loading(model)
                for message in loading.messages(over, WAIT_SECONDS):
                    yield notice(message)
                # Gradio says the last value once more at the end, which must not hide what came.
                yield gr.skip() if over.is_set() else notice(self._notes(model))
            except ModelError as error:
                yield notice(str(error), "error")

    def run(
        self, request: gr.Request, prompts: object, model: str, *settings: Any
    ) -> Iterator[list[Any]]:
        """Run the prompts and stream the picture; the settings are those of PageSettings.

        One yield is a value for each of: stage, notice, Run, Stop. Frames come at most ten a
        second (see also Sparing), always of the newest state, and once at the end; those that
        change the picture alone go over the wire. Gradio may draw each yield from another thread
        and closes the generator when the visitor leaves.
        """
        self._loads.end(request.session_hash)
        with self._wires.open() as wire:
            yield from self._run(request, wire, prompts, model, *settings)

    def _run(
        self, request: gr.Request, wire: Wire, prompts: object, model: str, *settings: Any
    ) -> Iterator[list[Any]]:
        key = f"run-{wire.name}"
        writer: StageWriter | None = None
        sparing = Sparing.of(request)
        says_why = False
        try:
            texts, budgets = prompts_and_budgets(prompts)
            for frame in self.host.run(
                request.session_hash,
                prompts=texts,
                max_new_tokens=budgets,
                model=model,
                **PageSettings(*settings).asked(),
            ):
                if not self._is_heard(request.session_hash):
                    return
                if isinstance(frame, Run):
                    text = busy = None  # as they are
                    if writer is None:
                        writer, text, busy = StageWriter(frame, key=key), self._notes(model), True
                    if frame.status != "running":
                        wire.close()  # the record takes a moment, the newest picture need not
                        text, busy = self._notes(model), False
                    elif frame.steps and not sparing.is_due():
                        continue
                    elif sparing.holds_back and not says_why:
                        text, says_why = SELDOM, True
                    state = writer.write(frame)
                    only_picture = text is None and busy is None
                    if only_picture and wire.send(state):
                        continue
                    stage = packed(state) | {"wire": wire.name}
                    yield run_outputs(stage=stage, text=text, busy=busy)
                elif isinstance(frame, Waiting):
                    place = self._place_in_line(frame)
                    yield run_outputs(text=place, busy=True, doing="Waiting…")
                elif frame is None:
                    yield run_outputs(text="Stopped.", busy=False)
                else:
                    yield run_outputs(text=frame, busy=True)
        except StillRunningError as error:
            yield run_outputs(text=str(error))
        except Exception as error:
            yield run_outputs(text=sentence(error), kind="error", busy=False)

    def sweep(self, request: gr.Request, event: gr.EventData) -> Iterator[dict[str, Any]]:
        """Measure the batch sizes and stream the charts -> the tab's value."""
        key = f"sweep-{next(run_numbers)}"
        sweep = progress = None
        sparing = Sparing.of(request)
        try:
            for frame in self.host.sweep(request.session_hash, **order_in(event._data)):
                if not self._is_heard(request.session_hash):
                    return
                said = ""
                if isinstance(frame, Sweep):
                    sweep = frame
                elif isinstance(frame, Progress):
                    progress = frame
                    if not sparing.is_due():
                        continue
                elif isinstance(frame, Waiting):
                    said = self._place_in_line(frame)
                elif frame is None:
                    yield sweep_value(text="Stopped.")
                    return
                else:
                    said = frame
                if sweep is None:
                    yield sweep_value(text=said or f"{under_way(progress)}.", busy=True)
                else:
                    shown = shown_state(sweep, progress, key=key)
                    yield sweep_value(shown, text=said, busy=sweep.status == "running")
        except Exception as error:
            yield sweep_value(text=sentence(error), kind="error")

    def compare(
        self,
        request: gr.Request,
        event: gr.EventData,
        prompts: object,
        model: str,
        *settings: Any,
    ) -> Iterator[dict[str, Any]]:
        """Run the same requests in three ways and stream the lanes -> the tab's value. They are
        those of the form of the Run tab, or the example's, if that was chosen."""
        key = f"compare-{next(run_numbers)}"
        writer: CompareWriter | None = None
        sparing = Sparing.of(request)
        try:
            if source_in(event._data) == "example":
                prompts, *settings, _ = self.fill_in(MIXED)
            texts, budgets = prompts_and_budgets(prompts)
            asked = PageSettings(*settings).asked()
            for frame in self.host.compare(
                request.session_hash, prompts=texts, max_new_tokens=budgets, model=model, **asked
            ):
                if not self._is_heard(request.session_hash):
                    return
                if isinstance(frame, Comparison):
                    if writer is None:
                        slots = min(int(asked["batch_size"] or len(texts)), len(texts))
                        writer = CompareWriter(key=key, slots=slots)
                    elif frame.status == "running" and not sparing.is_due():
                        continue
                    shown = writer.write(frame)
                    yield compare_value(shown, busy=frame.status == "running")
                elif isinstance(frame, Waiting):
                    yield compare_value(text=self._place_in_line(frame), busy=True)
                elif frame is None:
                    yield compare_value(text="Stopped.")
                else:
                    yield compare_value(text=frame, busy=True)
        except Exception as error:
            yield compare_value(text=sentence(error), kind="error")

    def _place_in_line(self, frame: Waiting) -> str:
        return place_in_line(
            ahead=frame.ahead, waited=frame.seconds, run_seconds=self.host.limits.run_seconds
        )

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own run after the forward under way."""
        self.host.stop(request.session_hash)

    def leave(self, request: gr.Request) -> None:
        """End all that the visitor has under way."""
        self.stop(request)
        self._loads.end(request.session_hash)

    def fill_in(self, preset: Preset) -> list[Any]:
        """A preset as far as the host's limits allow it -> editor, settings, notice."""
        preset = preset.within(self.host.limits)
        return [
            editor_value(preset.prompts, preset.budgets),
            *PageSettings.of_preset(preset),
            notice("Press Run for these prompts."),
        ]

    def choose(self, key: str) -> list[Any]:
        """The preset of a chapter of the story -> tabs, editor, settings, notice."""
        with one_sentence():
            return [gr.Tabs(selected="run"), *self.fill_in(find_preset(key))]

    def settings_for(self, prompts: object) -> PageSettings:
        """Settings for a list that has become another one."""
        with one_sentence():
            texts, _ = prompts_and_budgets(prompts)
            return PageSettings.of_prompts(texts, self.host.limits)

    def answer_link(self, link: str) -> dict[str, Any]:
        """What the editor shows and says of a link that the page was opened with."""
        try:
            order = read_link(link, self.host.limits)
        except RequestError as error:
            return notice(str(error), "error")
        said = notice("Filled in: press Run.")
        if order.model not in (None, self._offered(order.model)):
            said = notice(
                f"The link names the model {order.model!r:.60}, which is not offered here: "
                f"{self._offered(order.model)} is chosen.",
                "error",
            )
        rows = editor_value(
            [request.prompt for request in order.requests],
            [request.max_new_tokens for request in order.requests],
        )
        return {"prompts": rows, **said}

    def linked_settings(self, event: gr.EventData) -> list[Any]:
        """The model and the settings that belong to the prompts of such a link."""
        with one_sentence():
            order = read_link(link_in(event._data), self.host.limits)
        return [self._offered(order.model), *PageSettings.of_order(order)]

    def answer_file(self, name: str, data: bytes) -> dict[str, Any]:
        """What the editor shows and says of a file of prompts."""
        try:
            found = read_prompts(data, name, limits=self.host.limits)
        except RequestError as error:
            return notice(str(error), "error")
        prompts, budgets = zip(*found, strict=True)
        said = f"{plural(len(found), 'prompt')} from {shown_name(name)}"
        if PageSettings.of_prompts(prompts, self.host.limits).chat_template:
            said += "; the settings are those for chat"
        return {"prompts": editor_value(prompts, budgets), **notice(f"{said}.")}

    def forecast(self, prompts: object, model: str, *settings: Any) -> dict[str, str]:
        """What such a run will need of the device's memory, or why it can't be: a hint where the
        form is to be mended. Nothing while a prompt is still empty, or the model not loaded, which
        is said elsewhere."""
        try:
            texts, budgets = prompts_and_budgets(prompts)
            if not all(text.strip() for text in texts):
                return notice()
            order = make_order(
                self.host.limits,
                prompts=texts,
                max_new_tokens=budgets,
                model=model,
                **PageSettings(*settings).asked(),
            )
        except RequestError as error:
            return notice(str(error), "hint")
        try:
            found = self.host.forecast(order)
        except Exception as error:
            return notice(sentence(error), "error")
        if found is None:
            return notice()
        return notice(
            forecast_sentence(
                kv_bytes=found.kv_bytes,
                rows=found.rows,
                columns=found.columns,
                batches=math.ceil(len(order.requests) / order.batch_size),
                free_bytes=found.free_bytes,
            )
        )

    def _offered(self, model: str | None) -> str:
        names = self.host.shelf.names
        return model if model in names else names[0]

    def _notes(self, model: str) -> str:
        notes = self.host.loading(model).result().notes
        return f"Note: {'; '.join(notes)}." if notes else ""


class Update(TypedDict):
    """What a script sees of a run under way."""

    status: str
    step: int
    texts: list[str]


class SweepUpdate(TypedDict):
    """What a script sees of a sweep under way; `sizes` are the figures so far."""

    status: str
    doing: str
    sizes: list[dict[str, Any]]


class CompareUpdate(TypedDict):
    """What a script sees of a comparison under way: which engine runs, and what each of them has
    generated of each answer so far."""

    status: str
    engine: str | None
    texts: dict[str, list[str]]


class Endpoints:
    """What scripts call by name, for example through gradio_client."""

    def __init__(self, host: Host, is_heard: Callable[[str], bool]) -> None:
        self.host = host
        self._is_heard = is_heard

    def run(
        self,
        request: gr.Request,
        prompts: list[str],
        max_new_tokens: int | list[int] = DEFAULT_BUDGET,
        model: str | None = None,
        batch_size: int | None = None,
        chat_template: bool = True,
        ignore_eos: bool = False,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        padding_side: PaddingSide = "left",
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        min_new_tokens: int = 0,
        stop: list[str] | None = None,
    ) -> Iterator[Update]:
        """Run prompts as static batches. Streams {"status", "step", "texts"} while it runs; the
        last one, and the result, is the whole record of the run, which has these keys too: the
        content of a saved run, to open in the page or with engine.runfile.

        Parameters:
            prompts: one text per request
            max_new_tokens: the token budget, one number or one per prompt
            model: a name out of /models; null is the first
            batch_size: slots; more prompts make consecutive batches; null is all in one
            chat_template: whether each prompt is a message to a chat model
            ignore_eos: whether every row uses its whole budget
            temperature: 0 is greedy
            top_p: 1 is off
            top_k: 0 is off
            seed: of the random numbers; null draws one, which the record tells
            padding_side: left or right
            min_p: 0 is off
            repetition_penalty: 1 is off
            min_new_tokens: no end token and no stop string ends a row before
            stop: texts that end a row and are left out of its answer; null is none
        """
        frame = None
        with one_sentence():
            for frame in self.host.run(
                request.session_hash,
                prompts=prompts,
                max_new_tokens=max_new_tokens,
                model=model,
                batch_size=batch_size,
                chat_template=chat_template,
                ignore_eos=ignore_eos,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                seed=seed,
                padding_side=padding_side,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                min_new_tokens=min_new_tokens,
                stop=() if stop is None else stop,
            ):
                if not self._is_heard(request.session_hash):
                    return
                if isinstance(frame, Run) and frame.status != "running":
                    yield asdict(frame)
                elif isinstance(frame, Run):
                    yield {"status": "running", "step": len(frame.steps), "texts": frame.texts}
                elif frame is not None:
                    yield {"status": "waiting", "step": 0, "texts": []}
            if frame is None:
                raise RequestError("Stopped before the model was there.")

    def sweep(
        self,
        request: gr.Request,
        prompt: str = DEFAULT_PROMPT,
        batch_sizes: list[int] | None = None,
        max_new_tokens: int = DEFAULT_BUDGET,
        runs: int = SWEEP_RUNS,
        model: str | None = None,
    ) -> Iterator[SweepUpdate]:
        """Measure how fast batches of growing size run. Streams {"status", "doing", "sizes"} while
        it runs; the last one, and the result, is the whole report, which has these keys too, except
        "doing": the content of a saved sweep, to open in the page or with engine.sweepfile.

        Parameters:
            prompt: a text that every row of every batch has
            batch_sizes: the sizes, one or more; null is 1, 2, 4, 8, 16 as far as the host allows
            max_new_tokens: how many tokens every row generates
            runs: timed runs of each size; one more comes before them and does not count
            model: a name out of /models; null is the first
        """
        sweep, progress, frame = None, None, None
        sizes = [size for size in SWEEP_SIZES if size <= self.host.limits.batch_size]
        with one_sentence():
            for frame in self.host.sweep(
                request.session_hash,
                prompt=prompt,
                batch_sizes=sizes if batch_sizes is None else batch_sizes,
                max_new_tokens=max_new_tokens,
                runs=runs,
                model=model,
            ):
                if not self._is_heard(request.session_hash):
                    return
                sweep = frame if isinstance(frame, Sweep) else sweep
                progress = frame if isinstance(frame, Progress) else progress
                if isinstance(frame, Sweep) and frame.status != "running":
                    yield report(frame)
                elif frame is not None:
                    measured = report(sweep)["sizes"] if sweep else []
                    status = "running" if isinstance(frame, Sweep | Progress) else "waiting"
                    yield {"status": status, "doing": under_way(progress), "sizes": measured}
            if frame is None:
                raise RequestError("Stopped before the model was there.")

    def compare(
        self,
        request: gr.Request,
        prompts: list[str],
        max_new_tokens: int | list[int] = DEFAULT_BUDGET,
        model: str | None = None,
        batch_size: int | None = None,
        chat_template: bool = True,
        ignore_eos: bool = False,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        padding_side: PaddingSide = "left",
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        min_new_tokens: int = 0,
        stop: list[str] | None = None,
    ) -> Iterator[CompareUpdate]:
        """Run prompts one by one, as static batches, and by continuous batching, one after another.
        Streams {"status", "engine", "texts"} while it runs; the last one, and the result, is the
        whole record: the content of a saved comparison, to open in the page or with
        engine.comparison.

        Parameters:
            prompts: one text per request
            max_new_tokens: the token budget, one number or one per prompt
            model: a name out of /models; null is the first
            batch_size: slots of a static batch, and of continuous batching; null is all in one
            chat_template: whether each prompt is a message to a chat model
            ignore_eos: whether every row uses its whole budget
            temperature: 0 is greedy
            top_p: 1 is off
            top_k: 0 is off
            seed: of the random numbers; null draws one, which the record tells
            padding_side: left or right, of static batches
            min_p: 0 is off
            repetition_penalty: 1 is off
            min_new_tokens: no end token and no stop string ends a row before
            stop: texts that end a row and are left out of its answer; null is none
        """
        frame = None
        with one_sentence():
            for frame in self.host.compare(
                request.session_hash,
                prompts=prompts,
                max_new_tokens=max_new_tokens,
                model=model,
                batch_size=batch_size,
                chat_template=chat_template,
                ignore_eos=ignore_eos,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                seed=seed,
                padding_side=padding_side,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                min_new_tokens=min_new_tokens,
                stop=() if stop is None else stop,
            ):
                if not self._is_heard(request.session_hash):
                    return
                if isinstance(frame, Comparison) and frame.status != "running":
                    yield asdict(frame)
                elif isinstance(frame, Comparison):
                    texts = {run.settings.engine: list(run.texts) for run in frame.runs}
                    yield {"status": "running", "engine": frame.under_way, "texts": texts}
                elif frame is not None:
                    yield {"status": "waiting", "engine": None, "texts": {}}
            if frame is None:
                raise RequestError("Stopped before the model was there.")

    def stop(self, request: gr.Request) -> None:
        """End one's own run after the forward under way; its rows end as "cancelled"."""
        self.host.stop(request.session_hash)

    def models(self) -> list[str]:
        """The names of the models that this host offers, the one it starts with first."""
        return list(self.host.shelf.names)

    def export(self, run: dict[str, Any], format: ExportFormat, theme: Theme = "light") -> str:
        """A run as the text of a file to take away.

        Parameters:
            run: the result of /run, or the content of a saved run
            format: svg, html, json, csv, or trace (for Perfetto)
            theme: light or dark
        """
        with one_sentence(), at_most_a_few():
            return export_text(finished_run(json.dumps(run)), format, theme=theme)


def build_demo(
    shelf: ModelShelf,
    *,
    limits: Limits | None = None,
    log_prompts: bool = False,
    beside: Sequence[BaseRoute] = (),
    watch: "Watch | None" = None,
    metrics: "Metrics | None" = None,
) -> Demo:
    """The page over the models of a shelf, and what the same server has beside it. With `watch` it
    has a tab that shows the batches of OpenAI's endpoints; `metrics` counts what the page runs."""
    host = Host(
        shelf,
        limits or Limits(),
        log_prompts=log_prompts,
        report=metrics and metrics.count_record,
    )
    if metrics:
        metrics.follow_page(host)
    demo = Demo(
        runs=host.limits.runs,
        beside=[*beside, *(part.route for part in (watch, metrics) if part)],
        css_paths=watch_styles(watch),
        title="Batchscope",
        fill_width=True,
        analytics_enabled=False,
        delete_cache=(3600, 86400),
    )
    page, endpoints = Page(host, demo.is_heard, demo.wires), Endpoints(host, demo.is_heard)
    prompts, *settings, _ = page.fill_in(PRESETS[0])
    with demo:
        # Before the page's own events, which may not take their names.
        add_endpoint(endpoints.run, concurrency_limit=None)
        add_endpoint(endpoints.sweep, concurrency_limit=None)
        add_endpoint(endpoints.compare, concurrency_limit=None)
        add_endpoint(endpoints.stop, queue=False)
        add_endpoint(endpoints.models, queue=False)
        add_endpoint(endpoints.export, queue=False)
        TitleLine()
        with gr.Tabs(elem_id="bs-tabs") as tabs:
            with gr.Tab("Run", id="run"), gr.Row(elem_id="bs-screen"):
                form = build_form(
                    prompts=prompts,
                    settings=settings,
                    presets=[preset.label for preset in PRESETS],
                    models=shelf.names,
                    largest_batch=host.limits.batch_size,
                    default_budget=DEFAULT_BUDGET,
                    file_types=SUFFIXES,
                    largest_file=MAX_BYTES,
                    answer_link=page.answer_link,
                    answer_file=page.answer_file,
                )
                with gr.Column(elem_id="bs-right"):
                    stage = Stage()
            if watch:
                from viz.watch.watch import WatchTab

                with gr.Tab("Watch", id="watch"):
                    WatchTab(watch)
            with gr.Tab("Batch size", id="sweep"):
                sweep = SweepTab(
                    sizes=sizes_to_offer(host.limits),
                    chosen=SWEEP_SIZES,
                    prompt=DEFAULT_PROMPT,
                    max_new_tokens=min(DEFAULT_BUDGET, host.limits.new_tokens),
                    runs=SWEEP_RUNS,
                    models=shelf.names,
                )
            with gr.Tab("Compare", id="compare"):
                compare = CompareTab(example=MIXED.within(host.limits).summary)
            with gr.Tab("How it works", id="story"):
                story = Story()
        _connect(page, demo, form, stage, sweep, compare, story, tabs)
    return demo


def _connect(
    page: Page,
    demo: Demo,
    form: Form,
    stage: Stage,
    sweep: SweepTab,
    compare: CompareTab,
    story: Story,
    tabs: gr.Tabs,
) -> None:
    """What happens when something is pressed, chosen, opened or left."""
    # On nothing: a hidden progress display goes on counting seconds, 60 times in each of them.
    hidden = {"show_progress": "hidden", "show_progress_on": []}
    private = {"api_visibility": "private", **hidden}
    at_once = {"queue": False, **private}
    # preprocess=False: Gradio's own refusals are toasts that would render what was typed as
    # markup; the page checks every value itself and answers in one plain sentence.
    streams = {
        "preprocess": False,
        "concurrency_limit": None,
        "concurrency_id": "streams",  # they begin in the order in which they were asked for
        **private,
    }
    editor, settings = form.editor, form.settings
    order = [editor, form.model, *settings]
    to_run = {
        "fn": page.run,
        "inputs": order,
        "outputs": [stage, form.notice, form.run, form.stop],
        "postprocess": False,  # the values are plain data, and a run waits for each of them
        # Gradio holds a run to be under way for a moment longer than Run is disabled, and would
        # drop what is pressed in it; the host sees to it that a visitor has one run at a time.
        "trigger_mode": "multiple",
        **streams,
    }
    to_forecast = {
        "fn": page.forecast,
        "inputs": order,
        "outputs": [form.forecast],
        "preprocess": False,
        "trigger_mode": "always_last",
        **at_once,
    }
    gr.on([form.run.click, editor.submit], api_name="press_run", **to_run).then(
        api_name="forecast_after_run", **to_forecast
    )
    form.stop.click(page.stop, api_name="press_stop", **at_once)
    measured = {"postprocess": False, "trigger_mode": "once", **streams}
    sweep.measure(page.sweep, outputs=[sweep], api_name="press_measure", **measured)
    sweep.halt(page.stop, api_name="halt_sweep", **at_once)
    compare.measure(
        page.compare, inputs=order, outputs=[compare], api_name="press_compare", **measured
    )
    compare.halt(page.stop, api_name="halt_compare", **at_once)
    # A closed tab also closes the generators, but only at their next frame.
    demo.unload(page.leave)
    gr.on(
        [demo.load, form.model.input],
        page.load,
        inputs=[form.model],
        outputs=[form.notice],
        trigger_mode="multiple",  # a model is chosen while another one still loads
        api_name="load",
        **streams,
    ).then(api_name="forecast_after_load", **to_forecast)
    editor.changed(api_name="forecast", **to_forecast).success(
        None, inputs=[form.forecast, form.notice], outputs=[form.notice], js=MENDED, **at_once
    )
    form.more.expand(None, js=INTO_SIGHT, **at_once)

    filled_in = [editor, *settings, form.notice]
    for button, preset in zip(form.presets, PRESETS, strict=True):
        button.click(lambda preset=preset: page.fill_in(preset), outputs=filled_in, **at_once)
    story.chosen(
        page.choose, inputs=[story], outputs=[tabs, *filled_in], api_name="choose", **at_once
    ).success(api_name="run_chosen", **to_run)
    # A list that is replaced again before the settings of the first are there has its own.
    each_time = {"trigger_mode": "multiple", **at_once}
    editor.replaced(page.settings_for, inputs=[editor], outputs=[*settings], **each_time)
    editor.wants_link(None, inputs=order, js=COPY_LINK, **at_once)
    changes = [field.change for field in (form.model, *settings)]
    gr.on(changes, None, inputs=order, js=KEEP_SETTINGS, **at_once)
    editor.linked(page.linked_settings, outputs=[form.model, *settings], **each_time)


def shelf_for(options: argparse.Namespace) -> "ModelShelf | Fleet":
    """The models that the command line names, in this process or in replicas of it. None is loaded
    yet, except on ZeroGPU, which takes only what was loaded before the launch."""
    names = options.model or [DEFAULT_MODEL]
    how = {"device": options.device, "dtype": options.dtype, "compile": options.compile}
    if reason := reason_against_spreading(options):
        sys.exit(reason)
    if options.replicas or options.ray:
        return fleet_for(names, options, how)
    shelf = ModelShelf(names, device_map=options.device_map, **how)
    if ON_ZERO_GPU:
        shelf.load_all()
    return shelf


def reason_against_spreading(options: argparse.Namespace) -> str | None:
    """Why one model can't be spread over devices as the command line has it."""
    if processes().count > 1:
        return (
            "The page runs in one process: under torchrun only python -m engine does, where all "
            "processes follow the same requests. For several GPUs use --device-map auto."
        )
    if options.device_map and (options.replicas or options.ray):
        return "A replica has one GPU of its own: use --replicas or --device-map, not both."
    if options.device_map and ON_ZERO_GPU:
        return "ZeroGPU lends one GPU at a time: leave out --device-map."
    return None


def fleet_for(names: Sequence[str], options: argparse.Namespace, how: dict[str, Any]) -> "Fleet":
    """Replicas, where the command line asks for them; else nothing of them is imported."""
    from engine.cluster import reason_against

    if reason := reason_against(options.replicas, options.ray, options.device):
        sys.exit(reason)
    from engine.fleet import Fleet

    replicas = {"replicas": options.replicas, "address": options.ray}
    return Fleet(names, **replicas, log_level=options.log_level, **how)


def watch_styles(watch: "Watch | None") -> list[Path]:
    if not watch:
        return []
    from viz.watch.watch import CSS

    return [CSS]


def metrics_of(shelf: ModelShelf, options: argparse.Namespace) -> "Metrics | None":
    """What Prometheus scrapes, where the command line asks for it; else nothing is imported."""
    if not options.metrics:
        return None
    try:
        from engine.prometheus import Metrics
    except ModuleNotFoundError:
        sys.exit("--metrics needs prometheus_client: pip install prometheus-client")
    return Metrics(shelf.names)


def openai_server(
    shelf: ModelShelf, options: argparse.Namespace, metrics: "Metrics | None" = None
) -> "Server | None":
    """What is behind OpenAI's endpoints where the command line asks for them; else nothing of them
    is imported."""
    if not options.openai:
        return None
    if ON_ZERO_GPU:
        sys.exit("--openai needs a device that stays: ZeroGPU lends one to each run of the page.")
    from engine.openai.server import Server, Serving

    serving = Serving(
        window=options.batch_window_ms / 1000,
        batch_size=options.batch_size,
        most_waiting=options.most_waiting,
        key=options.openai_key,
    )
    server = Server(
        shelf,
        limits_of(options),
        serving,
        report=metrics and metrics.count_served,
        log_prompts=options.log_prompts,
        show_prompts=options.watch_texts,
    )
    if metrics:
        metrics.follow_server(server)
    return server


def openai_endpoints(server: "Server | None") -> list[Mount]:
    """OpenAI's endpoints, to be mounted beside the page, if there are to be any."""
    if server is None:
        return []
    from engine.openai.api import mounted

    return [mounted(server)]


def watch_of(server: "Server | None", options: argparse.Namespace) -> "Watch | None":
    """What the page shows of the batches that OpenAI's endpoints collect."""
    if server is None:
        return None
    from viz.watch.feed import Watch

    return Watch(
        server.collectors.get,
        server.shelf.names,
        texts=options.watch_texts,
        asks_for_key=options.openai_key is not None,
    )


def main(demo: Demo, shelf: ModelShelf, options: argparse.Namespace) -> None:
    start_log(options.log_level)
    if options.replicas:  # which end with the page, whoever ends it
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.freeze()  # the page is there for good: no search for garbage needs to go through it again
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share,
        prevent_thread_lock=True,
    )
    shelf.start(shelf.names[0])
    demo.block_thread()


options = page_options(sys.argv[1:] if __name__ == "__main__" else [])
shelf = shelf_for(options)
metrics = metrics_of(shelf, options)
server = openai_server(shelf, options, metrics)
demo = build_demo(
    shelf,
    limits=limits_of(options),
    log_prompts=options.log_prompts,
    beside=openai_endpoints(server),
    watch=watch_of(server, options),
    metrics=metrics,
)

# `gradio app.py` runs this file again after every edit, for a new `demo` and nothing else.
if __name__ == "__main__" and gr.NO_RELOAD:
    main(demo, shelf, options)

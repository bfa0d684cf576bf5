"""The page: type prompts, watch a model run them as static batches, slot by slot.

python app.py                          the default model, http://127.0.0.1:7860
python app.py --model Qwen/Qwen3-0.6B  any hub id, folder or .gguf file

`demo` is the page as a Gradio Space takes it. The annotations of the endpoints are what their
clients see of them, so they are not postponed in this file.
"""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import argparse
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

# Before anything that brings torch, which ZeroGPU changes.
from engine.live import ON_ZERO_GPU, WAIT_SECONDS, Waiting

# isort: split
import gradio as gr
from gradio.context import get_blocks_context
from gradio.utils import get_function_description
from gradio_client.utils import python_type_to_json_schema

from engine import runfile
from engine.errors import BatchscopeError, ModelError, RequestError
from engine.host import Host
from engine.options import add_device_options
from engine.orders import Order, read_link
from engine.presets import DEFAULT_MODEL, NO_PRESET, PRESETS, Preset
from engine.requests import DEFAULT_BUDGET, Limits
from engine.run import PaddingSide, Run
from engine.shelf import ModelShelf
from engine.visitors import MAX_RUNS, StillRunningError
from viz.assets import allow_assets
from viz.editor.editor import COPY_LINK, PromptEditor, editor_value
from viz.export import Theme, export_text
from viz.page.page import CSS_PATHS, Notice, NoticeKind, TitleLine, notice
from viz.stage.stage import Stage
from viz.stage.state import stage_state
from viz.story.story import Story
from viz.theme import FONT, css_variables
from viz.words import plural

log = logging.getLogger("batchscope.page")

run_numbers = itertools.count(1)

ExportFormat = Literal["svg", "html", "json", "csv", "trace"]


class Page:
    """What the page's events do."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def load(self, model: str) -> Iterator[dict[str, str]]:
        """Say how far the model is until it is there -> notice."""
        try:
            loading = self.host.loading(model)
            for message in loading.messages(threading.Event(), WAIT_SECONDS):
                yield notice(message)
            yield notice(self._notes(model))
        except ModelError as error:
            yield notice(str(error), "error")

    def run(
        self,
        prompts: list[dict[str, Any]],
        model: str,
        batch_size: float,
        chat_template: bool,
        ignore_eos: bool,
        temperature: float,
        top_p: float,
        top_k: float,
        seed: str | int | None,
        padding_side: str,
        request: gr.Request,
    ) -> Iterator[list[Any]]:
        """Run the prompts and stream the picture.

        One yield is a value for each of: stage, notice, Run, Stop. Frames come at most ten a
        second, always of the newest state, and once at the end. Gradio may draw each from
        another thread and closes the generator when the visitor leaves.
        """
        key = f"run-{next(run_numbers)}"
        drawn = False
        try:
            for frame in self.host.run(
                request.session_hash,
                **_typed(prompts),
                model=model,
                batch_size=batch_size,
                chat_template=chat_template,
                ignore_eos=ignore_eos,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                seed=None if seed == "" else seed,
                padding_side=padding_side,
            ):
                if frame is None:
                    yield _outputs(text="Stopped.", busy=False)
                elif isinstance(frame, Run):
                    yield _outputs(
                        stage=stage_state(frame, key=key),
                        text=None if drawn else self._notes(model),
                        busy=frame.status == "running",
                    )
                    drawn = True
                else:
                    yield _outputs(text=_in_words(frame), busy=True)
        except StillRunningError as error:
            yield _outputs(text=str(error), kind="error")
        except Exception as error:
            yield _outputs(text=_sentence(error), kind="error", busy=False)

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own run after the forward under way."""
        self.host.stop(request.session_hash)

    def open_link(self, question: Any) -> dict[str, Any]:
        """What the editor shows and says of a link that the page was opened with."""
        try:
            order = read_link(_link_in(question), self.host.limits)
        except RequestError as error:
            return notice(str(error), "error")
        names = self.host.shelf.names
        said = notice("Filled in from the link: press Run.")
        if order.model not in (None, *names):
            said = notice(
                f"The link names the model {order.model!r:.60}, which is not offered here: "
                f"{names[0]} is chosen.",
                "error",
            )
        rows = editor_value(
            [request.prompt for request in order.requests],
            [request.max_new_tokens for request in order.requests],
        )
        return {"prompts": rows, **said}

    def linked_settings(self, event: gr.EventData) -> list[Any]:
        """The model and the settings that belong to the prompts of such a link."""
        order = read_link(_link_in(event._data), self.host.limits)
        names = self.host.shelf.names
        return [order.model if order.model in names else names[0], *_settings_of(order)]

    def _notes(self, model: str) -> str:
        notes = self.host.loading(model).result().notes
        return f"Note: {'; '.join(notes)}." if notes else ""


class Update(TypedDict):
    """What a script sees of a run under way."""

    status: str
    step: int
    texts: list[str]


class Endpoints:
    """What scripts call by name, for example through gradio_client."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def run(
        self,
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
        request: gr.Request | None = None,
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
        """
        frame = None
        with _one_sentence():
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
            ):
                if isinstance(frame, Run) and frame.status != "running":
                    yield asdict(frame)
                elif isinstance(frame, Run):
                    yield {"status": "running", "step": len(frame.steps), "texts": frame.texts}
                elif frame is not None:
                    yield {"status": "waiting", "step": 0, "texts": []}
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
        with _one_sentence():
            return export_text(runfile.loads(json.dumps(run)), format, theme=theme)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Failures as what Gradio tells a client, and only the client that called."""
    try:
        yield
    except Exception as error:
        raise gr.Error(_sentence(error), print_exception=False) from error


def _sentence(error: Exception) -> str:
    """What to tell a visitor about whatever went wrong."""
    if isinstance(error, BatchscopeError):
        return str(error)
    if isinstance(error, gr.Error):  # ZeroGPU has no GPU to lend, or none for this visitor
        return str(error.message)
    log.error("a run failed outside the engine", exc_info=error)
    return "Something went wrong on the server; its log says what."


def _endpoint(function: Callable[..., Any], **options: Any) -> None:
    """`gr.api`, which also tells its clients what the function's docstring says of each argument,
    and the type of what it streams."""
    gr.api(function, api_name=function.__name__, **options)
    event = list(get_blocks_context().fns.values())[-1]
    _, said, _ = get_function_description(function)
    for component, words in zip(event.inputs, said.values(), strict=False):
        component._api_info |= {"additional_description": words}
    returned = get_type_hints(function)["return"]
    if get_origin(returned) is Iterator:
        event.outputs[0]._api_info = python_type_to_json_schema(*get_args(returned))


def _link_in(question: object) -> str:
    return str(question.get("link")) if isinstance(question, dict) else ""


def _typed(rows: object) -> dict[str, Any]:
    """The prompt list's value as prompts and token budgets."""
    rows = rows if isinstance(rows, list) else []
    if not all(isinstance(row, dict) and isinstance(row.get("prompt"), str) for row in rows):
        raise RequestError('Prompts must be a list of {"prompt": text, "max_new_tokens": n}.')
    return {
        "prompts": [row["prompt"] for row in rows],
        "max_new_tokens": [row.get("max_new_tokens") for row in rows],
    }


def _in_words(frame: str | Waiting) -> str:
    if isinstance(frame, Waiting):
        return f"Waiting: {plural(frame.ahead, 'run')} before yours."
    return frame


def _outputs(
    *,
    stage: dict[str, Any] | None = None,
    text: str | None = None,
    kind: NoticeKind = "info",
    busy: bool | None = None,
) -> list[Any]:
    """Values for stage, notice, Run and Stop; what is not given stays as it is."""
    skip = gr.skip()
    return [
        skip if stage is None else stage,
        skip if text is None else notice(text, kind),
        skip if busy is None else gr.Button("Running…" if busy else "Run", interactive=not busy),
        skip if busy is None else gr.Button(interactive=busy),
    ]


class Demo(gr.Blocks):
    """Blocks that bring their looks along, whoever launches them."""

    def launch(self, **options: Any) -> tuple[Any, str, str]:
        return super().launch(**launch_options() | options)


def build_demo(shelf: ModelShelf, *, limits: Limits | None = None) -> Demo:
    """The page over the models of a shelf."""
    limits = limits or Limits()
    host = Host(shelf, limits)
    page, endpoints = Page(host), Endpoints(host)

    def open_link(question: Any) -> dict[str, Any]:  # Gradio marks it, which a method won't bear
        return page.open_link(question)

    prompts, size, template, ignores_eos, heat, p, k, no_seed, side, _ = _preset_values(
        PRESETS[0], limits
    )
    with Demo(
        title="Batchscope", fill_width=True, analytics_enabled=False, delete_cache=(3600, 86400)
    ) as demo:
        # Before the page's own events, which may not take their names.
        _endpoint(endpoints.run, concurrency_limit=None)
        _endpoint(endpoints.stop, queue=False)
        _endpoint(endpoints.models, queue=False)
        _endpoint(endpoints.export, queue=False)
        TitleLine()
        with gr.Tabs(elem_id="bs-tabs") as tabs:
            with gr.Tab("Run", id="run"), gr.Row(elem_id="bs-screen"):
                with gr.Column(elem_id="bs-left", scale=0):
                    with gr.Column(elem_id="bs-settings"):
                        editor = PromptEditor(
                            prompts, default_budget=DEFAULT_BUDGET, open_link=open_link
                        )
                        with gr.Row(elem_id="bs-presets"):
                            preset_buttons = [gr.Button(p.label, size="sm") for p in PRESETS]
                        batch_size = gr.Number(
                            size,
                            label="Batch size (slots)",
                            minimum=1,
                            maximum=limits.batch_size,
                            step=1,
                            elem_classes="bs-inline",
                        )
                        model = gr.Dropdown(
                            list(shelf.names),
                            value=shelf.names[0],
                            label="Model",
                            elem_classes="bs-inline",
                        )
                        with gr.Row(elem_id="bs-switches"):
                            chat_template = gr.Checkbox(template, label="Chat template")
                            ignore_eos = gr.Checkbox(ignores_eos, label="Ignore EOS")
                        with gr.Accordion("Sampling, padding side", open=False):
                            padding_side = gr.Radio(
                                ["left", "right"], value=side, label="Padding side"
                            )
                            temperature = _number("Temperature (0: greedy)", heat, 0.1)
                            top_p = _number("Top-p (1: off)", p, 0.05)
                            top_k = _number("Top-k (0: off)", k, 1)
                            seed = gr.Textbox(
                                no_seed,
                                label="Seed",
                                placeholder="drawn anew",
                                elem_classes="bs-inline",
                            )
                    with gr.Row(elem_id="bs-buttons"):
                        run = gr.Button("Run", elem_id="bs-run", variant="primary", scale=2)
                        stop = gr.Button("Stop", elem_id="bs-stop", interactive=False)
                    line = Notice()
                with gr.Column(elem_id="bs-right"):
                    stage = Stage()
            with gr.Tab("How it works", id="story"):
                story = Story()

        settings = [
            batch_size,
            chat_template,
            ignore_eos,
            temperature,
            top_p,
            top_k,
            seed,
            padding_side,
        ]
        at_once = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        # preprocess=False: Gradio's own refusals are toasts that would render what was typed as
        # markup; the page checks every value itself and answers in one plain sentence.
        streams = {
            "preprocess": False,
            "show_progress": "hidden",
            "concurrency_limit": None,
            "api_visibility": "private",
        }
        to_run = {
            "fn": page.run,
            "inputs": [editor, model, *settings],
            "outputs": [stage, line, run, stop],
            "trigger_mode": "once",
            **streams,
        }
        gr.on([run.click, editor.submit], api_name="press_run", **to_run)
        story.chosen(
            lambda key: [gr.Tabs(selected="run"), *_preset_values(_preset(key), limits)],
            inputs=[story],
            outputs=[tabs, editor, *settings, line],
            **at_once,
        ).success(api_name="run_chosen", **to_run)
        stop.click(page.stop, api_name="press_stop", **at_once)
        # A closed tab also closes the generator, but only at its next frame.
        demo.unload(page.stop)
        gr.on([demo.load, model.input], page.load, inputs=[model], outputs=[line], **streams)
        for button, preset in zip(preset_buttons, PRESETS, strict=True):
            button.click(
                lambda preset=preset: _preset_values(preset, limits),
                outputs=[editor, *settings, line],
                **at_once,
            )
        editor.replaced(
            lambda prompts: _settings_for(prompts, limits),
            inputs=[editor],
            outputs=settings,
            **at_once,
        )
        editor.wants_link(None, inputs=[editor, model, *settings], js=COPY_LINK, **at_once)
        editor.linked(page.linked_settings, outputs=[model, *settings], **at_once)
    return demo


def _number(label: str, value: float | None, step: float) -> gr.Number:
    return gr.Number(value, label=label, minimum=0, step=step, elem_classes="bs-inline")


def _preset(key: object) -> Preset:
    """The preset that a chapter of the story is about."""
    return next(preset for preset in PRESETS if preset.key == key)


def _preset_values(preset: Preset, limits: Limits) -> list[Any]:
    """A preset as far as the host's limits allow it -> editor, settings, notice."""
    budgets = [min(budget, limits.new_tokens) for budget in preset.budgets[: limits.prompts]]
    return [
        editor_value(preset.prompts[: limits.prompts], budgets),
        *_preset_settings(preset, limits),
        notice("Press Run for these prompts."),
    ]


def _settings_for(prompts: list[dict[str, Any]], limits: Limits) -> list[Any]:
    """Settings for a list that was pasted or kept: those of the preset with these prompts, else
    what an instruct model expects, in one batch."""
    texts = tuple(row["prompt"] for row in prompts)
    own = replace(NO_PRESET, batch_size=len(texts))
    return _preset_settings(next((p for p in PRESETS if p.prompts == texts), own), limits)


def _preset_settings(preset: Preset, limits: Limits) -> list[Any]:
    """Batch size, template, ignore EOS, temperature, top-p, top-k, seed, padding side."""
    return [
        max(1, min(preset.batch_size, limits.batch_size)),
        preset.chat_template,
        preset.ignore_eos,
        preset.temperature,
        1.0,
        0,
        "",
        "left",
    ]


def _settings_of(order: Order) -> list[Any]:
    """Batch size, template, ignore EOS, temperature, top-p, top-k, seed, padding side."""
    first = order.requests[0]
    return [
        order.batch_size,
        order.chat_template,
        first.ignore_eos,
        first.sampling.temperature,
        first.sampling.top_p,
        first.sampling.top_k,
        "" if order.seed is None else str(order.seed),
        order.padding_side,
    ]


def launch_options() -> dict[str, Any]:
    """What a launch needs for the page's look, and for keeping visitors' data to itself."""
    allow_assets()
    return {
        "theme": gr.themes.Base(font=FONT, font_mono=["monospace"]),
        "css": css_variables(),
        "css_paths": CSS_PATHS,
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
        "max_threads": 4 * MAX_RUNS,
        "max_file_size": "1kb",  # the page takes no uploads
    }


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python app.py", description="Watch a model run prompts as a static batch."
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="M",
        help=f"a model that visitors may choose: {DEFAULT_MODEL} (embedded, default), a hub id, "
        "a folder, or a .gguf file; repeatable",
    )
    add_device_options(parser)
    parser.add_argument("--host", help="address to listen on (default loopback)")
    parser.add_argument("--port", type=port, help="default: the first free one from 7860")
    parser.add_argument("--share", action="store_true", help="a public link through Gradio")
    group = parser.add_argument_group("limits for one run (default in brackets)")
    for limit in fields(Limits):
        group.add_argument(
            f"--max-{limit.name.replace('_', '-')}",
            type=at_least_one,
            metavar="N",
            default=limit.default,
            help="(%(default)s)",
        )
    return parser


def shelf_for(options: argparse.Namespace) -> ModelShelf:
    """The models that the command line names. None is loaded yet, except on ZeroGPU, which takes
    only what was loaded before the launch."""
    shelf = ModelShelf(options.model or [DEFAULT_MODEL], device=options.device, dtype=options.dtype)
    if ON_ZERO_GPU:
        shelf.load_all()
    return shelf


def limits_for(options: argparse.Namespace) -> Limits:
    return Limits(**{limit.name: getattr(options, f"max_{limit.name}") for limit in fields(Limits)})


def main(demo: Demo, shelf: ModelShelf, options: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share,
        prevent_thread_lock=True,
    )
    shelf.start(shelf.names[0])
    demo.block_thread()


options = build_parser().parse_args(None if __name__ == "__main__" else [])
shelf = shelf_for(options)
demo = build_demo(shelf, limits=limits_for(options))

# `gradio app.py` runs this file again after every edit, for a new `demo` and nothing else.
if __name__ == "__main__" and gr.NO_RELOAD:
    main(demo, shelf, options)

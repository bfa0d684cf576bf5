"""The page: type prompts, watch a model run them as static batches, slot by slot.

python app.py                          the default model, http://127.0.0.1:7860
python app.py --model Qwen/Qwen3-0.6B  any hub id, folder or .gguf file
"""

from __future__ import annotations

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import argparse
import itertools
import logging
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from engine import runfile
from engine.errors import BatchscopeError, ModelError, RequestError, RunError
from engine.options import add_device_options
from engine.presets import DEFAULT_MODEL, NO_PRESET, PRESETS, Preset
from engine.requests import DEFAULT_BUDGET, Limits, check_batch_size, make_requests
from engine.run import Request, Run
from engine.shelf import ModelShelf
from engine.turns import turns_on
from engine.visitors import StillRunningError, StopFlags
from viz.assets import allow_assets
from viz.editor.editor import PromptEditor, editor_value
from viz.page.page import CSS_PATHS, Notice, NoticeKind, TitleLine, notice
from viz.stage.stage import Stage
from viz.stage.state import caption, stage_state
from viz.theme import FONT, css_variables
from viz.words import plural

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.page")

FRAME_SECONDS = 0.1
WAIT_SECONDS = 0.5
MAX_WAITING = 20

run_numbers = itertools.count(1)


class Page:
    """What the page's events need: the models, the limits, and who runs what."""

    def __init__(self, shelf: ModelShelf, limits: Limits) -> None:
        self.shelf = shelf
        self.limits = limits
        self.flags = StopFlags()

    def load(self, model: str) -> Iterator[list[Any]]:
        """Say how far the model is until it is there -> title line, notice."""
        try:
            loading = self.shelf.start(model)
            for message in loading.messages(threading.Event(), WAIT_SECONDS):
                yield [gr.skip(), notice(message)]
            lm = loading.result()
        except ModelError as error:
            yield [gr.skip(), notice(str(error), "error")]
        else:
            yield [{"caption": caption(lm.info)}, notice(_notes(lm))]

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

        One yield is a value for each of: stage, notice, Run, Stop, Save. Frames come at most ten
        a second, always of the newest state, and once at the end. Gradio may draw each from
        another thread and closes the generator when the visitor leaves.
        """
        try:
            with self.flags.flag(request.session_hash) as stop:
                yield _outputs(text="Starting", busy=True)
                requests = self._requests(
                    prompts,
                    temperature=temperature,
                    top_p=top_p,
                    top_k=top_k,
                    seed=None if seed == "" else seed,
                    ignore_eos=ignore_eos,
                )
                size = check_batch_size(batch_size, self.limits)
                loading = self.shelf.start(model)
                for message in loading.messages(stop, WAIT_SECONDS):
                    yield _outputs(text=message)
                if stop.is_set():
                    yield _outputs(text="Stopped.", busy=False)
                    return
                run, key = yield from self._stream(
                    loading.result(),
                    requests,
                    stop,
                    batch_size=size,
                    padding_side=padding_side,
                    chat_template=chat_template,
                )
            # Outside the flag: with the last frame the visitor may press Run again.
            yield from _last_frame(run, key)
        except StillRunningError as error:
            yield _outputs(text=str(error), kind="error")
        except BatchscopeError as error:
            yield _outputs(text=str(error), kind="error", busy=False)
        except Exception:
            log.exception("a run failed outside the engine")
            yield _outputs(
                text="Something went wrong on the server; its log says what.",
                kind="error",
                busy=False,
            )

    def stop(self, request: gr.Request) -> None:
        """End the visitor's own runs after the forward under way."""
        self.flags.stop(request.session_hash)

    def _requests(self, prompts: object, **options: Any) -> list[Request]:
        rows = prompts if isinstance(prompts, list) else []
        if not all(isinstance(row, dict) and isinstance(row.get("prompt"), str) for row in rows):
            raise RequestError('Prompts must be a list of {"prompt": text, "max_new_tokens": n}.')
        return make_requests(
            [row["prompt"] for row in rows],
            max_new_tokens=[row.get("max_new_tokens") for row in rows],
            limits=self.limits,
            **options,
        )

    def _stream(
        self,
        lm: LanguageModel,
        requests: list[Request],
        stop: threading.Event,
        **settings: Any,
    ) -> Generator[list[Any], None, tuple[Run, str]]:
        """Yield the frames of a run; returns its record and key."""
        from engine.static import StaticBatchEngine

        line = turns_on(lm.device)
        if len(line) > MAX_WAITING:
            raise RequestError(f"{len(line) - 1} runs are waiting already: try again in a minute.")
        key = f"run-{next(run_numbers)}"
        with closing(StaticBatchEngine(lm, **settings).stream(requests, stop=stop)) as stream:
            while not stream.wait_turn(WAIT_SECONDS):
                yield _outputs(text=f"Waiting: {plural(stream.ahead, 'run')} before yours.")
            yield _outputs(stage=stage_state(stream.record(), key=key), text=_notes(lm))
            drawn = time.monotonic()
            try:
                for _ in stream:
                    if time.monotonic() - drawn >= FRAME_SECONDS:
                        yield _outputs(stage=stage_state(stream.record(), key=key))
                        drawn = time.monotonic()
            except RunError as error:
                log.warning("%s ended early: %s", key, error)
            return stream.record(), key


def _last_frame(run: Run, key: str) -> Iterator[list[Any]]:
    """The finished picture, with the run's record to save."""
    with tempfile.TemporaryDirectory() as folder:
        # Gradio copies the file into its cache before it draws the generator on.
        file = Path(folder) / f"batchscope-{datetime.now():%Y%m%d-%H%M%S}.json"
        runfile.save(run, file)
        yield _outputs(stage=stage_state(run, key=key), busy=False, file=file)


def _outputs(
    *,
    stage: dict[str, Any] | None = None,
    text: str | None = None,
    kind: NoticeKind = "info",
    busy: bool | None = None,
    file: Path | None = None,
) -> list[Any]:
    """Values for stage, notice, Run, Stop and Save; what is not given stays as it is."""
    skip = gr.skip()
    # A new run's first picture takes the place of the last, and with it of its file.
    save = gr.DownloadButton(interactive=False) if stage else skip
    return [
        skip if stage is None else stage,
        skip if text is None else notice(text, kind),
        skip if busy is None else gr.Button("Running…" if busy else "Run", interactive=not busy),
        skip if busy is None else gr.Button(interactive=busy),
        gr.DownloadButton(value=str(file), interactive=True) if file else save,
    ]


def _notes(lm: LanguageModel) -> str:
    return f"Note: {'; '.join(lm.notes)}." if lm.notes else ""


def build_demo(shelf: ModelShelf, *, limits: Limits | None = None) -> gr.Blocks:
    """The page over the models of a shelf; launch it with `launch_options()`."""
    limits = limits or Limits()
    page = Page(shelf, limits)
    prompts, size, template, ignores_eos, heat, p, k, no_seed, side, _ = _preset_values(
        PRESETS[0], limits
    )
    with gr.Blocks(
        title="Batchscope", fill_width=True, analytics_enabled=False, delete_cache=(3600, 86400)
    ) as demo:
        title = TitleLine()
        with gr.Row(elem_id="bs-screen"):
            with gr.Column(elem_id="bs-left", scale=0):
                with gr.Column(elem_id="bs-settings"):
                    editor = PromptEditor(prompts, default_budget=DEFAULT_BUDGET)
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
                        padding_side = gr.Radio(["left", "right"], value=side, label="Padding side")
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
                    save = gr.DownloadButton("Save", elem_id="bs-save", interactive=False)
                line = Notice()
            with gr.Column(elem_id="bs-right"):
                stage = Stage()

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
        # preprocess=False: Gradio's own refusals are toasts that would render what was typed as
        # markup; the page checks every value itself and answers in one plain sentence.
        gr.on(
            [run.click, editor.submit],
            page.run,
            inputs=[editor, model, *settings],
            outputs=[stage, line, run, stop, save],
            preprocess=False,
            show_progress="hidden",
            concurrency_limit=None,
            trigger_mode="once",
            api_name="run",
        )
        stop.click(page.stop, queue=False, show_progress="hidden", api_name="stop")
        # A closed tab also closes the generator, but only at its next frame.
        demo.unload(page.stop)
        gr.on(
            [demo.load, model.input],
            page.load,
            inputs=[model],
            outputs=[title, line],
            preprocess=False,
            show_progress="hidden",
            concurrency_limit=None,
            api_visibility="private",
        )
        for button, preset in zip(preset_buttons, PRESETS, strict=True):
            button.click(
                lambda preset=preset: _preset_values(preset, limits),
                outputs=[editor, *settings, line],
                queue=False,
                show_progress="hidden",
                api_visibility="private",
            )
        editor.replaced(
            lambda prompts: _settings_for(prompts, limits),
            inputs=[editor],
            outputs=settings,
            queue=False,
            show_progress="hidden",
            api_visibility="private",
        )
    return demo


def _number(label: str, value: float | None, step: float) -> gr.Number:
    return gr.Number(value, label=label, minimum=0, step=step, elem_classes="bs-inline")


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


def launch_options() -> dict[str, Any]:
    """What `demo.launch` needs for the page's look, and for keeping visitors' data to itself."""
    allow_assets()
    return {
        "theme": gr.themes.Base(font=FONT, font_mono=["monospace"]),
        "css": css_variables(),
        "css_paths": CSS_PATHS,
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
        "max_threads": 4 * MAX_WAITING,
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


def main() -> None:
    options = build_parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    shelf = ModelShelf(options.model or [DEFAULT_MODEL], device=options.device, dtype=options.dtype)
    limits = Limits(
        **{limit.name: getattr(options, f"max_{limit.name}") for limit in fields(Limits)}
    )
    demo = build_demo(shelf, limits=limits)
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share,
        prevent_thread_lock=True,
        **launch_options(),
    )
    shelf.start(shelf.names[0])
    demo.block_thread()


if __name__ == "__main__":
    main()

"""The left column: prompts, presets, settings and what they need, Run, Stop, and the notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gradio as gr

from viz.editor.editor import PromptEditor
from viz.page.notice import Notice, NoticeKind, notice

INTO_SIGHT = """() => requestAnimationFrame(() =>
  document.querySelector("#bs-more").scrollIntoView({ block: "nearest" }))
"""
"""JavaScript for the moment when the further settings are opened, below the edge of the column."""


class Settings(NamedTuple):
    """A field each for what a run is asked to do besides its prompts and its model."""

    batch_size: Any
    chat_template: Any
    ignore_eos: Any
    temperature: Any
    top_p: Any
    top_k: Any
    seed: Any
    padding_side: Any
    min_p: Any
    repetition_penalty: Any
    min_new_tokens: Any
    stop: Any


class Form(NamedTuple):
    """The components of the column; `settings` has them in the order of their values."""

    editor: PromptEditor
    presets: list[gr.Button]
    model: gr.Dropdown
    settings: Settings
    more: gr.Accordion
    forecast: Notice
    run: gr.Button
    stop: gr.Button
    notice: Notice


def build_form(
    *,
    prompts: list[dict[str, Any]],
    settings: Sequence[Any],
    presets: Sequence[str],
    models: Sequence[str],
    largest_batch: int,
    default_budget: int,
    file_types: Sequence[str],
    largest_file: int,
    answer_link: Callable[[str], dict[str, Any]],
    answer_file: Callable[[str, bytes], dict[str, Any]],
) -> Form:
    """The column, filled in: `prompts` is the editor's first value, `settings` those of Settings;
    `presets` and `models` are names to choose from; what is not named here is the editor's."""
    first = Settings(*settings)
    with gr.Column(elem_id="bs-left", scale=0):
        with gr.Column(elem_id="bs-settings"):
            editor = PromptEditor(
                prompts,
                default_budget=default_budget,
                file_types=file_types,
                largest_file=largest_file,
                answer_link=answer_link,
                answer_file=answer_file,
            )
            with gr.Row(elem_id="bs-presets"):
                preset_buttons = [gr.Button(label, size="sm") for label in presets]
            batch_size = gr.Number(
                first.batch_size,
                label="Batch size (slots)",
                minimum=1,
                maximum=largest_batch,
                step=1,
                elem_classes="bs-inline",
            )
            model = gr.Dropdown(
                list(models), value=models[0], label="Model", elem_classes="bs-inline"
            )
            with gr.Row(elem_id="bs-switches"):
                chat_template = gr.Checkbox(first.chat_template, label="Chat template")
                ignore_eos = gr.Checkbox(first.ignore_eos, label="Ignore EOS")
            with gr.Accordion(
                "Sampling, stops, padding side", open=False, elem_id="bs-more"
            ) as more:
                temperature = _number(first.temperature, "Temperature (0: greedy)", step=0.1)
                top_p = _number(first.top_p, "Top-p (1: off)", step=0.05)
                top_k = _number(first.top_k, "Top-k (0: off)", step=1)
                min_p = _number(first.min_p, "Min-p (0: off)", step=0.05)
                repetition_penalty = _number(
                    first.repetition_penalty, "Repetition penalty (1: off)", step=0.1
                )
                seed = gr.Textbox(
                    first.seed, label="Seed", placeholder="random", elem_classes="bs-inline"
                )
                min_new_tokens = _number(first.min_new_tokens, "Min new tokens (0: off)", step=1)
                stop_strings = gr.Textbox(
                    first.stop,
                    label="Stop strings",
                    placeholder="one per line; \\n is a line break",
                    lines=2,
                    max_lines=4,
                    elem_id="bs-stops",
                )
                padding_side = gr.Radio(
                    ["left", "right"],
                    value=first.padding_side,
                    label="Padding side",
                    elem_classes="bs-inline",
                )
        with gr.Column(elem_id="bs-foot", scale=0):
            forecast = Notice(quiet=True, elem_id="bs-forecast")
            with gr.Row(elem_id="bs-buttons"):
                run = gr.Button("Run", elem_id="bs-run", variant="primary", scale=2)
                stop = gr.Button("Stop", elem_id="bs-stop", interactive=False)
            line = Notice(elem_id="bs-notice")
    fields = Settings(
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
        stop=stop_strings,
    )
    return Form(editor, preset_buttons, model, fields, more, forecast, run, stop, line)


def _number(value: float, label: str, *, step: float) -> gr.Number:
    return gr.Number(value, label=label, minimum=0, step=step, elem_classes="bs-inline")


def run_outputs(
    *,
    stage: dict[str, Any] | None = None,
    text: str | None = None,
    kind: NoticeKind = "info",
    busy: bool | None = None,
    doing: str = "Running…",
) -> list[Any]:
    """Values for stage, notice, Run and Stop; what is not given stays as it is. `doing` stands on
    Run while it is `busy`."""
    skip = gr.skip()
    return [
        skip if stage is None else stage,
        skip if text is None else notice(text, kind),
        skip if busy is None else gr.update(value=doing if busy else "Run", interactive=not busy),
        skip if busy is None else gr.update(interactive=busy),
    ]

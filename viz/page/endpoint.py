"""A function that scripts call by name, described to them as its docstring describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import gradio as gr
from gradio.context import get_blocks_context
from gradio.utils import get_function_description, get_function_params
from gradio_client.utils import python_type_to_json_schema


def add_endpoint(function: Callable[..., Any], **options: Any) -> None:
    """`gr.api`, which also tells its clients what the function's docstring says of each argument,
    and the type of what it streams. The function's annotations must not be postponed."""
    gr.api(function, api_name=function.__name__, **options)
    event = list(get_blocks_context().fns.values())[-1]
    _, said, _ = get_function_description(function)
    for component, (name, *_) in zip(event.inputs, get_function_params(function), strict=True):
        component._api_info |= {"additional_description": said[name]}
    returned = get_type_hints(function)["return"]
    if get_origin(returned) is Iterator:
        event.outputs[0]._api_info = python_type_to_json_schema(*get_args(returned))

"""Command-line options: those of the page, and those that the shell shares with it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import fields

from engine.logs import LEVELS
from engine.presets import DEFAULT_MODEL
from engine.requests import Limits


def add_device_options(parser: argparse._ActionsContainer) -> None:
    """--device, --dtype and --compile, as `load_model` takes them."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"]
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the decode steps, once, which takes minutes; needs a C++ compiler on a CPU",
    )


FLAGS = "BATCHSCOPE_FLAGS"


def page_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of `python app.py`, read from the variable BATCHSCOPE_FLAGS too, which a Space
    can set where it has no command line; arguments win."""
    return page_parser().parse_args([*shlex.split(os.environ.get(FLAGS, "")), *arguments])


def page_parser() -> argparse.ArgumentParser:
    """The options of `python app.py`."""
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
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what to log at least (%(default)s)"
    )
    parser.add_argument(
        "--log-prompts", action="store_true", help="also log what the prompts of each run say"
    )
    group = parser.add_argument_group(
        "limits for one run, and for the runs under way or waiting (default in brackets)"
    )
    for limit in fields(Limits):
        group.add_argument(
            f"--max-{limit.name.replace('_', '-')}",
            type=at_least_one,
            metavar="N",
            default=limit.default,
            help="(%(default)s)",
        )
    return parser


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits that the page's options name."""
    return Limits(**{limit.name: getattr(options, f"max_{limit.name}") for limit in fields(Limits)})


def port(text: str) -> int:
    """The type of an option that is a port number."""
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


def at_least_one(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)

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
    """--device, --device-map, --dtype and --compile, as `load_model` takes them."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--device-map",
        choices=["auto"],
        help="spread one model's layers over all GPUs; needs accelerate",
    )
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"]
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the decode steps, once, which takes minutes; needs a C++ compiler on a CPU",
    )


FLAGS = "BATCHSCOPE_FLAGS"
KEY_VARIABLE = "BATCHSCOPE_OPENAI_KEY"


def page_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of `python app.py`, read from the variable BATCHSCOPE_FLAGS too, which a Space
    can set where it has no command line; arguments win."""
    parser = page_parser()
    options = parser.parse_args([*shlex.split(os.environ.get(FLAGS, "")), *arguments])
    if options.openai and options.openai_key is None and KEY_VARIABLE in os.environ:
        parser.error(f"{KEY_VARIABLE} is empty: set it to the key, or unset it to ask for none")
    return options


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
        "--log-prompts",
        action="store_true",
        help="also log what the prompts of each run and of each collected batch say",
    )
    parser.add_argument(
        "--metrics",
        action="store_true",
        help="figures for Prometheus at /metrics, for whoever reaches the page; needs "
        "prometheus-client",
    )
    _add_openai_options(parser)
    _add_replica_options(parser)
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


def _add_replica_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("replicas, where one device is not enough; they need Ray")
    group.add_argument(
        "--replicas",
        type=at_least_one,
        metavar="N",
        help="run in N processes, each with the models and a GPU of its own, or with its share of "
        "the cores where there is none; needs ray",
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="of a Ray cluster, of which this machine is a part, for replicas on all its machines "
        "(default: one on this machine alone)",
    )


def _add_openai_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("OpenAI's endpoints, whose clients share static batches")
    group.add_argument(
        "--openai", action="store_true", help="serve them under /v1, and show them in a Watch tab"
    )
    group.add_argument(
        "--watch-texts",
        action="store_true",
        help="let whoever watches read the prompts and answers of all clients (default: none of "
        "them is sent to a browser)",
    )
    group.add_argument(
        "--openai-key",
        metavar="KEY",
        type=api_key,
        default=os.environ.get(KEY_VARIABLE) or None,
        help=f"what clients must send; better set in the variable {KEY_VARIABLE}, which no list of "
        "processes shows (default: none is asked for)",
    )
    group.add_argument(
        "--batch-window-ms",
        type=milliseconds,
        metavar="MS",
        default=50,
        help="how long a batch waits for more requests (%(default)s)",
    )
    group.add_argument(
        "--batch-size",
        type=at_least_one,
        metavar="N",
        default=8,
        help="the rows with which a batch is full, and starts at once (%(default)s)",
    )
    group.add_argument(
        "--most-waiting",
        type=at_least_one,
        metavar="N",
        default=1000,
        help="requests that may wait for a batch, and as many for their model; the next is refused "
        "(%(default)s)",
    )


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits that the page's options name."""
    return Limits(**{limit.name: getattr(options, f"max_{limit.name}") for limit in fields(Limits)})


def port(text: str) -> int:
    """The type of an option that is a port number."""
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


def milliseconds(text: str) -> int:
    """The type of an option that is a time to wait; 0 is none."""
    if not text.isdecimal() or int(text) > 60_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 60000 milliseconds")
    return int(text)


def api_key(text: str) -> str:
    """The type of an option that is a key, which travels in a header."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError("a key is printable ASCII without spaces")
    return text


def at_least_one(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)

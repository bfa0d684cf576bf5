"""Command-line options that the page and the shell share."""

from __future__ import annotations

import argparse


def add_device_options(parser: argparse._ActionsContainer) -> None:
    """--device and --dtype, as `load_model` takes them."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"]
    )

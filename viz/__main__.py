"""Saved runs as files to take away, in a shell: `python -m viz export`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine import runfile
from engine.errors import BatchscopeError, RequestError
from viz.export import NAMES, export_files
from viz.terminal import inert
from viz.theme import THEMES


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 if a format could not be made, or 2 if nothing
    could be."""
    options = build_parser().parse_args(arguments)
    sys.stdout.reconfigure(errors="replace")  # folders whose names the terminal can't write
    try:
        return options.command(options)
    except BatchscopeError as error:
        print(inert(f"error: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m viz", description="Turn a saved run into files to take away."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="export")
    export = commands.add_parser(
        "export",
        help="write a saved run as pictures, a replay, a table and a trace",
        description="Write a saved run as a slide (PNG at 1920x1080 and at twice that, SVG), a "
        "standalone HTML file that replays it, its JSON record, a CSV of its steps, and a trace "
        "for Perfetto.",
        epilog="example: python -m viz export run.json --out talk --format svg html --theme dark",
    )
    export.add_argument(
        "run", type=Path, metavar="RUN.json", help="a record that the page or engine saved"
    )
    export.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="made where it does not exist"
    )
    export.add_argument(
        "--format", nargs="+", choices=NAMES, default=NAMES, metavar="F", help=_list_of(NAMES)
    )
    export.add_argument("--theme", choices=THEMES, default="light", help="default light")
    export.set_defaults(command=export_command)
    return parser


def export_command(options: argparse.Namespace) -> int:
    """Write each format; one that can't be made is told and does not hold up the others."""
    run = runfile.load(options.run)
    _make_folder(options.out)
    failed = False
    for name in dict.fromkeys(options.format):
        try:
            for file, data in export_files(run, name, theme=options.theme):
                print(_write(options.out / file, data), flush=True)
        except BatchscopeError as error:
            print(inert(f"error: {name}: {error}"), file=sys.stderr)
            failed = True
    return int(failed)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{folder} can't be made a folder: {error.strerror}.") from error


def _write(path: Path, data: bytes) -> Path:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise RequestError(f"{path} can't be written: {error.strerror}.") from error
    return path


def _list_of(names: tuple[str, ...]) -> str:
    return f"any of {', '.join(names)} (default: all)"


if __name__ == "__main__":
    sys.exit(main())

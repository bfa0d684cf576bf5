"""A file of prompts -> prompts and their token budgets, or one sentence that names the line."""

from __future__ import annotations

import codecs
import csv
import io
import json
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from engine.errors import RequestError
from engine.inert import spelt_out
from engine.requests import Limits, check_budget, check_prompt

SUFFIXES = (".txt", ".csv", ".jsonl")
MAX_BYTES = 2**20
MAX_PROMPTS = 10_000
"""Where there are no limits; a record of more requests could not be opened again."""
MAX_NAME = 60
COLUMNS = ("prompt", "max_new_tokens")
"""Of a .csv file's header and of a .jsonl file's objects; the second may be missing."""


class FilePrompt(NamedTuple):
    """A prompt, and its token budget where the file names one."""

    prompt: str
    budget: int | None


class _Entry(NamedTuple):
    """What stands in a file, unchecked, and the line on which it starts, counted from 1."""

    line: int
    prompt: object
    budget: object = None


class _LineError(Exception):
    """What is wrong with a line of a file."""

    def __init__(self, line: int, problem: object) -> None:
        super().__init__(f"line {line}: {problem}")


def read_prompts(data: bytes, name: str, *, limits: Limits | None = None) -> list[FilePrompt]:
    """The prompts of a file called `name`, in its order.

    .txt has a prompt per line; .csv a header with `prompt` and, if wanted, `max_new_tokens`;
    .jsonl a JSON string per line, or an object with these keys. Blank lines are skipped. At most
    MAX_BYTES of UTF-8, with or without a byte order mark. Raises RequestError, naming the line.
    """
    shown, suffix = shown_name(name), PurePath(name).suffix.lower()
    _check_suffix(suffix, shown)
    if len(data) > MAX_BYTES:
        raise RequestError(f"{shown} is larger than {MAX_BYTES // 2**20} MiB.")
    entries = {".txt": _text_lines, ".csv": _csv_records, ".jsonl": _json_lines}[suffix]
    most = limits.prompts if limits else MAX_PROMPTS
    prompts: list[FilePrompt] = []
    try:
        for entry in entries(_decode(data)):
            where = f"{shown}, line {entry.line}"
            if len(prompts) == most:
                raise RequestError(f"{where}: one prompt too many, the limit is {most:,}.")
            prompt = _check_prompt(entry.prompt, where, limits)
            prompts.append(FilePrompt(prompt, _check_budget(entry.budget, where, limits)))
    except _LineError as error:
        raise RequestError(f"{shown}, {error}.") from error
    if not prompts:
        raise RequestError(f"{shown} has no prompts.")
    return prompts


def shown_name(name: str) -> str:
    """A file's name, short and on one line, without what a terminal or a page would obey."""
    end = PurePath(name).name or "The file"
    short = end if len(end) <= MAX_NAME else f"{end[: MAX_NAME // 2]}…{end[-MAX_NAME // 2 :]}"
    return spelt_out(short)


def _check_suffix(suffix: str, shown: str) -> None:
    *most, last = SUFFIXES
    these = f"files of prompts end in {', '.join(most)} or {last}"
    if suffix == ".json":
        raise RequestError(
            f"{shown}: {these}. If it is a saved run, open it beside the picture instead."
        )
    if suffix not in SUFFIXES:
        raise RequestError(f"{shown}: {these}.")


def _decode(data: bytes) -> str:
    """UTF-8 with "\\n" at the end of each line, whatever the file has there."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _LineError(1, "this is UTF-16: save the file as UTF-8")
    try:
        return _one_newline(data.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        before = _one_newline(data[: error.start].decode())
        problem = f"not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise _LineError(before.count("\n") + 1, problem) from error


def _one_newline(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text_lines(text: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _Entry(number, line)


def _json_lines(text: str) -> Iterator[_Entry]:
    for number, line, _ in _text_lines(text):
        try:
            value = _JSON.decode(line)
            record = value if isinstance(value, dict) else {COLUMNS[0]: value}
            _check_names(record, "key")
        except json.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} (character {error.pos + 1})"
            raise _LineError(number, problem) from error
        except RecursionError as error:
            raise _LineError(number, "nested too deeply") from error
        except ValueError as error:
            raise _LineError(number, error) from error
        yield _Entry(number, *map(record.get, COLUMNS))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_unique([key for key, _ in pairs], "key")
    return dict(pairs)


def _short_int(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise ValueError("a number is too long") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_short_int, parse_constant=_refuse_constant
)


def _csv_records(text: str) -> Iterator[_Entry]:
    records = _records(text)
    number, header = next(records, (1, None))
    if header is None:
        return
    names = [name.strip() for name in header]
    try:
        _check_unique(names, "column")
        _check_names(names, "column")
    except ValueError as error:
        raise _LineError(number, error) from error
    for number, fields in records:
        if len(fields) != len(names):
            raise _LineError(
                number,
                f"{len(fields)} values where the header has {len(names)}; a prompt with a comma "
                "needs quotes round it",
            )
        record = dict(zip(names, fields, strict=True))
        yield _Entry(number, record[COLUMNS[0]], record.get(COLUMNS[1], "").strip() or None)


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not a blank line, with the line on which it starts."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            problem = "a quote is never closed" if unclosed else f"not CSV: {error}"
            raise _LineError(line, problem) from error
        if fields:
            yield line, fields


def _check_unique(names: Iterable[str], kind: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {kind} {_quoted(name)} is there twice")
        seen.add(name)


def _check_names(names: Iterable[str], kind: str) -> None:
    for name in names:
        if name not in COLUMNS:
            raise ValueError(
                f"the {kind} {_quoted(name)} is unknown, there are {COLUMNS[0]} and {COLUMNS[1]}"
            )
    if COLUMNS[0] not in names:
        raise ValueError(f"the {kind} {COLUMNS[0]} is missing")


def _check_prompt(prompt: object, where: str, limits: Limits | None) -> str:
    if not isinstance(prompt, str):
        raise RequestError(f"{where}: the prompt must be text, not {_quoted(prompt)}.")
    if "\0" in prompt:
        raise RequestError(f"{where}: the prompt has a NUL character.")
    return check_prompt(prompt, f"{where}: the prompt", limits)


def _check_budget(budget: object, where: str, limits: Limits | None) -> int | None:
    if budget is None:
        return None
    if not isinstance(budget, (int, float, str)):
        raise RequestError(f"{where}: the token budget must be a number, not {_quoted(budget)}.")
    return check_budget(budget, f"{where}: the token budget", limits)


def _quoted(value: object) -> str:
    """Any value of a file, on one line and short, however deep it is."""
    return reprlib.repr(value)

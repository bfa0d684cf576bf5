"""Files of prompts."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine.promptfile import read_prompts
from engine.requests import make_requests
from tests.mutants import broken_bytes, broken_json, partly_wrong, texts
from tests.targets.target import LIMITS


def prompt_files() -> SearchStrategy[tuple[str, bytes]]:
    files = [
        b'prompt,max_new_tokens\r\nHello,4\r\n"a, ""b""\nc",\r\n',
        b"max_new_tokens;prompt\n4;Hello\n",
        b'{"prompt": "Hello", "max_new_tokens": 4}\n\n"world"\n{"prompt": "x"}\n',
        "\ufeffGrüße 🤗\n\n  中文\r\nlast".encode(),
        "prompt\nGrüße".encode("utf-16"),
    ]
    records = st.lists(
        partly_wrong(
            {"prompt": st.text(min_size=1, max_size=9), "max_new_tokens": st.integers(1, 6)}
        ),
        max_size=5,
    )
    written = records.map(lambda rows: "\n".join(map(json.dumps, rows)).encode("utf-8", "replace"))
    lines = broken_json(['{"prompt": "Hello", "max_new_tokens": 4}']).map(str.encode)
    right = st.sampled_from(["a.txt", "a.csv", "a.jsonl", "b.JSONL"])
    names = st.one_of(right, right, right, texts, texts.map(lambda text: f"{text}.csv"))
    data = st.one_of(broken_bytes(files), written, lines, st.binary(), texts.map(_utf8))
    large = st.sampled_from([b"a\n", b"a,", b'"', b'{"prompt":', b"[", b"1", b"\r", b"\x00"])
    return st.tuples(names, data | large.map(lambda part: part * 200_000))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def open_prompts(file: tuple[str, bytes]) -> None:
    name, data = file
    prompts = read_prompts(data, name, limits=LIMITS)
    make_requests(
        [prompt for prompt, _ in prompts],
        max_new_tokens=[1 if budget is None else budget for _, budget in prompts],
        limits=LIMITS,
    )

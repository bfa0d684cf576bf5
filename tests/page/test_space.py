"""The page as a host starts it: `app.demo`, `python app.py` with flags, and what it listens on."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine.logs import FOREIGN
from tests.serving import Visitor, rows_of, served
from tests.tiny import scripted_lm

ROOT = Path(__file__).parents[2]


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@contextmanager
def started(*arguments, stderr=subprocess.DEVNULL, **environment):
    """`python app.py` with flags; yields the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-u", "app.py", "--model", "/no/such/model", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        line = next(line for line in process.stdout if "http://" in line)
        yield "http://" + line.partition("http://")[2].strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def components(url):
    found = httpx.get(f"{url}/config").json()["components"]
    return {part["props"]["label"]: part["props"] for part in found if part["props"].get("label")}


def test_demo_is_there_at_import_and_brings_neither_torch_nor_a_model():
    script = "import app, sys; print(type(app.demo).__name__, 'torch' in sys.modules)"
    assert python("-c", script) == "Demo False"


def test_whoever_launches_demo_gets_its_looks_and_its_settings():
    with served(scripted_lm([[1]])) as url:
        page, config = httpx.get(url).text, httpx.get(f"{url}/config").json()
        style = httpx.get(f"{url}/theme.css").text
    assert "--bs-accent" in page + style + (config["css"] or "")
    assert ".bs-stage" in page + style + (config["css"] or "")
    assert config["footer_links"] == []


def test_flags_make_the_page_and_it_is_for_this_machine_alone():
    with started("--max-batch-size", "5", "--model", "other") as url:
        parts = components(url)
    assert url.startswith("http://127.0.0.1:")
    assert parts["Batch size (slots)"]["maximum"] == 5
    assert [name for name, _ in parts["Model"]["choices"]] == ["/no/such/model", "other"]


@pytest.mark.parametrize(
    ("flags", "environment", "host"),
    [
        ([], {"GRADIO_SERVER_NAME": "0.0.0.0"}, "0.0.0.0"),
        (["--host", "127.0.0.1"], {"GRADIO_SERVER_NAME": "0.0.0.0"}, "127.0.0.1"),
    ],
)
def test_the_hosts_address_holds_unless_a_flag_says_otherwise(flags, environment, host):
    with started(*flags, **environment) as url:
        assert url.startswith(f"http://{host}:")
        port = url.rpartition(":")[2]
        assert httpx.get(f"http://127.0.0.1:{port}/config").status_code == 200


FORGED = "2026-01-01 00:00:00,000 INFO batchscope.host: run 99 done"


def log_of(tmp_path, *flags, visit):
    """The lines that a host with these flags logs of a visit."""
    log = tmp_path / "log"
    with log.open("w") as stderr, started(*flags, stderr=stderr) as url:
        visit(Visitor(url))
    return log.read_text().splitlines()


def visit_and_forge(visitor):
    visitor.run(rows_of(["Hi"], 3), f"x\n{FORGED}")
    visitor.run(rows_of([""], 3), "/no/such/model")
    # Gradio itself would print a traceback that quotes what it was sent.
    assert visitor.call("export", {"x": 1}, f"\n{FORGED}\x1b[31m\n", "light").status_code == 400
    assert visitor.call("export", f"\n{FORGED}\x1b[31m\n").status_code == 400


def test_nothing_typed_can_look_like_a_line_of_the_log(tmp_path):
    lines = log_of(tmp_path, visit=visit_and_forge)
    own = [line for line in lines if not line.startswith(FOREIGN)]
    assert not any(FORGED in line or "\x1b" in line for line in lines)
    told = [line.partition("batchscope.host: ")[2] for line in own if "batchscope.host" in line]
    assert told[0].startswith("run 1 refused: This page does not offer the model 'x\\n")
    assert told[1:] == ["run 2 refused: Prompt 1 is empty."]


def test_the_log_starts_at_the_level_that_was_asked_for(tmp_path):
    lines = log_of(tmp_path, "--log-level", "error", visit=visit_and_forge)
    assert all(line.startswith(FOREIGN) for line in lines if line)

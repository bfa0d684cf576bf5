"""The files to take away: which there are, what they are called, and `python -m viz export`."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import viz.export
from engine import runfile
from engine.errors import BatchscopeError
from tests.unit.pages import Reader
from tests.unit.paper import WORKED, cut
from viz import png as png_file
from viz.__main__ import main
from viz.export import FORMATS, NAMES, TEXTS, export_files, export_text, file_name

ROOT = Path(__file__).parents[2]
NAME = "batchscope-paper-2025-01-01T00-00-00"
PNG_START = b"\x89PNG\r\n\x1a\n"


def size_of(data):
    """Width and height that a PNG says it has."""
    assert data.startswith(PNG_START)
    return tuple(int.from_bytes(data[at : at + 4]) for at in (16, 20))


@pytest.fixture
def shell(tmp_path, capsys):
    """Export WORKED into a folder -> exit status, {file name: content}, stdout, stderr."""
    saved = tmp_path / "saved.json"
    runfile.save(WORKED, saved)

    def run(*arguments, record=saved):
        status = main(["export", str(record), "--out", str(tmp_path / "out"), *arguments])
        told = capsys.readouterr()
        files = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*")}
        return status, files, told.out, told.err

    return run


@pytest.fixture
def drawn(monkeypatch):
    """A stand-in for the browser that draws PNGs; it keeps what it was asked for."""
    asked = []

    def draw(svg, *, scale=1):
        asked.append((svg, scale))
        return PNG_START

    monkeypatch.setattr(viz.export, "png", draw)
    return asked


def test_json_reads_back_as_the_run():
    assert runfile.loads(export_text(WORKED, "json")) == WORKED


def test_each_text_is_what_its_name_says():
    assert ElementTree.fromstring(export_text(WORKED, "svg")).get("width") == "1920"
    assert len(list(csv.DictReader(io.StringIO(export_text(WORKED, "csv"), newline="")))) == 30
    assert json.loads(export_text(WORKED, "trace"))["traceEvents"]
    assert Reader(export_text(WORKED, "html")).elements[0] == ("html", {"lang": "en"})


@pytest.mark.parametrize("format", TEXTS)
def test_a_run_that_was_stopped_before_its_first_step_can_be_exported(format):
    assert export_text(replace(cut(WORKED, 0, status="stopped"), texts=("",) * 3), format)


def test_formats_have_different_file_names_and_a_media_type():
    suffixes = [each.suffix for each in FORMATS]
    assert len(set(suffixes)) == len(suffixes)
    assert all(re.fullmatch(r"[a-z]+/[a-z+]+", each.media_type) for each in FORMATS)
    assert set(NAMES) == {"png", *TEXTS}


def test_the_theme_changes_the_pictures():
    assert export_text(WORKED, "svg", theme="light") != export_text(WORKED, "svg", theme="dark")
    bodies = [
        dict(Reader(export_text(WORKED, "html", theme=theme)).elements)["body"]["class"]
        for theme in ("light", "dark")
    ]
    assert bodies == ["", "dark"]


def test_a_recorded_run_is_labelled_in_both_pictures():
    for name in ("svg", "html"):
        assert export_text(WORKED, name, recorded=True) != export_text(WORKED, name)


@pytest.mark.parametrize(
    ("format", "theme", "sentence"),
    [
        ("gif", "light", "The format must be one of svg, html, json, csv, trace, not 'gif'."),
        ("png", "light", "The format must be one of svg, html, json, csv, trace, not 'png'."),
        (None, "light", "The format must be one of svg, html, json, csv, trace, not None."),
        (["svg"], "light", "The format must be one of svg, html, json, csv, trace, not ['svg']."),
        ("svg", "blue", "The theme must be light or dark, not 'blue'."),
        ("csv", None, "The theme must be light or dark, not None."),
    ],
)
def test_what_can_not_be_exported_is_said_in_plain_words(format, theme, sentence):
    with pytest.raises(BatchscopeError) as error:
        export_text(WORKED, format, theme=theme)
    assert str(error.value) == sentence


def test_an_unknown_file_format_is_refused():
    with pytest.raises(BatchscopeError, match="one of png, svg, html, json, csv, trace, not 'x'"):
        list(export_files(WORKED, "x"))


@pytest.mark.parametrize(
    ("model", "started_at", "name"),
    [
        ("Qwen/Qwen3-0.6B", "2026-11-29T18:39:10+00:00", "Qwen-Qwen3-0.6B-2026-11-29T18-39-10"),
        ("../../etc/passwd", "../..", "etc-passwd-run"),
        ("\u4e2d\u6587", "", "run-run"),
        ("a b\n<c>", "2026", "a-b-c-2026"),
    ],
)
def test_a_file_name_has_safe_characters_only(model, started_at, name):
    run = replace(WORKED, model=replace(WORKED.model, name=model), started_at=started_at)
    assert file_name(run, ".svg") == f"batchscope-{name}.svg"


def test_a_file_name_is_never_too_long_for_a_disk():
    run = replace(WORKED, model=replace(WORKED.model, name="m" * 500))
    assert len(file_name(run, ".trace.json")) < 120


def test_the_shell_writes_every_format_and_names_each_file(shell, drawn, tmp_path):
    status, files, out, err = shell()
    assert (status, err) == (0, "")
    assert set(files) == {f"{NAME}{each.suffix}" for each in FORMATS}
    assert out.splitlines() == [str(tmp_path / "out" / f"{NAME}{each.suffix}") for each in FORMATS]
    assert files[f"{NAME}.csv"].decode() == export_text(WORKED, "csv")
    assert runfile.loads(files[f"{NAME}.json"]) == WORKED
    assert [scale for _, scale in drawn] == [1, 2]
    assert drawn[0][0] == files[f"{NAME}.svg"].decode()


def test_the_shell_writes_what_was_asked_for_in_the_theme(shell):
    status, files, _, _ = shell("--format", "csv", "svg", "--theme", "dark")
    assert status == 0
    assert set(files) == {f"{NAME}.csv", f"{NAME}.svg"}
    assert files[f"{NAME}.svg"].decode() == export_text(WORKED, "svg", theme="dark")


def test_without_kaleido_the_other_formats_are_written_and_it_says_what_to_install(
    shell, monkeypatch
):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    status, files, out, err = shell("--format", "png", "json", "csv")
    assert status == 1
    assert set(files) == {f"{NAME}.json", f"{NAME}.csv"}
    assert len(out.splitlines()) == 2
    assert err == (
        "error: png: PNG needs kaleido; the other formats do not. "
        'Install it with: pip install "kaleido>=1"\n'
    )


class MissingBrowserError(Exception):
    """What kaleido raises where there is no Chrome."""


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (MissingBrowserError(), "PNG needs Chrome or Chromium; the other formats do not. "),
        (RuntimeError("tab died.\nmore"), "Chrome could not draw the PNG: tab died."),
    ],
)
def test_without_a_working_chrome_it_says_so(monkeypatch, failure, sentence):
    def fail(*_, **__):
        raise failure

    kaleido = type(sys)("kaleido")
    kaleido.calc_fig_sync = fail
    errors = type(sys)("kaleido.errors")
    errors.ChromeNotFoundError = MissingBrowserError
    monkeypatch.setitem(sys.modules, "kaleido", kaleido)
    monkeypatch.setitem(sys.modules, "kaleido.errors", errors)
    with pytest.raises(png_file.PngError) as error:
        png_file.png('<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"/>')
    assert str(error.value).startswith(sentence)
    assert "more" not in str(error.value)


@pytest.mark.parametrize(("scale", "size"), [(1, (1920, 1080)), (2, (3840, 2160))])
def test_kaleido_draws_the_slide_at_its_size(scale, size):
    pytest.importorskip("kaleido", reason="kaleido draws the PNGs; it is not required")
    data = png_file.png(export_text(WORKED, "svg"), scale=scale)
    assert size_of(data) == size
    assert len(data) > 20_000  # more than a plain ground


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "missing.json is not a file."),
        ("{}", "Not a saved run: schema version None, this program reads 1 to 2."),
        ("<html>", "Not a saved run: "),
    ],
)
def test_a_file_that_is_no_run_is_refused(shell, tmp_path, content, sentence):
    path = tmp_path / "missing.json"
    if content is not None:
        path.write_text(content)
    status, files, out, err = shell(record=path)
    assert (status, files, out) == (2, {}, "")
    assert err.startswith(f"error: {sentence}")


def test_a_folder_that_can_not_be_made_is_refused(shell, tmp_path):
    (tmp_path / "out").write_text("a file")
    status, _, _, err = shell("--format", "json")
    assert status == 2
    assert "can't be made a folder" in err


def test_python_m_viz_export(tmp_path):
    record = tmp_path / "run.json"
    runfile.save(WORKED, record)
    command = [sys.executable, "-m", "viz", "export", str(record), "--out", str(tmp_path / "talk")]
    done = subprocess.run(
        [*command, "--format", "json", "csv", "trace", "svg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(map(str, (tmp_path / "talk").iterdir()))
    assert runfile.load(tmp_path / "talk" / f"{NAME}.json") == WORKED
    refused = subprocess.run([*command, "--format", "gif"], cwd=ROOT, capture_output=True)
    assert refused.returncode == 2
    assert b"gif" in refused.stderr

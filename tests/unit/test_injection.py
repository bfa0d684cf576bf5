"""Hostile texts in what leaves the page: files, their names, the lines of a terminal and a log."""

import csv
import io
import json
import logging
import re
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine import runfile
from engine.__main__ import main as run_engine
from engine.errors import BatchscopeError, RecordError, RequestError
from engine.host import Host
from engine.logs import FOREIGN, OneLine
from engine.requests import Limits, make_requests
from engine.shelf import ModelShelf
from engine.static import StaticBatchEngine
from tests.injection import CORPUS, IDS, TEXTS, byte_ids, emitted, is_unicode, saved_run
from tests.tiny import EOS, scripted_lm
from tests.unit.pages import Reader
from viz.__main__ import main as run_viz
from viz.export import FORMATS, export_text, file_name
from viz.offline.offline import script_json
from viz.svg import clean
from viz.table import FORMULA_STARTS, SIGNS, guard, unguard

FILED = {name: text for name, text in zip(IDS, TEXTS, strict=True) if is_unicode(text)}
"""What a file in UTF-8 can hold."""
PLAIN = saved_run(["a plain text", "another one"])

each = pytest.mark.parametrize("text", TEXTS, ids=IDS)
each_filed = pytest.mark.parametrize("text", FILED.values(), ids=FILED.keys())
each_kind = pytest.mark.parametrize("kind", CORPUS)


def filed(kind):
    return [text for text in CORPUS[kind].values() if is_unicode(text)]


def one_line_end(text):
    """As XML reads line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def controls(text):
    """The characters that a terminal would obey, besides tab and the end of a line, and those that
    are not seen or turn the direction of what follows."""
    found = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
    return found - {"\t", "\n", "\u200c", "\u200d"}


def reads_strictly(text):
    def refuse(name):
        raise AssertionError(f"{name} is no number")

    return json.loads(text, parse_constant=refuse)


def test_the_corpus_is_large_and_names_each_text_once():
    assert len(CORPUS) >= 10
    assert len(TEXTS) == len(set(TEXTS)) == len(set(IDS)) >= 60


@each
def test_a_request_holds_it_as_it_is_or_says_why_not(text):
    if is_unicode(text):
        assert make_requests([text])[0].prompt == text
    else:
        with pytest.raises(RequestError, match=r"^Prompt 1 is not Unicode text: it has half of"):
            make_requests([text])


@each_kind
def test_b7_a_model_that_says_it_has_said_it(kind):
    """B7: every character as it was generated."""
    texts = list(CORPUS[kind].values())
    lm = scripted_lm([[*byte_ids(text), EOS] for text in texts])
    run = StaticBatchEngine(lm, batch_size=len(texts)).run(
        make_requests(["x"] * len(texts), max_new_tokens=512)
    )
    assert run.texts == tuple(map(emitted, texts))
    assert runfile.loads(runfile.dumps(run)) == run


@each_filed
def test_a_saved_run_reads_back(text):
    run = saved_run([text, "another"])
    reads_strictly(runfile.dumps(run))
    assert runfile.loads(runfile.dumps(run)) == run


@each
def test_in_the_place_of_anything_else_it_is_refused_in_one_line(text):
    written = json.loads(runfile.dumps(PLAIN))
    (step, *_), (batch, *_) = written["steps"], written["batches"]
    for holder, field in (
        (written, "schema_version"),
        (written, "status"),
        (written, "started_at"),
        (written["settings"], "engine"),
        (batch, "padding_side"),
        (step, "phase"),
        (step, "seconds"),
        (written, text),
    ):
        before = dict(holder)
        holder[field] = text
        with pytest.raises(RecordError) as error:
            runfile.loads(json.dumps(written))
        assert str(error.value).startswith("Not a saved run: ")
        holder.clear()
        holder.update(before)
    assert runfile.loads(json.dumps(written)) == PLAIN


@each_filed
def test_b8_in_a_picture_it_is_text(text):
    """B8."""

    def outline(run):
        root = ElementTree.fromstring(export_text(run, "svg"))
        names = {
            (element.tag.rpartition("}")[2], *sorted(element.attrib)) for element in root.iter()
        }
        return root, names

    root, names = outline(saved_run([text, "another"]))
    known = outline(PLAIN)[1] | {_RTL}
    assert names <= known
    assert {name for name, *_ in known} == {"svg", "title", "desc", "rect", "g", "path", "text"}
    described = root.find("{http://www.w3.org/2000/svg}desc").text
    assert one_line_end(clean(f"{text} and another")).strip() in described


_RTL = (
    "text",
    *sorted(
        ("direction", "fill", "font-size", "font-weight", "text-anchor", "x", "y"),
    ),
)


@each_kind
def test_b8_in_a_page_to_take_away_it_is_data(kind):
    """B8."""
    texts = filed(kind)
    page = Reader(export_text(saved_run(texts), "html"))
    assert page.outline == Reader(export_text(PLAIN, "html")).outline
    value = json.loads(page.scripts[0])["value"]
    assert value["prompts"] == texts
    assert not [about for _, about in page.elements if {"src", "href", "srcset"} & about.keys()]


def test_the_page_to_take_away_may_run_its_own_scripts_only_and_ask_for_nothing():
    policy = next(
        about["content"]
        for _, about in Reader(export_text(PLAIN, "html")).elements
        if about.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "http" not in policy


@each_filed
def test_json_inside_a_script_keeps_its_value_and_never_ends_the_script(text):
    value = {"text": text, text: [1.5, None]}
    written = script_json(value)
    assert json.loads(written) == value
    assert not set(written) & set("<\u2028\u2029")


@each_filed
def test_in_a_trace_it_is_data(text):
    trace = reads_strictly(export_text(saved_run([text, "another"]), "trace"))
    said = [event["args"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert text in [about.get("prompt") for about in said]
    assert text in [about.get("text") for about in said]


@each_filed
def test_in_a_table_it_reads_back_and_is_no_formula(text):
    written = export_text(saved_run([text, "another"]), "csv")
    lines = list(csv.DictReader(io.StringIO(written, newline=""), strict=True))
    assert unguard(lines[0]["text"]) == text
    assert formulas(written) == []


@given(st.text(alphabet="=+-@\t\r\n;,'\"|a \uff1d"))
def test_no_text_is_a_formula_whatever_separates_the_cells(text):
    assert unguard(guard(text)) == text
    assert formulas(export_text(saved_run([text or "x"]), "csv")) == []


def formulas(table):
    """Cells that a spreadsheet would run, whose cells may end at a comma, a semicolon or a tab."""
    return [
        cell
        for delimiter in ",;\t"
        for line in csv.reader(io.StringIO(table, newline=""), delimiter=delimiter)
        for cell in line
        if cell.startswith(tuple(FORMULA_STARTS if delimiter == "," else SIGNS))
    ]


@each_filed
def test_a_file_name_has_safe_characters_only(text):
    for each_format in FORMATS:
        name = file_name(saved_run([text]), each_format.suffix)
        assert re.fullmatch(r"batchscope(-[A-Za-z0-9.]+)+", name)
        assert name.endswith(each_format.suffix)
        assert len(name) < 160


@each_kind
def test_in_a_terminal_it_is_text(kind, monkeypatch, capsys, tmp_path):
    texts = filed(kind)
    lm = scripted_lm([[*byte_ids(text), EOS] for text in texts])
    monkeypatch.setattr(engine, "load_model", lambda *_, **__: lm, raising=False)
    saved = tmp_path / "run.json"
    prompts = [f"--prompt={text}" for text in texts]
    status = run_engine(["run", *prompts, "--max-new-tokens", "512", "--json", str(saved)])
    told = capsys.readouterr()
    assert status == 0
    assert controls(told.out + told.err) == set()
    run = runfile.load(saved)
    assert [request.prompt for request in run.requests] == texts
    assert run.texts == tuple(texts)
    for text in texts:
        for word in re.findall(r"[A-Za-z]+", text):
            assert word in told.out


@each_filed
def test_a_refusal_in_a_terminal_is_text(text, capsys, tmp_path):
    record = json.loads(runfile.dumps(PLAIN)) | {text: 1}
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps(record))
    assert run_viz(["export", str(saved), "--out", str(tmp_path / "out")]) == 2
    assert run_engine(["run", "--prompt=x", f"--max-new-tokens={text}"]) == 2
    name = text.replace("\0", "")  # which no argument of a command can have
    assert run_engine(["run", f"--prompts-file={tmp_path}/no/{name}"]) == 2
    told = capsys.readouterr()
    assert told.err.count("error: ") >= 3
    assert controls(told.out + told.err) == set()


@each_kind
def test_exported_files_stay_in_their_folder(kind, tmp_path):
    for number, text in enumerate(filed(kind)):
        saved = tmp_path / f"{number}.json"
        runfile.save(saved_run([text]), saved)
        out = tmp_path / "out" / str(number)
        assert run_viz(["export", str(saved), "--out", str(out), "--format", "csv", "trace"]) == 0
        assert len(list(out.iterdir())) == 2
    assert len(list((tmp_path / "out").iterdir())) == len(filed(kind))
    assert len(list(tmp_path.iterdir())) == len(filed(kind)) + 1


@each_filed
def test_a_model_by_that_name_is_refused_and_loads_nothing(text, monkeypatch):
    def load(*_, **__):
        raise AssertionError("a model outside the list was asked for")

    monkeypatch.setattr(engine, "load_model", load, raising=False)
    with pytest.raises(BatchscopeError, match="does not offer the model"):
        list(Host(ModelShelf(["one"]), Limits()).run("me", prompts=["x"], model=text))


@pytest.fixture
def log():
    """What the host's log holds, line by line."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine("%(levelname)s %(message)s"))
    logger = logging.getLogger("batchscope")
    logger.addHandler(handler)
    yield lambda: written.getvalue().split("\n")
    logger.removeHandler(handler)


@each_kind
def test_in_the_log_it_begins_no_line(kind, log, monkeypatch):
    """An error's text stays on the line of its run, or is set off with its traceback."""
    texts = filed(kind)
    # After each failure it looks through all that was ever imported, which takes a while.
    monkeypatch.setattr("engine.static._free_memory", lambda device: None)
    for text in texts:

        def fail(column, text=text):
            if column == 2:
                raise RuntimeError(f"{text}\nERROR another line")

        lm = scripted_lm([byte_ids(text)], before_forward=fail)
        shelf = ModelShelf([lm.name])
        shelf.add(lm)
        frames = list(Host(shelf, Limits()).run("me", prompts=[text], max_new_tokens=5))
        assert frames[-1].status == "error"
    lines = log()
    assert controls("".join(lines)) == set()
    own = [line for line in lines if line and not line.startswith(FOREIGN)]
    assert [line.split()[:2] for line in own if "run 1 error" in line] == [
        ["WARNING", "run"]
    ] * len(texts)
    assert [line for line in own if line.startswith("ERROR another")] == []

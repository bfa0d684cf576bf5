"""C12: runs as files: strict JSON out, and nothing but a run that fits together in."""

import json
from dataclasses import replace

import pytest

from engine import runfile
from engine.errors import RecordError, RunError
from engine.metrics import measure
from engine.requests import make_requests
from engine.run import SCHEMA_VERSION, Sampling
from engine.static import StaticBatchEngine
from tests.tiny import EOS, scripted_lm, tiny_lm, token_ids
from tests.unit.paper import WORKED, make_run
from viz.recorded import FOLDER as RECORDINGS_FOLDER


def engine_runs():
    """Real records of every status: greedy, sampled, several batches, ids and texts, T = 1."""
    lm = scripted_lm([token_ids("a🤗"), [*token_ids("b"), EOS]])
    mixed = make_requests(["héllo 🤗\n\u2028", [1, 2, 3], "x" * 30], max_new_tokens=[3, 5, 1])
    yield StaticBatchEngine(lm, batch_size=2).run(mixed)
    yield StaticBatchEngine(lm).run(make_requests(["a", "b"], max_new_tokens=1))
    sampled = make_requests(["a", "bc"], temperature=0.7, top_k=5, top_p=0.9, max_new_tokens=4)
    yield StaticBatchEngine(tiny_lm()).run(sampled)
    stream = StaticBatchEngine(lm).stream(mixed)
    next(stream)
    yield stream.record()
    stream.close()
    yield stream.record()

    def fail(column):
        if column == 2:
            raise ValueError("broken")

    stream = StaticBatchEngine(scripted_lm([[65]], before_forward=fail)).stream(mixed)
    with pytest.raises(RunError):
        list(stream)
    yield stream.record()


def test_c12_saved_runs_load_as_they_were(tmp_path):
    statuses = []
    for run in [WORKED, *engine_runs()]:
        runfile.save(run, tmp_path / "run.json")
        loaded = runfile.load(tmp_path / "run.json")
        assert loaded == run
        assert measure(loaded) == measure(run)
        statuses.append(run.status)
    assert set(statuses) == {"done", "running", "stopped", "error"}


def test_c12_a_saved_run_is_strict_json():
    def refuse(constant):
        raise AssertionError(f"{constant} in the file")

    text = runfile.dumps(make_run([[(3, 1), (5, 1)]]))
    assert json.loads(text, parse_constant=refuse)["schema_version"] == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_c12_what_is_not_a_number_is_never_written(number):
    broken = replace(WORKED, steps=(replace(WORKED.steps[0], seconds=number),))
    with pytest.raises(ValueError, match="not JSON compliant"):
        runfile.dumps(broken)


def data():
    return json.loads(runfile.dumps(WORKED))


def refused(text) -> str:
    """The one sentence with which a text is refused."""
    with pytest.raises(RecordError) as caught:
        runfile.loads(text)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 300
    return sentence


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_c12_numbers_that_are_none_are_refused(number):
    text = runfile.dumps(WORKED)
    assert '"seconds":0.5' in text
    assert number in refused(text.replace('"seconds":0.5', f'"seconds":{number}'))


def set_at(path, value):
    """A change of the file: the value at a path."""

    def change(file):
        *parents, last = path
        for key in parents:
            file = file[key]
        file[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        # Unknown and missing fields
        (set_at(["extra"], 1), "extra"),
        (set_at(["steps", 0, "extra"], 1), r"steps\.0\.extra"),
        (lambda file: file.pop("model"), "model"),
        (lambda file: file["steps"][3].pop("ends"), r"steps\.3\.ends"),
        # Wrong types and values
        (set_at(["started_at"], 5), "started_at"),
        (set_at(["steps", 0, "seconds"], "0.5"), r"steps\.0\.seconds"),
        (set_at(["steps", 0, "tokens", 0], 6.5), r"steps\.0\.tokens\.0"),
        (set_at(["steps", 0, "tokens", 0], True), r"steps\.0\.tokens\.0"),
        (set_at(["steps", 0, "phase"], "warm-up"), r"steps\.0\.phase"),
        (set_at(["steps", 3, "ends", 0], "bored"), r"steps\.3\.ends\.0"),
        (set_at(["status"], "fine"), "status"),
        (set_at(["batches"], None), "batches"),
        (set_at(["settings", "padding_side"], "top"), "padding_side"),
        # Parts that don't fit each other
        (set_at(["schema_version"], 3), "schema version 3"),
        (set_at(["started_at"], "yesterday"), "'yesterday' is no date and time"),
        (set_at(["batches", 0, "padding_side"], "right"), "padded on the other side"),
        (set_at(["error"], "odd"), "called done, with an error"),
        (set_at(["status"], "error"), "called error, with no error"),
        (set_at(["texts", 0], "B"), "does not begin with"),
        (set_at(["steps", 5, "ends", 0], "eos"), "ends twice"),
        (set_at(["steps", 3, "started"], 0.01), "starts before what comes first"),
        (set_at(["requests"], []), "there are no requests"),
        (set_at(["requests", 1, "index"], 5), "not numbered"),
        (set_at(["texts"], ["a", "b"]), "2 texts for 3 requests"),
        (set_at(["batches", 0, "requests"], [0, 2, 1]), "seat each request once"),
        (set_at(["batches"], []), "seat each request once"),
        (set_at(["batches", 0, "index"], 4), "batch 0 is numbered 4"),
        (set_at(["batches", 0, "prompt_ids"], [[1], [2]]), "one prompt for each"),
        (set_at(["batches", 0, "prompt_ids", 1], []), "one prompt for each"),
        (set_at(["settings", "batch_size"], 2), "3 of 2 slots"),
        (set_at(["steps", 2, "batch"], 1), "batch 1"),
        (set_at(["steps", 2, "forward"], 9), "forward 9 is out of order"),
        (set_at(["steps", 0, "phase"], "decode"), "called decode"),
        (set_at(["steps", 1, "phase"], "prefill"), "called prefill"),
        # What no real run has
        (set_at(["requests", 0, "max_new_tokens"], 0), "a token budget is not between 1 and 1,0"),
        (set_at(["requests", 0, "max_new_tokens"], 30_000_000), "budget is not .* 1,000,000"),
        (set_at(["settings", "batch_size"], 0), "the batch size is not between 1 and 10,000"),
        (set_at(["settings", "batch_size"], 10**9), "the batch size is not"),
        (set_at(["steps", 0, "tokens", 0], -1), "a token id is not between 0 and 2,147,483,647"),
        (set_at(["steps", 0, "tokens", 0], 2**31), "a token id is not"),
        (set_at(["batches", 0, "prompt_ids", 0, 0], 10**30), "a token id is not"),
        (set_at(["requests", 0, "prompt", 0], -5), "a token id is not"),
        (set_at(["steps", 1, "seconds"], -0.5), "a time in seconds is not between 0 and"),
        (set_at(["steps", 1, "started"], -0.5), "a time in seconds is not"),
        (set_at(["steps", 1, "started"], 1e300), "a time in seconds is not"),
        (set_at(["batches", 0, "started"], -1.0), "a time in seconds is not"),
        (set_at(["steps", 1, "kv_bytes", "dead"], 2**53), "a count of bytes is not between 0"),
        (set_at(["steps", 1, "kv_bytes", "live"], -1), "a count of bytes is not"),
        (set_at(["model", "threads"], -1), "the number of weights or threads is not"),
        (set_at(["model", "name"], "m" * 201), "name of the model .* longer than 200 characters"),
        (set_at(["model", "kv_dtype"], "m" * 201), "name of the model .* longer than 200 char"),
        (set_at(["model", "kv_bytes_per_token"], -1), "a count of bytes is not between 0"),
        (set_at(["kv_estimate"], -1), "a count of bytes is not between 0"),
        (set_at(["kv_estimate"], 2**53), "a count of bytes is not"),
        (set_at(["queued_seconds"], -0.5), "a time in seconds is not"),
        (set_at(["queued_seconds"], 1e10), "a time in seconds is not"),
        (set_at(["steps", 1, "device_seconds"], -0.5), "a time in seconds is not"),
        (set_at(["requests", 0, "min_new_tokens"], -1), "least number of new tokens is not betw"),
        # What nobody could have asked for
        (set_at(["requests", 0, "prompt"], []), "request 0 has an empty prompt"),
        (set_at(["requests", 1, "prompt"], ""), "request 1 has an empty prompt"),
        (set_at(["requests", 0, "min_new_tokens"], 5), "request 0 must have more new tokens than"),
        (set_at(["requests", 0, "sampling", "temperature"], -1.0), "temperature must be 0 .greedy"),
        (set_at(["requests", 0, "sampling", "top_p"], 0.0), "Top-p must be above 0"),
        (set_at(["requests", 2, "sampling", "top_k"], -1), "Top-k must be 0 .off. or more"),
        (set_at(["requests", 0, "sampling", "min_p"], 1.1), "Min-p must be from 0 .off. to 1"),
        (set_at(["requests", 0, "sampling", "repetition_penalty"], 0.0), "The repetition penalty"),
        (set_at(["requests", 0, "seed"], 10**16), "The seed is too large"),
        (set_at(["requests", 0, "stop"], ["x"] * 9), "9 stop strings: the limit is 8"),
        (set_at(["requests", 0, "stop"], [""]), "Stop string 1 is empty"),
        (set_at(["requests", 0, "stop"], ["x" * 101]), "Stop string 1 has 101 characters"),
        # Ends that the request does not allow
        (set_at(["steps", 3, "ends", 0], "stop"), 'forward 4: a slot ends as "stop"'),
        (set_at(["steps", 3, "ends", 0], "cancelled"), 'forward 4: a slot ends as "cancelled"'),
        (set_at(["steps", 3, "ends", 0], "error"), 'forward 4: a slot ends as "error"'),
        (set_at(["steps", 2, "ends", 0], "length"), 'forward 3: a slot ends as "length"'),
        # Wrong number of slots
        (set_at(["steps", 1, "tokens"], [65, 65]), "forward 2"),
        (set_at(["steps", 1, "tokens"], [65] * 4), "forward 2"),
        (set_at(["steps", 1, "pieces"], ["A"]), "forward 2 does not have 3 slots"),
        (set_at(["steps", 1, "ends"], [None, None]), "forward 2"),
        (set_at(["steps", 1, "ends"], [None] * 4), "forward 2"),
        # Tokens after the end, and rows that skip
        (set_at(["steps", 4, "tokens", 0], 65), "forward 5: a slot emits after its end"),
        (set_at(["steps", 1, "tokens", 0], None), "forward 2: .* skips"),
        (set_at(["steps", 1, "ends", 0], "eos"), "forward 3: a slot emits after its end"),
    ],
)
def test_c12_a_file_that_is_no_run_is_refused_by_what_is_wrong(change, named):
    file = data()
    change(file)
    with pytest.raises(RecordError, match=named):
        runfile.loads(json.dumps(file))
    refused(json.dumps(file))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        "not json",
        b"\xff\xfe\x00",
        runfile.dumps(WORKED)[:-1],
        runfile.dumps(WORKED) + "}",
    ],
)
def test_c12_what_is_no_json_object_is_refused(text):
    assert "Not a saved run" in refused(text)


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_c12_deep_nesting_is_refused(bracket):
    assert "Not a saved run" in refused(bracket * 200_000)


def test_c12_oversize_files_are_refused_unread(tmp_path):
    text = " " * (runfile.MAX_BYTES + 1)
    assert "larger than 16 MiB" in refused(text)
    (tmp_path / "big.json").write_text(text)
    with pytest.raises(RecordError, match=r"big\.json is larger than 16 MiB"):
        runfile.load(tmp_path / "big.json")


def test_size_is_counted_in_bytes():
    assert "larger than 16 MiB" in refused("\u6d77" * (runfile.MAX_BYTES // 3 + 1))
    assert "larger than" not in refused("\ud800")


def with_rows(count, prompt_tokens=1):
    return runfile.dumps(make_run([[(prompt_tokens, 1), *[(1, 1)] * (count - 1)]]))


def test_more_requests_than_anyone_can_look_at_are_refused():
    assert runfile.loads(with_rows(runfile.MAX_REQUESTS)).slots == runfile.MAX_REQUESTS
    assert "number of requests" in refused(with_rows(runfile.MAX_REQUESTS + 1))


def test_a_picture_that_would_fill_the_memory_is_refused():
    """A small file, since rows and columns multiply."""
    rows, columns = 500, runfile.MAX_SLOTS // 500
    assert runfile.loads(with_rows(rows, columns - 1)).slots == rows
    assert "its picture has 5,000,500 slots, more than 5,000,000" in refused(
        with_rows(rows, columns)
    )


def test_c12_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(RecordError, match=f"{path.name} is not a file"):
            runfile.load(path)


def test_sampling_settings_survive_the_file():
    run = replace(
        WORKED,
        requests=tuple(
            replace(request, sampling=Sampling(0.7, 0.9, 5, 0.1, 1.3), seed=2**40, ignore_eos=True)
            for request in WORKED.requests
        ),
    )
    assert runfile.loads(runfile.dumps(run)) == run


def ending(end, **request):
    """The worked example, its first row ended by its fourth token of at most 6."""
    first = replace(WORKED.requests[0], max_new_tokens=6, **request)
    last = replace(WORKED.steps[3], ends=(end, None, None))
    return replace(
        WORKED,
        requests=(first, *WORKED.requests[1:]),
        steps=(*WORKED.steps[:3], last, *WORKED.steps[4:]),
    )


@pytest.mark.parametrize(
    ("end", "asked", "allowed"),
    [
        ("eos", {}, True),
        ("eos", {"min_new_tokens": 3}, True),
        # No end token is drawn for the first ones at all.
        ("eos", {"min_new_tokens": 4}, False),
        ("eos", {"ignore_eos": True}, False),
        ("stop", {"stop": ("END",)}, True),
        ("stop", {"stop": ("END",), "min_new_tokens": 4}, True),
        ("stop", {"stop": ("END",), "min_new_tokens": 5}, False),
        ("stop", {}, False),
        ("length", {}, False),
    ],
)
def test_a21_a_row_ends_as_its_request_allows(end, asked, allowed):
    text = runfile.dumps(ending(end, **asked))
    if allowed:
        assert runfile.loads(text) == ending(end, **asked)
    else:
        assert f'forward 4: a slot ends as "{end}", which its request does not allow' in refused(
            text
        )


# Versions


def without_version_2(file):
    """The file as version 1 wrote it."""
    for field in ("queued_seconds", "kv_estimate"):
        del file[field]
    for field in ("kv_dtype", "kv_bytes_per_token"):
        del file["model"][field]
    for request in file["requests"]:
        del request["min_new_tokens"], request["stop"]
        del request["sampling"]["min_p"], request["sampling"]["repetition_penalty"]
    for step in file["steps"]:
        del step["device_seconds"]
    return file | {"schema_version": 1}


def test_a_run_of_version_1_is_read_as_one_of_version_2():
    assert runfile.loads(json.dumps(without_version_2(data()))) == WORKED


@pytest.mark.parametrize(
    "path",
    sorted(set(RECORDINGS_FOLDER.glob("*.json")) - {RECORDINGS_FOLDER / "sweep.json"}),
    ids=lambda path: path.stem,
)
def test_the_recordings_load_and_come_back(path):
    run = runfile.load(path)
    assert run.schema_version == SCHEMA_VERSION
    assert runfile.loads(runfile.dumps(run)) == run


def test_a_field_of_version_2_keeps_its_rules_whatever_version_the_file_says():
    file = data() | {"schema_version": 1, "queued_seconds": 2.5}
    assert runfile.loads(json.dumps(file)).queued_seconds == 2.5
    file["queued_seconds"] = -1
    assert "a time in seconds is not" in refused(json.dumps(file))


def test_the_fields_of_version_2_survive_the_file():
    run = replace(
        ending("stop", stop=("END", "\n\u2028"), min_new_tokens=2),
        model=replace(WORKED.model, kv_dtype="bfloat16", kv_bytes_per_token=131_072),
        queued_seconds=0.25,
        kv_estimate=2**40,
    )
    run = replace(run, steps=tuple(replace(step, device_seconds=0.125) for step in run.steps))
    assert runfile.loads(runfile.dumps(run)) == run

"""`python -m engine` in a shell: what it prints, saves, refuses, and keeps when it is cut short."""

import json

import pytest

import engine
from engine import runfile
from engine.__main__ import main
from engine.presets import PRESETS
from tests.tiny import EOS, scripted_lm, token_ids


@pytest.fixture
def shell(monkeypatch, capsys):
    """Run a command against a scripted model -> exit status, stdout, stderr."""
    loaded = scripted_lm([token_ids("hello world"), [*token_ids("hi"), EOS]])

    def run(*arguments, lm=loaded):
        monkeypatch.setattr(engine, "load_model", lambda *_, **__: lm, raising=False)
        status = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_waste_of_the_tutorial_from_lengths_alone(shell):
    status, out, _ = shell("waste", "--prompt-tokens", "10,30,5,20", "--new-tokens", "15,10,20,12")
    assert status == 0
    assert "Prefill padding: 46 %  55 of 120 prompt slots" in out
    assert "Decode idle: 29 %  23 of 80 decode slots" in out
    assert f"   3  {'░' * 25}{'█' * 5}  5 of 30" in out
    assert f"   2  {'█' * 10}{'·' * 10}  10 of 20" in out


def test_waste_in_batches(shell):
    _, out, _ = shell(
        *("waste", "--prompt-tokens", "1,3,2", "--new-tokens", "4,4,1", "--batch-size", 2)
    )
    assert "25 %  2 of 8 prompt slots" in out
    assert "0 %  0 of 9 decode slots" in out


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        (("1,2", "3"), "2 prompt lengths for 1 answer lengths."),
        (("1,0", "3,4"), "Every length must be at least 1."),
        (("1,x", "3,4"), "--prompt-tokens must be a whole number, not 'x'."),
    ],
)
def test_waste_refuses_odd_lengths(shell, lengths, sentence):
    status, out, err = shell("waste", "--prompt-tokens", lengths[0], "--new-tokens", lengths[1])
    assert (status, out, err) == (2, "", f"error: {sentence}\n")


def test_run_prints_texts_figures_and_bars_and_saves_the_record(shell, tmp_path):
    path = tmp_path / "run.json"
    status, out, err = shell(
        *("run", "--prompt", "first", "--prompt", "second one", "--max-new-tokens", "5,9"),
        *("--json", path),
    )
    assert status == 0
    assert "[1] first\n" in out
    assert "\nhello\n" in out
    assert "2 tokens" not in out
    assert "3 tokens, eos" in out
    assert "Prefill padding: 25 %  5 of 20 prompt slots" in out
    assert "Decode idle: 20 %  2 of 10 decode slots" in out
    assert f"saved {path}" in err
    run = runfile.load(path)
    assert run.texts == ("hello", "hi")
    assert json.loads(path.read_text())["schema_version"] == 2


def test_a_preset_brings_its_budgets_and_settings(shell, tmp_path):
    tutorial = PRESETS[0]
    path = tmp_path / "run.json"
    shell("run", "--preset", tutorial.key, "--prompt", "one more", "--json", path)
    run = runfile.load(path)
    assert run.settings.batch_size == tutorial.batch_size
    assert [request.max_new_tokens for request in run.requests] == [*tutorial.budgets, 32]
    assert all(request.ignore_eos for request in run.requests)


def test_a_file_of_prompts_skips_blank_lines_and_its_byte_order_mark(shell, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("\ufeffone\n\n  \ntwo\n", encoding="utf-8")
    out_file = tmp_path / "run.json"
    shell("run", "--prompts-file", file, "--max-new-tokens", 2, "--json", out_file)
    assert [request.prompt for request in runfile.load(out_file).requests] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("prompts.csv", 'prompt,max_new_tokens\n"one, ""1""",3\ntwo,\n'),
        ("prompts.jsonl", '{"prompt": "one, \\"1\\"", "max_new_tokens": 3}\n"two"\n'),
    ],
)
def test_a_file_brings_its_budgets_unless_they_are_named(shell, tmp_path, name, content):
    file, out = tmp_path / name, tmp_path / "run.json"
    file.write_text(content, encoding="utf-8")
    arguments = ("run", "--prompt", "zero", "--prompts-file", file, "--json", out)

    def budgets(*more):
        assert shell(*arguments, *more)[0] == 0
        requests = runfile.load(out).requests
        assert [request.prompt for request in requests] == ["zero", 'one, "1"', "two"]
        return [request.max_new_tokens for request in requests]

    assert budgets() == [32, 3, 32]
    assert budgets("--max-new-tokens", 2) == [2, 2, 2]


def test_sampling_stops_and_the_least_length_reach_the_record(shell, tmp_path):
    out = tmp_path / "run.json"
    shell(
        *("run", "--prompt", "a", "--max-new-tokens", 9, "--json", out, "--min-p", 0.1),
        *("--repetition-penalty", 1.1, "--min-new-tokens", 2, "--stop", "END", "--stop", "o "),
    )
    request = runfile.load(out).requests[0]
    assert (request.sampling.min_p, request.sampling.repetition_penalty) == (0.1, 1.1)
    assert (request.min_new_tokens, request.stop) == (2, ("END", "o "))


def test_a_terminal_obeys_neither_prompts_nor_answers_nor_errors(shell, tmp_path):
    escape = "\x1b]0;owned\x07\x9b31m\r\x7f\u202e\ttab"
    shown = "\\x1b]0;owned\\x07\\x9b31m\\r\\x7f\\u202e\ttab"
    out_file = tmp_path / "run.json"
    arguments = ("run", "--prompt", f"say {escape}", "--json", out_file)
    status, out, err = shell(*arguments, lm=scripted_lm([[*token_ids(f"so {escape}"), EOS]]))
    assert status == 0
    assert f"[1] say {shown}\n" in out
    assert f"\nso {shown}\n" in out
    assert runfile.load(out_file).texts == (f"so {escape}",)
    file = tmp_path / "x\x1b[31m.csv"
    file.write_text("prompt\n\x1b,\n")
    status, _, err = shell("run", "--prompts-file", file, lm=None)
    assert status == 2
    assert err.startswith("error: x\\x1b[31m.csv, line 2: 2 values")


def test_the_serial_engine_runs_one_row_at_a_time(shell, tmp_path):
    path = tmp_path / "run.json"
    arguments = ("run", "--prompt", "a", "--prompt", "bb", "--engine", "serial")
    shell(*arguments, "--max-new-tokens", 3, "--json", path)
    run = runfile.load(path)
    assert run.settings.engine == "serial"
    assert [batch.requests for batch in run.batches] == [(0,), (1,)]
    status, _, err = shell(*arguments, "--batch-size", 2)
    assert (status, err) == (2, "error: The serial engine has no batch size and no padding side.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "There are no prompts: enter at least one."),
        (("--prompt", " "), "Prompt 1 is empty."),
        (("--prompt", "a", "--max-new-tokens", "0"), "must be at least 1, not 0."),
        (("--prompt", "a", "--max-new-tokens", "1,2"), "2 token budgets for 1 prompts."),
        (("--prompt", "a", "--temperature", "-1"), "The temperature must be 0 (greedy) or more"),
        (("--prompt", "a", "--batch-size", "x"), "The batch size must be a whole number"),
        (("--prompts-file", "missing.txt"), "missing.txt can't be read: No such file"),
        (("--prompts-file", "tests"), "tests can't be read: Is a directory."),
        (("--prompts-file", "/dev/zero"), "zero: files of prompts end in .txt, .csv or .jsonl."),
        (("--prompt", "a", "--stop", ""), "Stop string 1 is empty."),
        (("--prompt", "a", "--min-p", "2"), "Min-p must be from 0 (off) to 1, not 2."),
        (("--prompt", "a", "--min-new-tokens", "40"), "at least 40 new tokens do not fit"),
        (("--prompt", "a", "--json", "no/such/folder.json"), "is not a file in an existing folder"),
    ],
)
def test_what_can_not_be_run_is_said_before_the_model_is_loaded(shell, arguments, sentence):
    status, out, err = shell("run", *arguments, lm=None)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.startswith("error: ")


def test_a_run_that_breaks_keeps_what_was_measured(shell, tmp_path):
    def fail(column):
        if column == 3:
            raise RuntimeError("the kernel gave up\nsecond line")

    path = tmp_path / "run.json"
    status, out, err = shell(
        *("run", "--prompt", "a", "--max-new-tokens", 9, "--json", path),
        lm=scripted_lm([token_ids("hello")], before_forward=fail),
    )
    assert status == 2
    assert "error: The model failed in forward 3: RuntimeError: the kernel gave up.\n" in err
    assert "\nhe\n" in out
    assert runfile.load(path).status == "error"


def test_ctrl_c_keeps_what_was_measured(shell, tmp_path):
    def interrupt(column):
        if column == 3:
            raise KeyboardInterrupt

    path = tmp_path / "run.json"
    status, out, _ = shell(
        *("run", "--prompt", "a", "--max-new-tokens", 9, "--json", path),
        lm=scripted_lm([token_ids("hello")], before_forward=interrupt),
    )
    assert status == 130
    assert "Stopped: 1 request, 2 tokens" in out
    assert runfile.load(path).texts == ("he",)

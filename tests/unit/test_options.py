"""The page's command line."""

import pytest

from engine.options import limits_of, page_options, page_parser
from engine.requests import Limits


def test_without_options_the_limits_are_the_defaults():
    assert limits_of(page_parser().parse_args([])) == Limits()


def test_each_limit_has_an_option():
    options = (
        "--max-prompts 1 --max-prompt-characters 2 --max-new-tokens 3 --max-batch-size 4 "
        "--max-run-seconds 5 --max-runs 6"
    )
    assert limits_of(page_parser().parse_args(options.split())) == Limits(1, 2, 3, 4, 5, 6)


def test_prompts_are_not_logged_unless_asked_for():
    options = page_parser().parse_args([])
    assert (options.log_level, options.log_prompts) == ("info", False)
    options = page_parser().parse_args(["--log-level", "error", "--log-prompts"])
    assert (options.log_level, options.log_prompts) == ("error", True)


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--port", "0", "'0' is not a port number"),
        ("--port", "65536", "'65536' is not a port number"),
        ("--port", "http", "'http' is not a port number"),
        ("--max-batch-size", "0", "'0' is not a whole number of at least 1"),
        ("--max-prompts", "-3", "'-3' is not a whole number of at least 1"),
        ("--max-run-seconds", "0", "'0' is not a whole number of at least 1"),
        ("--log-level", "loud", "invalid choice: 'loud'"),
    ],
)
def test_a_wrong_value_is_said_in_words(capsys, option, value, complaint):
    with pytest.raises(SystemExit):
        page_parser().parse_args([f"{option}={value}"])
    assert complaint in capsys.readouterr().err


def test_a_key_that_is_empty_is_not_taken_for_none(monkeypatch, capsys):
    """As a secret is that failed to mount."""
    monkeypatch.setenv("BATCHSCOPE_OPENAI_KEY", "")
    assert page_options([]).openai_key is None
    assert page_options(["--openai", "--openai-key", "k"]).openai_key == "k"
    with pytest.raises(SystemExit):
        page_options(["--openai"])
    assert "BATCHSCOPE_OPENAI_KEY is empty: set it to the key" in capsys.readouterr().err
    monkeypatch.setenv("BATCHSCOPE_OPENAI_KEY", "k")
    assert page_options(["--openai"]).openai_key == "k"
    monkeypatch.delenv("BATCHSCOPE_OPENAI_KEY")
    assert page_options(["--openai"]).openai_key is None


def test_a_space_gives_its_options_in_a_variable_and_arguments_win(monkeypatch):
    monkeypatch.setenv("BATCHSCOPE_FLAGS", "--model 'a b' --max-prompts 4 --port 7000")
    options = page_options(["--port", "7001"])
    assert (options.model, options.max_prompts, options.port) == (["a b"], 4, 7001)
    monkeypatch.delenv("BATCHSCOPE_FLAGS")
    assert page_options([]).model is None

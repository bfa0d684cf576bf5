"""Files of prompts: what they may hold, and sentences that name the line where they are wrong."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.promptfile import MAX_BYTES, MAX_PROMPTS, SUFFIXES, FilePrompt, read_prompts
from engine.requests import Limits

LIMITS = Limits(prompts=3, prompt_characters=100, new_tokens=50)


def refusal(data, name, limits=LIMITS) -> str:
    with pytest.raises(RequestError) as refused:
        read_prompts(data.encode() if isinstance(data, str) else data, name, limits=limits)
    return str(refused.value)


def test_a_text_file_has_a_prompt_per_line():
    data = '\ufeff one \r\n\n  \t\rtwo, "2"\nthree\u2028still'.encode()
    read = read_prompts(data, "Prompts.TXT", limits=LIMITS)
    assert read == [
        FilePrompt(" one ", None),
        FilePrompt('two, "2"', None),
        FilePrompt("three\u2028still", None),
    ]


def test_a_csv_file_has_a_header_and_quotes():
    data = '\ufeff max_new_tokens , prompt\r\n 7,Hi\r\n\r\n,"a ""b"", c\r\nd"\r\n50,中文 🌊'
    read = read_prompts(data.encode(), "x.csv", limits=LIMITS)
    assert read == [
        FilePrompt("Hi", 7),
        FilePrompt('a "b", c\nd', None),
        FilePrompt("中文 🌊", 50),
    ]
    assert read_prompts(b"prompt\nHi", "x.csv") == [FilePrompt("Hi", None)]


def test_a_jsonl_file_has_texts_or_objects():
    data = '"one"\n\n {"prompt": "t\\nwo", "max_new_tokens": 7} \r\n{"prompt": "\\ud83c\\udf0a"}'
    assert read_prompts(data.encode(), "x.jsonl", limits=LIMITS) == [
        FilePrompt("one", None),
        FilePrompt("t\nwo", 7),
        FilePrompt("🌊", None),
    ]


@pytest.mark.parametrize(
    ("name", "data", "where"),
    [
        ("p.txt", "", "p.txt has no prompts."),
        ("p.txt", "\n \n", "p.txt has no prompts."),
        ("p.csv", "", "p.csv has no prompts."),
        ("p.csv", "\n\nprompt\n", "p.csv has no prompts."),
        ("p.txt", b"one\r\ntwo\xc3\n", "p.txt, line 2: not UTF-8 text (byte 0xc3)."),
        ("p.txt", b"one\rtwo\r\xed\xa0\x80", "p.txt, line 3: not UTF-8 text (byte 0xed)."),
        ("p.txt", b"\xef\xbb\xbf\n\xff", "p.txt, line 2: not UTF-8 text (byte 0xff)."),
        ("p.txt", "one\nt\0wo", "p.txt, line 2: the prompt has a NUL character."),
        ("p.txt", "1\n2\n\n3\n\n4", "p.txt, line 6: one prompt too many, the limit is 3."),
        (
            "p.txt",
            "1\n" + "x" * 101,
            "p.txt, line 2: the prompt has 101 characters: the limit is 100.",
        ),
        ("p.csv", "\nprompt;max_new_tokens", "line 2: the column 'prompt;max_new_tokens' is unkn"),
        ("p.csv", "max_new_tokens\n1", "p.csv, line 1: the column prompt is missing."),
        ("p.csv", "prompt,prompt\na,b", "p.csv, line 1: the column 'prompt' is there twice."),
        ("p.csv", "prompt\nHi, you", "p.csv, line 2: 2 values where the header has 1; a prompt"),
        ("p.csv", "prompt,max_new_tokens\nHi", "p.csv, line 2: 1 values where the header has 2"),
        ("p.csv", 'prompt\n"a\n\nb"\n""', "p.csv, line 5: the prompt is empty."),
        ("p.csv", 'prompt\n\n"a\nb', "p.csv, line 3: a quote is never closed."),
        ("p.csv", 'prompt\n"a"b', "p.csv, line 2: not CSV: ',' expected after '\"'."),
        ("p.csv", f"prompt\n\n{'x' * 200_000}", "line 3: not CSV: field larger than field limit"),
        (
            "p.csv",
            'max_new_tokens,prompt\n1,"a\nb"\n\nx,c',
            "p.csv, line 5: the token budget must be a whole number, not 'x'.",
        ),
        ("p.csv", "prompt,max_new_tokens\na,0", "line 2: the token budget must be at least 1, no"),
        ("p.csv", "prompt,max_new_tokens\na,51", "line 2: the token budget is 51, the limit is 5"),
        ("p.jsonl", "{}", "p.jsonl, line 1: the key prompt is missing."),
        ("p.jsonl", '"a"\n\n[1]', "p.jsonl, line 3: the prompt must be text, not [1]."),
        ("p.jsonl", '"a"\n""', "p.jsonl, line 2: the prompt is empty."),
        ("p.txt", "a".encode("utf-16"), "p.txt, line 1: this is UTF-16: save the file as UTF-8."),
        ("p.jsonl", '"a"\n"b" c', "p.jsonl, line 2: not JSON: Extra data (character 5)."),
        ("p.jsonl", '{"prompt": NaN}', "p.jsonl, line 1: NaN is not JSON."),
        ("p.jsonl", '{"prompt": "a", "x\x7f": 1}', "line 1: the key 'x\\x7f' is unknown, there ar"),
        ("p.jsonl", '{"prompt": "a", "prompt": "b"}', "line 1: the key 'prompt' is there twice."),
        (
            "p.jsonl",
            '"\\ud83c"',
            "p.jsonl, line 1: the prompt is not Unicode text: it has half of a surrogate pair.",
        ),
        ("p.jsonl", '"\\u0000"', "p.jsonl, line 1: the prompt has a NUL character."),
        ("p.jsonl", "[" * 5000, "p.jsonl, line 1: nested too deeply."),
        ("p.jsonl", "9" * 5000, "p.jsonl, line 1: a number is too long."),
        (
            "p.jsonl",
            '{"prompt": "a", "max_new_tokens": %s}' % ("[" * 900 + "]" * 900),
            "p.jsonl, line 1: the token budget must be a number, not [[[[[[[...]]]]]]].",
        ),
        (
            "p.jsonl",
            '{"prompt": "a", "max_new_tokens": true}',
            "p.jsonl, line 1: the token budget must be a whole number, not True.",
        ),
        (
            "p.jsonl",
            '{"prompt": "a", "max_new_tokens": 1e999}',
            "p.jsonl, line 1: the token budget must be a whole number, not inf.",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(name, data, where):
    said = refusal(data, name)
    assert where in said
    assert said.startswith(name)
    assert "\n" not in said


@pytest.mark.parametrize("name", ["notes.docx", "prompts", "csv", ".csv", "", "x.csv.gz"])
def test_another_kind_of_file_is_refused_by_its_name(name):
    assert refusal("Hi", name).endswith(": files of prompts end in .txt, .csv or .jsonl.")


def test_a_saved_run_is_sent_where_it_belongs():
    assert "If it is a saved run, open it beside the picture" in refusal("{}", "run.json")


def test_a_name_is_shown_short_and_obeyed_by_nobody():
    said = refusal("", "../a\x1b[31m\n\u202e" + "y" * 500 + "<b>.docx")
    assert said.startswith("a\\x1b[31m\\n\\u202eyyy")
    assert "…" in said
    assert "<b>.docx: " in said
    assert len(said) < 150


def test_sizes_and_counts_have_limits_of_their_own():
    assert refusal("x" * (MAX_BYTES + 1), "p.txt") == "p.txt is larger than 1 MiB."
    many = "a\n" * (MAX_PROMPTS + 1)
    assert f"line {MAX_PROMPTS + 1}: one prompt too many" in refusal(many, "p.txt", limits=None)
    assert len(read_prompts(many[2:].encode(), "p.txt")) == MAX_PROMPTS


PIECES = ["prompt", "max_new_tokens", ",", '"', "\n", "\r\n", "{", "}", "[", ":", "7", "\\u0041"]


@given(
    data=st.binary() | st.lists(st.sampled_from(PIECES)).map("".join).map(str.encode),
    suffix=st.sampled_from(SUFFIXES),
)
@example(data=b'prompt\n"', suffix=".csv")
def test_whatever_is_in_a_file_is_prompts_or_one_sentence(data, suffix):
    try:
        read = read_prompts(data, f"p{suffix}", limits=LIMITS)
    except RequestError as error:
        said, read = str(error), []
    assert read or said.startswith(f"p{suffix}")
    assert len(read) <= LIMITS.prompts
    assert all(prompt.strip() for prompt, _ in read)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=100).map(lambda text: text.replace("\0", "")).filter(str.strip),
            st.none() | st.integers(1, 50),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_what_was_written_is_read(written):
    lines = [json.dumps({"prompt": prompt, "max_new_tokens": budget}) for prompt, budget in written]
    read = read_prompts("\n".join(lines).encode(), "p.jsonl", limits=LIMITS)
    assert read == [FilePrompt(*pair) for pair in written]

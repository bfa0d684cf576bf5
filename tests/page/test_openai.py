"""OpenAI's endpoints beside the page, as OpenAI's own client sees them."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import openai
import pytest
from starlette.routing import Mount

from app import build_demo
from engine import StaticBatchEngine, make_requests, models
from engine.openai.api import largest_request
from engine.requests import Limits
from engine.shelf import ModelShelf
from tests.callers import ask_all, questions, texts_alone
from tests.clients import chatting, has_left, served
from tests.serving import Visitor, rows_of, wait_for
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids

ROOT = Path(__file__).parents[2]
LONG = 30.0
"""Seconds of a window that no test waits for."""


@pytest.fixture(scope="module")
def here():
    """Says "hello" in each first row of a batch, "a" and then the end in each second."""
    lm = chatting(scripted_lm([token_ids("hello"), [*token_ids("a"), EOS]]))
    with served(lm, tiny_lm()) as here:
        yield here


@pytest.fixture
def client(here):
    return here.client()


def posted(here, **body):
    """The connection of a call whose answer nobody waits for, to be closed."""
    connection = HTTPConnection(here.url.removeprefix("http://"))
    body = json.dumps({"model": "scripted", "temperature": 0, **body})
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    return closing(connection)


# What can be asked for


def test_models_are_listed_and_found(client):
    assert [model.id for model in client.models.list()] == ["scripted", "tiny-llama"]
    assert client.models.retrieve("tiny-llama").id == "tiny-llama"
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("gpt/4")
    assert raised.value.code == "model_not_found"


def test_a_completion(client):
    answer = client.completions.create(model="scripted", temperature=0, prompt="Hi", max_tokens=3)
    assert answer.object == "text_completion"
    assert answer.model == "scripted"
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, "hel", "length")
    assert answer.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
    }
    assert answer.usage.total_tokens == 5
    assert answer.batchscope["batch_rows"] == 1
    assert 0.02 <= answer.batchscope["waited_seconds"] < LONG


def test_eight_prompts_of_one_call_are_one_batch_of_eight():
    lm = tiny_lm()
    prompts = ["Hello", "a", "Why is the sky blue?", "x" * 30, "one", "two", "three", "four"]
    alone = [
        StaticBatchEngine(lm, batch_size=1).run(make_requests([prompt], max_new_tokens=12))
        for prompt in prompts
    ]
    with served(lm, window=LONG) as here:  # a full batch waits for nobody
        answer = here.client().completions.create(
            model="tiny-llama", prompt=prompts, max_tokens=12, temperature=0
        )
        assert [choice.index for choice in answer.choices] == list(range(8))
        assert [choice.text for choice in answer.choices] == [run.texts[0] for run in alone]
        assert answer.batchscope["batch_rows"] == 8
        assert here.batches("tiny-llama") == [[8]]
        (record,) = here.server.collectors["tiny-llama"].recent
        assert row_ids(record.run) == [row_ids(run)[0] for run in alone]
        assert len(record.run.steps) == max(len(run.steps) for run in alone)


def test_single_calls_within_the_window_share_a_batch():
    with served(scripted_lm([token_ids("hello")]), batch_size=6, window=LONG) as here:
        client = here.client()

        def ask(number):
            return client.completions.create(
                model="scripted", temperature=0, prompt="Hi", max_tokens=1 + number
            )

        with ThreadPoolExecutor(6) as pool:
            texts = [answer.choices[0].text for answer in pool.map(ask, range(6))]
        assert texts == ["h", "he", "hel", "hell", "hello", "helloo"]
        assert here.batches() == [[6]]


def test_token_ids_and_several_choices(client):
    answer = client.completions.create(
        model="scripted",
        temperature=0,
        prompt=[token_ids("Hi"), token_ids("there")],
        n=2,
        max_tokens=2,
    )
    assert [choice.text for choice in answer.choices] == ["he", "a", "he", "a"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "stop"] * 2
    assert answer.usage.prompt_tokens == 7
    assert answer.usage.completion_tokens == 8
    one = client.completions.create(
        model="scripted", temperature=0, prompt=token_ids("Hi"), max_tokens=2
    )
    assert one.choices[0].text == "he"


def test_a_stop_string_ends_an_answer_and_is_left_out(client):
    answer = client.completions.create(
        model="scripted", temperature=0, prompt="Hi", max_tokens=5, stop=["xyz", "lo"]
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("hel", "stop")


def test_a_seed_gives_the_same_answer_whoever_shares_the_batch(client):
    asked = {"model": "tiny-llama", "prompt": "Hello", "max_tokens": 8, "seed": 7, "n": 2}
    alone = client.completions.create(**asked)
    with ThreadPoolExecutor(3) as pool:
        neighbour = pool.submit(
            client.completions.create, model="tiny-llama", prompt=["a", "b"], max_tokens=9
        )
        again = pool.submit(client.completions.create, **asked)
        other = pool.submit(client.completions.create, **asked | {"seed": 8})
        neighbour.result()
    texts = [[choice.text for choice in answer.choices] for answer in (alone, again.result())]
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]
    assert [choice.text for choice in other.result().choices] != texts[0]


def test_a_chat(client, here):
    answer = client.chat.completions.create(
        model="scripted",
        temperature=0,
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "ann"},
        ],
        max_completion_tokens=5,
    )
    assert answer.object == "chat.completion"
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "hello")
    assert choice.finish_reason == "length"
    here.batches()
    record = here.server.collectors["scripted"].recent[-1].run
    assert record.batches[0].prompt_ids == (tuple(token_ids("<Be kind.><Hi>")),)
    assert answer.usage.prompt_tokens == len("<Be kind.><Hi>")


def test_a_chat_without_a_budget_ends_where_the_context_does():
    lm = chatting(scripted_lm([token_ids("a")], max_positions=20))
    with served(lm) as here:
        answer = here.client().chat.completions.create(
            model="scripted", temperature=0, messages=[{"role": "user", "content": "Hi"}]
        )
    assert answer.usage.total_tokens == 20


def test_a_streamed_chat(client):
    stream = client.chat.completions.create(
        model="scripted",
        temperature=0,
        messages=[{"role": "user", "content": "Hi"}],
        n=2,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].batchscope["batch_rows"] == 2
    told = {0: [], 1: []}
    finished = {}
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        assert chunk.usage is None
        if choice.delta.content:
            assert choice.index not in finished
            told[choice.index].append(choice.delta.content)
        if choice.finish_reason:
            finished[choice.index] = choice.finish_reason
    assert told == {0: list("hello"), 1: ["a"]}
    assert finished == {0: "length", 1: "stop"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 7


def test_a_streamed_completion_comes_piece_by_piece():
    """The second piece is made only once the first one has been read."""
    read = threading.Event()

    def wait(column):
        assert column < 2 or read.wait(20)

    with served(scripted_lm([token_ids("hello")], before_forward=wait)) as here:
        stream = here.client().completions.create(
            model="scripted", temperature=0, prompt="Hi", max_tokens=5, stream=True
        )
        opening, first = next(stream), next(stream)
        assert (opening.choices[0].text, first.choices[0].text) == ("", "h")
        read.set()
        rest = [chunk.choices[0] for chunk in stream]
    assert [choice.text for choice in rest] == list("ello")
    assert [choice.finish_reason for choice in rest] == [None, None, None, "length"]


def test_what_no_client_shows_of_a_stream(here):
    with httpx.stream(
        "POST",
        f"{here.url}/v1/completions",
        json={
            "model": "scripted",
            "temperature": 0,
            "prompt": "Hi",
            "max_tokens": 1,
            "stream": True,
        },
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-content-type-options"] == "nosniff"
        events = answer.read().decode().split("\n\n")
    assert all(event.startswith("data: {") for event in events[:-2])
    assert events[-2:] == ["data: [DONE]", ""]


# What is refused


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": ""}, "Prompt 1 is empty."),
        ({"prompt": ["Hi", " "]}, "Prompt 2 is empty."),
        ({"prompt": []}, "prompt"),
        ({"prompt": "x" * 101}, "Prompt 1 has 101 characters: the limit is 100."),
        ({"prompt": ["a"] * 10}, "10 answers are asked for: the limit is 9."),
        ({"n": 10}, "10 answers are asked for: the limit is 9."),
        ({"n": 0}, "n: Input should be greater than or equal to 1."),
        ({"prompt": [1, 999]}, "Prompt 1 has a token id outside 0 to 256."),
        ({"prompt": [[1], []]}, "Prompt 2 is empty."),
        ({"prompt": [1] * 101}, "Prompt 1 has 101 tokens: the limit is 100."),
        ({"max_tokens": 400}, "Prompt 1: the token budget is 400, the limit is 300."),
        ({"temperature": 3}, "temperature: Input should be less than or equal to 2."),
        ({"temperature": "1"}, "temperature: Input should be a valid number."),
        ({"max_tokens": True}, "max_tokens: Input should be a valid integer."),
        ({"stop": ["a", ""]}, "Stop string 2 is empty."),
        ({"logprobs": 0}, "the body: logprobs is not supported here."),
        ({"echo": True}, "the body: echo is not supported here."),
        ({"suffix": "x"}, "the body: suffix is not supported here."),
        ({"best_of": 3}, "the body: best_of must be n here, or left out."),
        ({"presence_penalty": 0.5}, "the body: presence_penalty is not supported here."),
        ({"logit_bias": {"1": 5}}, "the body: logit_bias is not supported here."),
        (
            {"stream_options": {"include_usage": True}},
            "the body: stream_options is only allowed when stream is true.",
        ),
        ({"extra_body": {"speed": 9}}, "Unrecognized request argument supplied: speed."),
        ({"extra_body": {"top_k": -1}}, "Top-k must be 0 (off) or more, not -1."),
    ],
)
def test_a_completion_that_can_t_be_is_refused_in_a_sentence(strict, asked, said):
    with pytest.raises(openai.BadRequestError) as raised:
        strict.completions.create(**{"model": "scripted", "temperature": 0, "prompt": "Hi"} | asked)
    assert said in raised.value.body["message"]
    assert raised.value.type == "invalid_request_error"


@pytest.fixture(scope="module")
def strict():
    limits = Limits(prompts=9, prompt_characters=100, new_tokens=300)
    with served(scripted_lm([[1]], max_positions=120), limits=limits) as here:
        yield here.client()


def test_a_prompt_that_is_too_long_for_the_model(strict):
    with pytest.raises(openai.BadRequestError) as raised:
        strict.completions.create(model="scripted", temperature=0, prompt="x" * 90, max_tokens=31)
    assert raised.value.code == "context_length_exceeded"
    assert raised.value.param == "prompt"
    assert "90 prompt tokens + 31 new tokens > 120" in raised.value.message
    # Beside one that can't be, the others of the batch are not harmed.
    assert strict.completions.create(
        model="scripted", temperature=0, prompt="x" * 90, max_tokens=30
    ).choices


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"messages": []}, "messages: List should have at least 1 item"),
        ({"messages": [USER | {"content": " "}]}, "The conversation is empty."),
        ({"messages": [USER | {"role": "tool"}]}, "messages.0.role: Input should be"),
        ({"messages": [USER] * 1001}, "List should have at most 1000 items"),
        (
            {"messages": [USER | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "Input should be 'text'",
        ),
        ({"logprobs": True}, "logprobs is not supported here."),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "Input should be 'text'"),
    ],
)
def test_a_chat_that_can_t_be_is_refused_in_a_sentence(client, asked, said):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(
            **{"model": "scripted", "temperature": 0, "messages": [USER]} | asked
        )
    assert said in raised.value.body["message"]


def test_a_model_without_a_chat_template_takes_no_chat(client):
    with pytest.raises(openai.BadRequestError, match="tiny-llama has no chat template"):
        client.chat.completions.create(model="tiny-llama", messages=[USER])


def test_a_template_that_refuses_is_the_clients_fault():
    lm = scripted_lm([[1]])
    lm.tokenizer.chat_template = "{{ raise_exception('Roles must alternate') }}"
    with (
        served(lm) as here,
        pytest.raises(
            openai.BadRequestError, match="not take these messages: Roles must alternate"
        ),
    ):
        here.client().chat.completions.create(model="scripted", temperature=0, messages=[USER])


def test_a_wrong_model(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.completions.create(model="gpt-4", prompt="Hi")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_a_key_is_asked_for_where_there_is_one():
    with served(scripted_lm([token_ids("hello")]), key="open-sesame") as here:
        asked = {"model": "scripted", "temperature": 0, "prompt": "Hi", "max_tokens": 2}
        for wrong in ("open-sesam", "open-sesame2", "x"):
            for ask in (lambda c: c.models.list(), lambda c: c.completions.create(**asked)):
                with pytest.raises(openai.AuthenticationError) as raised:
                    ask(here.client(wrong))
                assert raised.value.code == "invalid_api_key"
        assert httpx.get(f"{here.url}/v1/models").status_code == 401
        assert httpx.get(f"{here.url}/v1/openapi.json").status_code == 401
        garbage = httpx.post(f"{here.url}/v1/completions", content=b"{")
        assert garbage.status_code == 401
        assert here.client("open-sesame").completions.create(**asked).choices[0].text == "he"
        assert httpx.get(here.url).status_code == 200  # the page has none


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"{", 400, "The body is not valid JSON."),
        (b"[]", 400, "the body: "),
        (b"", 400, "the body: Field required."),
        (b'{"model": "scripted"}', 400, "Missing required parameter: prompt."),
        (b"\xff", 400, "There was an error parsing the body."),
        (b"[" * 100_000, 400, "There was an error parsing the body."),
        (b'{"model": "\\ud800", "prompt": "Hi"}', 400, "model: Input should be a valid string"),
        (b'{"model": "scripted", "prompt": "\\ud800"}', 400, "Prompt 1 is not Unicode text"),
        (b'{"model": "scripted", "prompt": "Hi", "\\ud800": 1}', 400, "valid string"),
        (b'{"model": "scripted", "prompt": "Hi", "top_p": NaN}', 400, "top_p: "),
        (b'{"model": "scripted", "prompt": "Hi", "seed": 1e999}', 400, "seed: "),
        (b'{"model": "scripted", "prompt": "Hi", "seed": 1' + b"0" * 99 + b"}", 400, "large"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_in_openais_shape(here, content, status, said):
    answer = httpx.post(
        f"{here.url}/v1/completions", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def spaces(most):
    for _ in range(most // 2**16 + 8):
        yield b" " * 2**16


def test_a_body_without_an_end_is_cut_off(here):
    largest = largest_request(Limits())
    answer = httpx.post(
        f"{here.url}/v1/completions",
        content=spaces(largest),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 413
    said = f"The request is larger than {largest:,} bytes."
    assert answer.json()["error"]["message"] == said


def test_malformed_json_is_a_bad_request_to_the_client(client):
    with pytest.raises(openai.BadRequestError, match="The body is not valid JSON"):
        client.post(
            "/completions",
            cast_to=object,
            content=b'{"model": ',
            options={"headers": {"content-type": "application/json"}},
        )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/completions", 405), ("DELETE", "/models", 405)],
)
def test_what_is_not_offered_is_refused_in_openais_shape(here, method, path, status):
    answer = httpx.request(method, f"{here.url}/v1{path}")
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_too_many_that_wait_are_told_to_come_back():
    with served(scripted_lm([[1]]), most_waiting=2, window=LONG) as here:
        asked = {"model": "scripted", "temperature": 0}
        collectors = here.server.collectors
        with pytest.raises(openai.RateLimitError, match="at most 2 may"):
            here.client().completions.create(**asked, prompt=["a", "b", "c"])
        with posted(here, prompt=["a", "b"]):
            wait_for(lambda: "scripted" in collectors and collectors["scripted"].waiting)
            with pytest.raises(openai.RateLimitError, match="2 requests wait already, and at most"):
                here.client().completions.create(**asked, prompt="c")
        wait_for(lambda: collectors["scripted"].waiting == 0)


# What goes wrong


def test_a_model_that_fails_is_the_servers_fault_and_the_next_call_is_answered(caplog):
    """What it says might quote another client of the batch: the log alone has it."""

    def fail(column):
        if fails:
            fails.pop()
            raise ValueError("no such: place\nat all")

    fails = [1]
    with served(scripted_lm([token_ids("hello")], before_forward=fail)) as here:
        asked = {"model": "scripted", "temperature": 0, "prompt": "Hi", "max_tokens": 2}
        with pytest.raises(openai.InternalServerError) as raised:
            here.client().completions.create(**asked)
        assert raised.value.status_code == 500
        told = raised.value.body["message"]
        assert told == "The model failed in forward 1: ValueError."
        assert f"{told[:-1]}: no such: place." in caplog.text
        assert here.client().completions.create(**asked).choices[0].text == "he"


def test_a_stream_tells_what_ended_it():
    def fail(column):
        if column == 3:
            raise ValueError("no such place")

    with served(scripted_lm([token_ids("hello")], before_forward=fail)) as here:
        stream = here.client().completions.create(
            model="scripted", temperature=0, prompt="Hi", max_tokens=5, stream=True
        )
        assert [next(stream).choices[0].text for _ in range(3)] == ["", "h", "e"]
        with pytest.raises(openai.APIError, match=r"The model failed in forward 3: ValueError\.$"):
            next(stream)


def test_a_client_that_leaves_a_stream_is_noticed():
    """All have left, so the batch stops long before its budget."""
    gate = threading.Event()

    def wait(column):
        assert column < 3 or gate.wait(20)

    with served(scripted_lm([token_ids("hello")], before_forward=wait)) as here:
        stream = here.client().completions.create(
            model="scripted", temperature=0, prompt="Hi", max_tokens=500, stream=True
        )
        next(stream)
        stream.close()
        collector = here.server.collectors["scripted"]
        wait_for(lambda: has_left(collector))
        gate.set()
        assert here.batches() == [[1]]
        (record,) = collector.recent
        assert record.run.status == "stopped"
        assert len(record.run.steps) < 10


def test_a_client_that_leaves_before_its_answer_is_noticed():
    gate, reached = threading.Event(), threading.Event()

    def wait(column):
        if column == 3:
            reached.set()
            assert gate.wait(20)

    with served(scripted_lm([token_ids("hello")], before_forward=wait), window=0) as here:
        with posted(here, prompt="Hi", max_tokens=500):
            assert reached.wait(20)
        collector = here.server.collectors["scripted"]
        wait_for(lambda: has_left(collector))
        gate.set()
        assert here.batches() == [[1]]
        assert collector.recent[0].run.status == "stopped"


def test_a_client_that_leaves_while_it_waits_is_not_run():
    with served(scripted_lm([token_ids("hello")]), window=LONG, batch_size=2) as here:
        collectors = here.server.collectors
        with posted(here, prompt="Hi"):
            wait_for(lambda: "scripted" in collectors and collectors["scripted"].waiting)
        wait_for(lambda: collectors["scripted"].waiting == 0)
        here.client().completions.create(
            model="scripted", temperature=0, prompt=["a", "b"], max_tokens=1
        )
        assert here.batches() == [[2]]


# Beside the page


def test_as_many_calls_wait_for_a_model_that_loads_as_may(monkeypatch):
    go_on = threading.Event()

    def load(name, *, on_progress, **_how):
        assert go_on.wait(20)
        return scripted_lm([token_ids("hello")])

    monkeypatch.setattr(models, "load_model", load)
    shelf = ModelShelf(["scripted"])
    with served(shelf=shelf, most_waiting=2) as here, ThreadPoolExecutor(2) as pool:
        asked = {"model": "scripted", "temperature": 0, "prompt": "Hi", "max_tokens": 2}
        answers = [pool.submit(here.client().completions.create, **asked) for _ in range(2)]
        wait_for(lambda: here.server.joining == 2)
        with pytest.raises(openai.RateLimitError, match="2 requests wait already, and at most"):
            here.client().completions.create(**asked)
        # What is too large waits for no model.
        for large in ({"prompt": ["x"] * 65}, {"prompt": "x" * 8001}, {"prompt": [1] * 8001}):
            with pytest.raises(
                openai.BadRequestError, match="the limit is"
            ):  # which waits for none
                here.client().completions.create(**asked | large)
        assert not any(answer.done() for answer in answers)
        go_on.set()
        assert [answer.result(20).choices[0].text for answer in answers] == ["he", "he"]
        assert here.client().completions.create(**asked).choices[0].text == "he"


def test_a_model_that_can_t_be_loaded_is_the_servers_fault(monkeypatch):
    def load(name, *, on_progress, **_how):
        raise models.ModelError("There is no such folder.")

    monkeypatch.setattr(models, "load_model", load)
    with (
        served(shelf=ModelShelf(["scripted"])) as here,
        pytest.raises(openai.InternalServerError, match="There is no such folder"),
    ):
        here.client().completions.create(model="scripted", temperature=0, prompt="Hi")


def test_the_page_runs_as_ever_and_shares_the_device(here, client):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            client.completions.create, model="scripted", temperature=0, prompt="Hi", max_tokens=2
        )
        frames = Visitor(here.url).run(rows_of(["Hi"], 5), "scripted")
        assert frames[-1].record.texts == ("hello",)
        assert answer.result(20).choices[0].text == "he"


WITHOUT = """
import sys
import app
from starlette.routing import Mount
loaded = [name for name in sys.modules if name.startswith(("engine.openai", "engine.collecting"))]
assert not loaded, loaded
assert "torch" not in sys.modules
assert not app.demo._beside
"""

WITH = """
import sys
sys.argv = ["app.py", "--openai", "--openai-key", "k", "--batch-window-ms", "20"]
import app
options = app.page_options(sys.argv[1:])
(mounted,) = app.openai_endpoints(app.openai_server(app.shelf, options))
assert mounted.path == "/v1"
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


@pytest.mark.parametrize("code", [WITHOUT, WITH], ids=["without the flag", "with it"])
def test_what_is_imported(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_without_the_flag_there_are_no_such_routes():
    shelf = ModelShelf(["scripted"])
    shelf.add(scripted_lm([[1]]))
    demo = build_demo(shelf)
    app, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    try:
        assert not [
            route for route in app.routes if isinstance(route, Mount) and route.path == "/v1"
        ]
        assert httpx.get(f"{url}v1/models").status_code == 404
        assert httpx.post(f"{url}v1/completions", json={}).status_code in (404, 405)
    finally:
        demo.close()


def test_two_hundred_callers_at_once_get_their_own_answers():
    lm = chatting(tiny_lm("qwen3"))
    asked = questions(200)
    expected = texts_alone(lm, asked, budget=8)
    assert len(set(expected)) > 100
    with served(lm, batch_size=16, window=0.05) as here:
        answers = ask_all(here.url, lm.name, asked, budget=8)
        wait_for(lambda: here.server.collectors[lm.name].current is None)
    assert [answer.text for answer in answers] == expected
    assert max(answer.rows for answer in answers) == 16

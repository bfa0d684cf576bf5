"""The named endpoints, as a script uses them through gradio_client."""

import json
import threading

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from engine import runfile
from engine.requests import Limits
from tests.serving import Visitor, rows_of, served, wait_for
from tests.tiny import EOS, scripted_lm, token_ids

HELLO = token_ids("hello brave new world, and then some more of it")


@pytest.fixture
def slow():
    return scripted_lm([HELLO, [*HELLO[:4], EOS]], seconds=0.03)


def run_of(result):
    return runfile.loads(json.dumps(result))


def test_a_run_streams_what_it_has_and_ends_as_a_saved_run(slow):
    with served(slow) as url:
        client = Client(url, verbose=False)
        job = client.submit(
            ["Hi", "Ho"], max_new_tokens=[20, 9], temperature=0.5, seed=7, api_name="/run"
        )
        result = job.result()
        *updates, last = job.outputs()
        run = run_of(result)
        assert last == result
        assert run.texts == ("hello brave new worl", "hell")
        assert [request.max_new_tokens for request in run.requests] == [20, 9]
        assert run.requests[0].seed == 7
        assert run.requests[0].sampling.temperature == 0.5
        assert run.settings.batch_size == 2
    running = [update for update in updates if update["status"] == "running"]
    assert len({update["step"] for update in running}) >= 3
    assert all(set(update) == {"status", "step", "texts"} for update in updates)
    assert all(run.texts[0].startswith(update["texts"][0]) for update in running)
    assert len(json.dumps(updates)) < len(json.dumps(result))


def test_sampling_stops_and_the_least_length_are_arguments(slow):
    with served(slow) as url:
        result = Client(url, verbose=False).predict(
            ["Hi", "Ho"],
            max_new_tokens=20,
            min_p=0.1,
            repetition_penalty=1.1,
            min_new_tokens=2,
            stop=["brave ", "END"],
            api_name="/run",
        )
    run = run_of(result)
    for request in run.requests:
        assert (request.sampling.min_p, request.sampling.repetition_penalty) == (0.1, 1.1)
        assert (request.min_new_tokens, request.stop) == (2, ("brave ", "END"))
    ends = [end for step in run.steps for end in step.ends if end]
    assert ends == ["eos", "stop"]
    assert run.texts == ("hello ", "hell")


def test_stop_ends_the_callers_own_run_and_the_result_is_its_record(slow):
    with served(slow) as url:
        client, other = Client(url, verbose=False), Client(url, verbose=False)
        job = client.submit(["long"], max_new_tokens=400, api_name="/run")
        wait_for(lambda: len(slow.model.calls) >= 3)
        other.predict(api_name="/stop")
        seen = len(slow.model.calls)
        wait_for(lambda: len(slow.model.calls) >= seen + 2)
        client.predict(api_name="/stop")
        assert run_of(job.result()).status == "stopped"
        assert len(slow.model.calls) < 200


def test_one_run_at_a_time_for_scripts_too(slow):
    with served(slow) as url:
        client = Client(url, verbose=False)
        first = client.submit(["long"], max_new_tokens=400, api_name="/run")
        wait_for(lambda: len(slow.model.calls) >= 1)
        with pytest.raises(
            AppError, match=r"^Your last run is still under way: stop it, or wait.$"
        ):
            client.predict(["second"], api_name="/run")
        client.predict(api_name="/stop")
        assert run_of(first.result()).status == "stopped"


def test_e5_a_failing_model_gives_the_record_up_to_there(slow):
    def fail(column):
        if column == 3:
            raise RuntimeError("the kernel gave up")

    slow.model.before_forward = fail
    with served(slow) as url:
        run = run_of(Client(url, verbose=False).predict(["Hi"], api_name="/run"))
    assert run.status == "error"
    assert "the kernel gave up" in run.error
    assert len(run.steps) == 2


@pytest.fixture(scope="module")
def strict():
    """A script's client of a host with low limits, and the model that it must not reach."""
    lm = scripted_lm([HELLO])
    limits = Limits(prompts=5, prompt_characters=100, new_tokens=50, batch_size=8)
    with served(lm, limits=limits) as url:
        yield Client(url, verbose=False), lm


MARKUP = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompts": ["Hello", " "]}, "Prompt 2 is empty."),
        ({"prompts": "Hello"}, "Prompts must be a list of texts."),
        ({"prompts": [[1, 2]]}, "Prompts must be a list of texts."),
        ({"prompts": ["x"] * 6}, "6 prompts: the limit is 5."),
        (
            {"prompts": ["x"], "max_new_tokens": 51},
            "Prompt 1: the token budget is 51, the limit is 50.",
        ),
        ({"prompts": ["x"], "max_new_tokens": [1, 2]}, "2 token budgets for 1 prompts."),
        ({"prompts": ["x"], "batch_size": 9}, "The batch size is 9, the limit is 8."),
        (
            {"prompts": ["x"], "padding_side": MARKUP},
            f"The padding side must be left or right, not {MARKUP!r}.",
        ),
        (
            {"prompts": ["x"], "chat_template": 1},
            "The chat template must be on or off, not 1.",
        ),
        ({"prompts": ["x"], "model": MARKUP}, f"This page does not offer the model {MARKUP!r}."),
        ({"prompts": ["x"], "min_p": 2}, "Min-p must be from 0 (off) to 1, not 2."),
        (
            {"prompts": ["x"], "repetition_penalty": 0},
            "The repetition penalty must be from 0.1 to 10 (1: off), not 0.",
        ),
        (
            {"prompts": ["x"], "max_new_tokens": 4, "min_new_tokens": 5},
            "Prompt 1: at least 5 new tokens do not fit its token budget of 4.",
        ),
        ({"prompts": ["x"], "stop": [""]}, "Stop string 1 is empty."),
        ({"prompts": ["x"], "stop": {"a": 1}}, "Stop strings must be a list of texts."),
    ],
)
def test_an_error_is_the_plain_sentence_and_comes_before_any_forward(strict, arguments, sentence):
    client, lm = strict
    with pytest.raises(AppError) as refused:
        client.predict(**arguments, api_name="/run")
    assert str(refused.value) == sentence
    assert lm.model.calls == []


def test_a_page_hears_nothing_of_a_scripts_errors(slow):
    with served(slow) as url:
        visitor = Visitor(url)
        visitor.join(rows_of(["long"], 400), "scripted")
        heard = []

        def listen():
            with visitor.messages() as messages:
                heard.extend(message for message, _ in messages)

        thread = threading.Thread(target=listen)
        thread.start()
        wait_for(lambda: len(slow.model.calls) >= 1)
        with pytest.raises(AppError):
            Client(url, verbose=False).predict(["x"], model=MARKUP, api_name="/run")
        visitor.stop()
        thread.join(20)
    assert not thread.is_alive()
    assert heard[-1]["msg"] == "close_stream"
    assert {message["success"] for message in heard if "success" in message} == {True}
    assert MARKUP not in json.dumps(heard)


def test_models_are_told_in_the_hosts_order(slow):
    other = type(slow)(slow.model, slow.tokenizer, name="other")
    with served(slow, other) as url:
        client = Client(url, verbose=False)
        assert client.predict(api_name="/models") == ["scripted", "other"]
        run = run_of(client.predict(["x"], max_new_tokens=2, model="other", api_name="/run"))
    assert run.model.name == "other"


def test_export_gives_the_same_text_as_in_a_shell(slow):
    from viz.export import export_text

    with served(slow) as url:
        client = Client(url, verbose=False)
        result = client.predict(["x"], max_new_tokens=4, api_name="/run")
        run = run_of(result)
        for name in ("svg", "csv", "json", "trace"):
            assert client.predict(result, name, "dark", api_name="/export") == export_text(
                run, name, theme="dark"
            )
        with pytest.raises(AppError, match=r"^Not a saved run: "):
            client.predict(result | {"steps": [MARKUP]}, "svg", api_name="/export")
        with pytest.raises(AppError, match=r"^The format must be one of "):
            client.predict(result, "png", api_name="/export")


def test_every_endpoint_says_what_it_takes_and_gives(slow):
    with served(slow) as url:
        told = Client(url, verbose=False).view_api(return_format="dict", print_info=False)
    endpoints = told["named_endpoints"]
    assert set(endpoints) == {"/run", "/sweep", "/compare", "/stop", "/models", "/export"}
    for endpoint in endpoints.values():
        assert endpoint["description"]
        for parameter in endpoint["parameters"]:
            assert parameter["python_type"]["type"] not in ("", "Any")
            assert parameter["python_type"]["description"]
        for returned in endpoint["returns"]:
            assert returned["python_type"]["type"] not in ("", "Any")
    run = {one["parameter_name"]: one for one in endpoints["/run"]["parameters"]}
    assert [name for name in run if not run[name]["parameter_has_default"]] == ["prompts"]

"""OpenAI's responses, which are kept: as its own client sees them."""

import threading

import httpx
import openai
import pytest

from engine.openai.replies import Remembered
from tests.clients import chatting, has_left, served
from tests.serving import wait_for
from tests.tiny import EOS, scripted_lm, token_ids

GREEDY = {"model": "scripted", "temperature": 0}


@pytest.fixture(scope="module")
def here():
    """Says "hello", and then the end."""
    with served(chatting(scripted_lm([[*token_ids("hello"), EOS]]))) as here:
        yield here


@pytest.fixture
def client(here):
    return here.client()


def prompt_of_last(here):
    """What the newest batch's first row was fed."""
    here.batches()
    ids = here.server.collectors["scripted"].recent[-1].run.batches[0].prompt_ids[0]
    return bytes(here.server.collectors["scripted"].lm.tokenizer.decode(ids), "utf-8").decode()


def test_a_response(client, here):
    reply = client.responses.create(
        **GREEDY, input="Hi", instructions="Be kind.", metadata={"who": "ann"}
    )
    assert reply.output_text == "hello"
    assert (reply.object, reply.status, reply.model) == ("response", "completed", "scripted")
    assert (reply.metadata, reply.instructions) == ({"who": "ann"}, "Be kind.")
    assert reply.usage.output_tokens == 6
    assert reply.usage.input_tokens == len("<Be kind.><Hi>")
    assert prompt_of_last(here) == "<Be kind.><Hi>"
    assert client.responses.retrieve(reply.id) == reply


def test_a_response_goes_on_from_another(client, here):
    first = client.responses.create(**GREEDY, input="Hi", instructions="Be kind.")
    second = client.responses.create(**GREEDY, input="And?", previous_response_id=first.id)
    assert prompt_of_last(here) == "<Hi><hello><And?>"
    assert second.previous_response_id == first.id
    client.responses.create(
        **GREEDY, input="Then?", previous_response_id=second.id, instructions="Be brief."
    )
    assert prompt_of_last(here) == "<Be brief.><Hi><hello><And?><hello><Then?>"


def test_an_answer_may_be_given_back_as_it_came(client, here):
    said = [{"role": "user", "content": "Hi"}]
    first = client.responses.create(**GREEDY, input=said)
    client.responses.create(
        **GREEDY, input=[*said, *first.output, {"role": "user", "content": "And?"}]
    )
    assert prompt_of_last(here) == "<Hi><hello><And?>"


def test_what_is_stored_has_nothing_of_the_parsed_input(client, here):
    reply = client.responses.create(**GREEDY, input=[{"role": "user", "content": "Hi"}] * 2)
    stored = here.server.responses.remembered.get(reply.id)
    assert stored.asked.input == ""
    assert [message["content"] for message in stored.conversation()] == ["Hi", "Hi", "hello"]
    assert not here.server.responses._under_way


def test_a_conversation_has_only_so_many_messages_with_those_before(client):
    asked = GREEDY | {"input": [{"role": "user", "content": "x"}] * 999}
    first = client.responses.create(**asked)
    with pytest.raises(openai.BadRequestError, match="has 1,001 messages: the limit is 1,000"):
        client.responses.create(**GREEDY, input="Hi", previous_response_id=first.id)


def test_a_streamed_response_tells_all_in_order(client):
    events = list(client.responses.create(**GREEDY, input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 5,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.delta for event in events[4:9]] == list("hello")
    assert events[0].response.status == "in_progress"
    assert events[-1].response.output_text == events[9].text == "hello"
    assert client.responses.retrieve(events[0].response.id) == events[-1].response


def test_openais_own_reader_of_streams_takes_it(client):
    with client.responses.stream(**GREEDY, input="Hi") as stream:
        texts = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        assert texts == ["h", "he", "hel", "hell", "hello"]
        assert stream.get_final_response().output_text == "hello"


def test_a_response_without_room_is_incomplete(client):
    reply = client.responses.create(**GREEDY, input="Hi", max_output_tokens=3)
    assert (reply.status, reply.output_text) == ("incomplete", "hel")
    assert reply.incomplete_details.reason == "max_output_tokens"
    *_, last = client.responses.create(**GREEDY, input="Hi", max_output_tokens=3, stream=True)
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")


def test_what_is_not_to_be_stored_is_not(client):
    reply = client.responses.create(**GREEDY, input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(reply.id)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**GREEDY, input="And?", previous_response_id=reply.id)
    assert raised.value.code == "previous_response_not_found"


def test_a_response_can_be_deleted(client):
    reply = client.responses.create(**GREEDY, input="Hi")
    client.responses.delete(reply.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(reply.id)


def test_one_that_is_over_can_t_be_cancelled(client):
    reply = client.responses.create(**GREEDY, input="Hi")
    with pytest.raises(openai.BadRequestError, match="completed can't be cancelled"):
        client.responses.cancel(reply.id)


class Held:
    """A server whose model waits before its third forward until it is let go."""

    def __init__(self, **serving):
        self.go = threading.Event()
        self.reached = threading.Event()
        lm = scripted_lm([token_ids("hello")], before_forward=self._wait)
        self._served = served(chatting(lm), window=0, **serving)

    def _wait(self, column):
        if column == 3:
            self.reached.set()
            assert self.go.wait(20)

    def __enter__(self):
        here = self._served.__enter__()
        self.client = here.client()
        self.here = here
        return self

    def __exit__(self, *error):
        self.go.set()
        self.here.batches()
        self._served.__exit__(*error)

    @property
    def collector(self):
        return self.here.server.collectors["scripted"]


def test_a_response_in_the_background_is_fetched_later():
    with Held() as held:
        reply = held.client.responses.create(
            **GREEDY, input="Hi", max_output_tokens=5, background=True
        )
        assert (reply.status, reply.output, reply.background) == ("queued", [], True)
        assert held.reached.wait(20)
        wait_for(lambda: held.client.responses.retrieve(reply.id).output_text == "he")
        assert held.client.responses.retrieve(reply.id).status == "in_progress"
        held.go.set()
        wait_for(lambda: held.client.responses.retrieve(reply.id).status == "incomplete")
        assert held.client.responses.retrieve(reply.id).output_text == "hello"


def test_a_response_in_the_background_is_cancelled_and_its_batch_stops():
    with Held() as held:
        reply = held.client.responses.create(
            **GREEDY, input="Hi", max_output_tokens=400, background=True
        )
        assert held.reached.wait(20)
        assert held.client.responses.cancel(reply.id).status == "cancelled"
        assert held.client.responses.cancel(reply.id).status == "cancelled"
        held.go.set()
        assert held.here.batches() == [[1]]
        (record,) = held.collector.recent
        assert (record.run.status, len(record.run.steps)) == ("stopped", 3)
        assert held.client.responses.retrieve(reply.id).status == "cancelled"
        with pytest.raises(openai.BadRequestError, match="is cancelled"):
            held.client.responses.create(**GREEDY, input="Hi", previous_response_id=reply.id)


def test_a_stream_that_is_cancelled_ends():
    with Held() as held:
        stream = held.client.responses.create(
            **GREEDY, input="Hi", max_output_tokens=400, stream=True
        )
        created = next(stream)
        assert held.client.responses.cancel(created.response.id).status == "cancelled"
        *_, last = stream
        assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
        assert "hello".startswith(last.response.output_text)


def test_a_client_that_leaves_a_stream_has_cancelled_it():
    with Held() as held:
        stream = held.client.responses.create(
            **GREEDY, input="Hi", max_output_tokens=400, stream=True
        )
        created = next(stream)
        stream.close()
        wait_for(lambda: has_left(held.collector))
        assert held.client.responses.retrieve(created.response.id).status == "cancelled"


def fail_at(at):
    def fail(column):
        if column == at:
            raise ValueError("no such place")

    return chatting(scripted_lm([token_ids("hello")], before_forward=fail))


def test_a_run_that_fails_is_told_as_a_failed_response():
    with served(fail_at(3)) as here:
        *_, last = here.client().responses.create(**GREEDY, input="Hi", stream=True)
        assert (last.type, last.response.status) == ("response.failed", "failed")
        assert last.response.error.message == "The model failed in forward 3: ValueError."
        with pytest.raises(openai.InternalServerError, match="The model failed in forward 3"):
            here.client().responses.create(**GREEDY, input="Hi")
        reply = here.client().responses.create(**GREEDY, input="Hi", background=True)
        wait_for(lambda: here.client().responses.retrieve(reply.id).status == "failed")


def test_a_run_that_fails_before_its_first_token_fails_the_call():
    with served(fail_at(1)) as here, pytest.raises(openai.InternalServerError):
        here.client().responses.create(**GREEDY, input="Hi", stream=True)


PART = {"type": "input_text", "text": "Hi"}


def message(*parts):
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"input": ""}, "The conversation is empty."),
        ({"input": []}, "at least 1 item"),
        ({"model": "gpt-4"}, "does not exist here"),
        ({"previous_response_id": "resp_1"}, "The response 'resp_1' is not there, or no more."),
        ({"background": True, "stream": True}, "in the background is not streamed here"),
        ({"background": True, "store": False}, "in the background must be stored"),
        ({"tools": [{"type": "web_search"}]}, "tools is not supported here"),
        ({"truncation": "auto"}, "truncation is not supported here"),
        ({"reasoning": {"effort": "low"}}, "reasoning is not supported here"),
        ({"text": {"format": {"type": "json_object"}}}, "Input should be 'text'"),
        ({"metadata": {"x": "y" * 513}}, "at most 512 characters"),
        ({"user": "y" * 513}, "at most 512 characters"),
        ({"safety_identifier": "y" * 513}, "at most 512 characters"),
        ({"prompt_cache_key": "y" * 513}, "at most 512 characters"),
        (
            {"input": [message(PART | {"annotations": [{}]})]},
            "annotations: List should have at most 0",
        ),
        ({"input": [message(PART | {"logprobs": [{}]})]}, "logprobs: List should have at most 0"),
        ({"input": [message(*[PART] * 1001)]}, "List should have at most 1000 items"),
        ({"input": [message(*[PART] * 501)] * 2}, "the messages have more than 1,000 parts"),
        ({"input": "x" * 8001}, "The conversation has 8,001 characters: the limit is 8,000."),
        ({"extra_body": {"n": 2}}, "n is not supported here"),
        ({"extra_body": {"max_tokens": 2}}, "max_tokens is not supported here"),
    ],
)
def test_a_response_that_can_t_be_is_refused_in_a_sentence(client, asked, said):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as raised:
        client.responses.create(**GREEDY | {"input": "Hi"} | asked)
    assert said in raised.value.body["message"]


@pytest.mark.parametrize("id", ["resp_1", "x/y", "%00", "a" * 3000])
def test_one_that_is_not_there(here, id):
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/cancel")]:
        answer = httpx.request(method, f"{here.url}/v1/responses/{id}{path}")
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_only_so_many_are_stored():
    lm = chatting(scripted_lm([[*token_ids("hello"), EOS]]))
    with served(lm, most_stored=2) as here:
        client = here.client()
        ids = [client.responses.create(**GREEDY, input="Hi").id for _ in range(3)]
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(ids[0])
        assert [client.responses.retrieve(id).id for id in ids[1:]] == ids[1:]


class Kept:
    def __init__(self, id):
        self.id = id


def test_what_is_old_is_forgotten():
    now = [0.0]
    remembered = Remembered(most=10, seconds=60, clock=lambda: now[0])
    first, second = Kept("a"), Kept("b")
    remembered.add(first)
    now[0] = 50.0
    remembered.add(second)
    assert (remembered.get("a"), remembered.get("b"), len(remembered)) == (first, second, 2)
    now[0] = 61.0
    assert (remembered.get("a"), remembered.get("b"), len(remembered)) == (None, second, 1)
    remembered.remove("b")
    remembered.remove("b")
    assert len(remembered) == 0

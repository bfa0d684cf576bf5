"""What a client asks for: the arguments of OpenAI's API that are understood here, strictly typed.

Arguments that would change an answer and can't be honoured are refused rather than ignored; what
vLLM takes beyond OpenAI's is taken by the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from engine.requests import MAX_STOP_CHARACTERS, MAX_STOPS

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's, for a completion that names no number."""

MOST_CHOICES = 128
MOST_MESSAGES = 1000
"""Of a conversation, and parts of a message: also empty ones take memory."""

Name = Annotated[str, Field(max_length=200)]
Label = Annotated[str, Field(max_length=512)]
Empty = Annotated[list[Any], Field(max_length=0)]
StopString = Annotated[str, Field(max_length=MAX_STOP_CHARACTERS)]
Stops = Annotated[list[StopString], Field(max_length=MAX_STOPS)]
TokenIds = list[int]
Texts = Annotated[list[str], Field(min_length=1)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _tell_neutral(description: dict[str, Any], model: type[BaseModel]) -> None:
    """A description of the endpoints names what an argument may be, where that is not much."""
    for name, neutral in model.neutral.items():
        description["properties"][name] = {"enum": [*neutral, None]}


class Asked(Strict):
    """What all endpoints take. `source` names the argument with what is to be read, and `neutral`
    has the values with which one that is not understood here asks for nothing."""

    model_config = ConfigDict(json_schema_extra=_tell_neutral)

    source: ClassVar[str]
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
        "logit_bias": ({},),
        "service_tier": ("auto", "default"),
        "store": (False,),
    }

    model: Name
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: StopString | Stops | None = None
    seed: int | None = None

    # Of vLLM.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None

    # They change no answer.
    user: Label | None = None
    metadata: Annotated[dict[Name, Label], Field(max_length=16)] | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    service_tier: str | None = None
    store: bool | None = None

    @model_validator(mode="after")
    def _asks_for_nothing_else(self) -> Asked:
        for name, neutral in self.neutral.items():
            value = getattr(self, name)
            if value is not None and value not in neutral:
                raise PydanticCustomError("not_supported", f"{name} is not supported here")
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError(
                "stream_options", "stream_options is only allowed when stream is true"
            )
        return self

    def prompts_by_name(self) -> dict[str, str | TokenIds]:
        """What is to be read, each text or token ids by what a sentence calls it."""
        raise NotImplementedError

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def rows(self) -> int:
        return len(self.prompts_by_name()) * self.choices

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def budget(self) -> int | None:
        """New tokens at most; None if no number is named."""
        return self.max_tokens

    def sampling(self) -> dict[str, Any]:
        """As arguments of `make_requests`; the temperature is 1 unless named, as OpenAI's is."""
        named = {
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed,
            "ignore_eos": self.ignore_eos,
            "min_new_tokens": self.min_tokens,
            "stop": self.stop,
        }
        return {name: value for name, value in named.items() if value is not None}


class CompletionAsked(Asked):
    source = "prompt"
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = Asked.neutral | {
        "logprobs": (),
        "echo": (False,),
        "suffix": ("",),
    }

    prompt: str | Texts | TokenIds | list[TokenIds]
    best_of: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _shows_all_it_makes(self) -> CompletionAsked:
        if self.best_of not in (None, self.choices):
            raise PydanticCustomError("not_supported", "best_of must be n here, or left out")
        return self

    def prompts_by_name(self) -> dict[str, str | TokenIds]:
        return {f"Prompt {number}": prompt for number, prompt in enumerate(self.prompts, 1)}

    @property
    def prompts(self) -> list[str | TokenIds]:
        """One or several, each a text or token ids."""
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]
        return list(self.prompt)


class Part(Strict):
    text: str


class TextPart(Part):
    type: Literal["text"]


class Said(Strict):
    """A message, whose parts are texts."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Sequence[Part]

    def templated(self) -> dict[str, str]:
        """As chat templates know them, which have no developers."""
        role = "system" if self.role == "developer" else self.role
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": role, "content": text}


def _check_parts(messages: Sequence[Said]) -> None:
    parts = sum(len(said.content) for said in messages if not isinstance(said.content, str))
    if parts > MOST_MESSAGES:
        raise PydanticCustomError(
            "too_many_parts", f"the messages have more than {MOST_MESSAGES:,} parts"
        )


class Message(Said):
    """`name` tells OpenAI's models participants of one role apart. Chat templates here know roles
    alone, and clients of many kinds send it, so it is taken and changes no answer."""

    content: str | Annotated[list[TextPart], Field(max_length=MOST_MESSAGES)]
    name: Label | None = None


def _conversation(messages: Iterable[dict[str, str]]) -> dict[str, str]:
    return {"The conversation": "".join(message["content"] for message in messages)}


class TextFormat(Strict):
    type: Literal["text"]


class ChatAsked(Asked):
    source = "messages"
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = Asked.neutral | {
        "logprobs": (False,),
        "top_logprobs": (0,),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
    }

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    response_format: TextFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _has_few_parts(self) -> ChatAsked:
        _check_parts(self.messages)
        return self

    def prompts_by_name(self) -> dict[str, str | TokenIds]:
        return _conversation(message.templated() for message in self.messages)

    @property
    def budget(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class InputPart(Part):
    """A text of a client, or one that was answered before and is given back as it came: answers
    here have no annotations and no logprobs."""

    type: Literal["input_text", "output_text"]
    annotations: Empty | None = None
    logprobs: Empty | None = None


class InputMessage(Said):
    content: str | Annotated[list[InputPart], Field(max_length=MOST_MESSAGES)]
    type: Literal["message"] | None = None
    id: Label | None = None
    status: Label | None = None
    phase: Label | None = None


class TextConfig(Strict):
    format: TextFormat | None = None
    verbosity: Label | None = None


class ResponseAsked(Asked):
    source = "input"
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        **{name: values for name, values in Asked.neutral.items() if name != "store"},
        "n": (1,),
        "max_tokens": (),
        "include": ([],),
        "reasoning": ({},),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }

    input: str | Annotated[list[InputMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    previous_response_id: Name | None = None
    background: bool | None = None
    text: TextConfig | None = None
    include: list[Any] | None = None
    reasoning: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    top_logprobs: int | None = None
    truncation: str | None = None

    @model_validator(mode="after")
    def _has_few_parts(self) -> ResponseAsked:
        if not isinstance(self.input, str):
            _check_parts(self.input)
        return self

    @model_validator(mode="after")
    def _is_either_streamed_or_fetched(self) -> ResponseAsked:
        if self.background and self.stream:
            raise PydanticCustomError(
                "not_supported", "a response in the background is not streamed here"
            )
        if self.background and self.store is False:
            raise PydanticCustomError(
                "not_supported", "a response in the background must be stored"
            )
        return self

    def prompts_by_name(self) -> dict[str, str | TokenIds]:
        return _conversation([{"content": self.instructions or ""}, *self.messages()])

    @property
    def budget(self) -> int | None:
        return self.max_output_tokens

    def messages(self) -> list[dict[str, str]]:
        """The input alone, as chat templates know it."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return [message.templated() for message in self.input]

"""What a client asks for -> Requests of token ids that fit the model, or an ApiError."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import RequestError, first_line
from engine.openai.asked import (
    DEFAULT_COMPLETION_TOKENS,
    MOST_MESSAGES,
    Asked,
    ChatAsked,
    CompletionAsked,
)
from engine.openai.refusals import refused
from engine.requests import Limits, check_prompt, make_requests
from engine.run import Request

if TYPE_CHECKING:
    from engine.models import LanguageModel

Templated = dict[str, str]
"""A message as chat templates take it: its role and content."""


def check_size(asked: Asked, limits: Limits) -> None:
    """That nothing is larger than it may be, whatever the model: so nothing of that kind waits for
    one. Raises ApiError."""
    if asked.rows > limits.prompts:
        raise refused(
            f"{asked.rows} answers are asked for: the limit is {limits.prompts}.", param="n"
        )
    most = limits.prompt_characters
    for name, prompt in asked.prompts_by_name().items():
        if len(prompt) > most:
            of = "characters" if isinstance(prompt, str) else "tokens"
            sentence = f"{name} has {len(prompt):,} {of}: the limit is {most:,}."
            raise refused(sentence, param=asked.source)


def completion_rows(asked: CompletionAsked, lm: LanguageModel, limits: Limits) -> list[Request]:
    """`n` rows for each prompt, one prompt after another."""
    budget = asked.budget or min(DEFAULT_COMPLETION_TOKENS, limits.new_tokens)
    return _rows(asked, asked.prompts, budget, lm, limits)


def chat_rows(asked: ChatAsked, lm: LanguageModel, limits: Limits) -> list[Request]:
    """`n` rows of the conversation."""
    messages = [message.templated() for message in asked.messages]
    return conversation_rows(asked, messages, lm, limits)


def conversation_rows(
    asked: Asked, messages: list[Templated], lm: LanguageModel, limits: Limits
) -> list[Request]:
    """Rows of a conversation in the model's own template. Without a budget the answer may be as
    long as the host and the context allow."""
    if len(messages) > MOST_MESSAGES:  # with those that it goes on from
        raise refused(
            f"The conversation has {len(messages):,} messages: the limit is {MOST_MESSAGES:,}.",
            param=asked.source,
        )
    said = "".join(message["content"] for message in messages)
    try:
        check_prompt(said, "The conversation", limits)
    except RequestError as error:
        raise refused(str(error), param=asked.source) from None
    ids = templated(messages, lm, param=asked.source)
    room = limits.new_tokens if lm.max_positions is None else lm.max_positions - len(ids)
    budget = asked.budget or max(1, min(limits.new_tokens, room))
    return _rows(asked, [ids], budget, lm, limits)


def templated(messages: list[Templated], lm: LanguageModel, *, param: str) -> tuple[int, ...]:
    """The token ids of a conversation; the template brings its own BOS, so the tokenizer adds
    none."""
    if not lm.has_chat_template:
        raise refused(f"{lm.name} has no chat template: it takes completions only.", param=param)
    try:
        text = lm.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
    except Exception as error:  # a template refuses by whatever its language raises
        raise refused(
            f"The model's chat template does not take these messages: {first_line(error)}.",
            param=param,
        ) from None
    return tuple(lm.tokenizer(text, add_special_tokens=False)["input_ids"])


def prompt_text(row: Request, lm: LanguageModel) -> str:
    """What a row's tokens say, without those that only mark the parts of a conversation."""
    return lm.tokenizer.decode(
        row.prompt, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _rows(
    asked: Asked,
    prompts: list[str | tuple[int, ...]],
    budget: int,
    lm: LanguageModel,
    limits: Limits,
) -> list[Request]:
    """A row per prompt and choice. Its random numbers follow from the seed and its place in the
    call, whoever shares its batch."""
    from engine.batching import check_fits, encode

    try:
        requests = make_requests(prompts, max_new_tokens=budget, limits=limits, **asked.sampling())
        requests = [
            replace(request, prompt=encode(lm, request, chat=False)) for request in requests
        ]
    except RequestError as error:
        raise refused(str(error)) from None
    for request in requests:
        try:
            check_fits(request, len(request.prompt), lm.max_positions)
        except RequestError as error:
            raise refused(str(error), param=asked.source, code="context_length_exceeded") from None
    return [
        replace(request, draws=request.index * asked.choices + choice)
        for request in requests
        for choice in range(asked.choices)
    ]

"""What a client asks for -> Requests of token ids that fit the model, or an ApiError."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import RequestError, first_line
from engine.openai.asked import DEFAULT_COMPLETION_TOKENS, Asked, ChatAsked, CompletionAsked
from engine.openai.refusals import refused
from engine.requests import Limits, check_prompt, make_requests
from engine.run import Request

if TYPE_CHECKING:
    from engine.models import LanguageModel

Templated = dict[str, str]
"""A message as chat templates take it: its role and content."""


def completion_rows(asked: CompletionAsked, lm: LanguageModel, limits: Limits) -> list[Request]:
    """`n` rows for each prompt, one prompt after another."""
    for number, prompt in enumerate(asked.prompts, 1):
        if not isinstance(prompt, str) and len(prompt) > limits.prompt_characters:
            raise refused(
                f"Prompt {number} has {len(prompt):,} tokens: the limit is "
                f"{limits.prompt_characters:,}.",
                param="prompt",
            )
    budget = asked.budget or min(DEFAULT_COMPLETION_TOKENS, limits.new_tokens)
    return _rows(asked, asked.prompts, budget, lm, limits, param="prompt")


def chat_rows(asked: ChatAsked, lm: LanguageModel, limits: Limits) -> list[Request]:
    """`n` rows of the conversation."""
    messages = [message.templated() for message in asked.messages]
    return conversation_rows(asked, messages, lm, limits, param="messages")


def conversation_rows(
    asked: Asked, messages: list[Templated], lm: LanguageModel, limits: Limits, *, param: str
) -> list[Request]:
    """Rows of a conversation in the model's own template. Without a budget the answer may be as
    long as the host and the context allow."""
    said = "".join(message["content"] for message in messages)
    try:
        check_prompt(said, "The conversation", limits)
    except RequestError as error:
        raise refused(str(error), param=param) from None
    ids = templated(messages, lm, param=param)
    room = limits.new_tokens if lm.max_positions is None else lm.max_positions - len(ids)
    budget = asked.budget or max(1, min(limits.new_tokens, room))
    return _rows(asked, [ids], budget, lm, limits, param=param)


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
    *,
    param: str,
) -> list[Request]:
    """A row per prompt and choice. Its random numbers follow from the seed and its place in the
    call, whoever shares its batch."""
    from engine.batching import check_fits, encode

    if (rows := len(prompts) * asked.choices) > limits.prompts:
        raise refused(f"{rows} answers are asked for: the limit is {limits.prompts}.", param="n")
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
            raise refused(str(error), param=param, code="context_length_exceeded") from None
    return [
        replace(request, draws=request.index * asked.choices + choice)
        for request in requests
        for choice in range(asked.choices)
    ]

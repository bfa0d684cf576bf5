"""The prompt list as a Gradio component; its value is [{"prompt": text, "max_new_tokens": n}]."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.errors import RequestError
from viz.assets import DataComponent

FOLDER = Path(__file__).parent
CSS = FOLDER / "editor.css"
_HAND_OVER = (FOLDER / "link.js").read_text(encoding="utf-8")
COPY_LINK = _HAND_OVER.replace("EVENT", "copy-order")
"""JavaScript for the `wants_link` event: prompts, model and settings -> a link in the clipboard."""
KEEP_SETTINGS = _HAND_OVER.replace("EVENT", "keep-order")
"""JavaScript for a change of model or settings: the same -> kept for a reload of this tab, and
counted as a change of the list."""


def editor_value(prompts: Sequence[str], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """The component's value for prompts and their token budgets."""
    return [
        {"prompt": prompt, "max_new_tokens": budget}
        for prompt, budget in zip(prompts, budgets, strict=True)
    ]


def prompts_and_budgets(value: object) -> tuple[list[str], list[Any]]:
    """The inverse of `editor_value`, for a value of whatever type a visitor sent. Budgets are as
    typed. Raises RequestError."""
    rows = value if isinstance(value, list) else []
    if not all(isinstance(row, dict) and isinstance(row.get("prompt"), str) for row in rows):
        raise RequestError('Prompts must be a list of {"prompt": text, "max_new_tokens": n}.')
    return [row["prompt"] for row in rows], [row.get("max_new_tokens") for row in rows]


def link_in(data: object) -> str:
    """The text of the link that the editor asks about, and that a `linked` event is about."""
    return str(data.get("link")) if isinstance(data, dict) else ""


def file_in(data: object) -> tuple[str, bytes]:
    """Name and content of the file that the editor asks about. Raises RequestError."""
    asked = data if isinstance(data, dict) else {}
    name, content = asked.get("name"), asked.get("content")
    if not isinstance(name, str) or not isinstance(content, str):
        raise RequestError("A file must have a name and a content.")
    try:
        return name, base64.b64decode(content, validate=True)
    except ValueError as error:
        raise RequestError("The content of a file must be base64.") from error


class PromptEditor(DataComponent):
    """An editable list. `submit` fires on Ctrl+Enter in a prompt, `replaced` when the whole list
    has become another one (pasted, out of a file, or kept from before a reload), `wants_link` on
    Copy link, and `linked` when the list has come out of a link or, with its settings, from before
    a reload; its text is `event.link`. `changed` fires a moment after the last of some changes of
    the list, or of the settings that KEEP_SETTINGS tells of."""

    def __init__(
        self,
        value: list[dict[str, Any]],
        *,
        default_budget: int,
        file_types: Sequence[str],
        largest_file: int,
        answer_link: Callable[[str], dict[str, Any]],
        answer_file: Callable[[str, bytes], dict[str, Any]],
        **options: Any,
    ) -> None:
        """`answer_link` answers a link's text with {"prompts": value, "text", "kind"}, or without
        "prompts" where there is only something to say; `answer_file` likewise the name and content
        of a file of prompts, whose budgets may be None: the default one. The browser offers
        `file_types`, and sends at most one byte more than `largest_file`."""

        def open_link(data: Any) -> dict[str, Any]:
            return answer_link(link_in(data))

        def open_prompts(data: Any) -> dict[str, Any]:
            try:
                return answer_file(*file_in(data))
            except RequestError as error:
                return {"text": str(error), "kind": "error"}

        super().__init__(
            value,
            folder=FOLDER,
            name="editor",
            default_budget=default_budget,
            file_types=list(file_types),
            largest_file=largest_file,
            server_functions=[open_link, open_prompts],
            **options,
        )

    def api_info(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "prompt": {"type": "string"},
                    "max_new_tokens": {"type": "integer"},
                },
            },
            "description": "the prompts, each with its token budget",
        }

"""What reads a visitor's input: the form, links, prompt files, saved runs, the page itself, and the
endpoints for OpenAI's clients."""

from __future__ import annotations

from tests.targets import openai
from tests.targets.files import open_prompts, prompt_files
from tests.targets.orders import arguments, ask_for_a_run, links, open_link, typed
from tests.targets.page import Caller, page, questions
from tests.targets.runs import open_run, saved_runs
from tests.targets.target import FuzzError, Target

__all__ = ["TARGETS", "FuzzError", "Target"]

TARGETS = {
    "form": Target(lambda: arguments() | arguments().map(typed), ask_for_a_run),
    "link": Target(links, open_link),
    "promptfile": Target(prompt_files, open_prompts),
    "run": Target(saved_runs, open_run),
    "endpoint": Target(questions, Caller.ask, page, rarity=100),
    "openai": Target(openai.calls, openai.Client.ask, openai.served_endpoints, rarity=100),
}

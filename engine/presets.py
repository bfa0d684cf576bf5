"""Prompt sets that each make one point; the first is the tutorial's own example."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import RequestError
from engine.requests import Limits

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Preset:
    """Prompts with a token budget each, and the settings that make their point."""

    key: str
    label: str
    prompts: tuple[str, ...]
    budgets: tuple[int, ...]
    batch_size: int
    chat_template: bool = True
    ignore_eos: bool = False
    temperature: float = 0.0

    def within(self, limits: Limits) -> Preset:
        """The preset as far as a host's limits allow it."""
        return replace(
            self,
            prompts=self.prompts[: limits.prompts],
            budgets=tuple(
                min(budget, limits.new_tokens) for budget in self.budgets[: limits.prompts]
            ),
            batch_size=min(self.batch_size, limits.batch_size),
        )

    @property
    def summary(self) -> str:
        """ "8 prompts with budgets from 8 to 96 tokens, 4 slots"."""
        least, most = min(self.budgets), max(self.budgets)
        budgets = f"budgets from {least} to {most}" if least < most else f"a budget of {most}"
        return f"{len(self.prompts)} prompts with {budgets} tokens, {self.batch_size} slots"


NO_PRESET = Preset(key="", label="", prompts=(), budgets=(), batch_size=0)

# 10, 30, 5 and 20 tokens under the default model's tokenizer, without a template.
_TUTORIAL = (
    "The best thing about the city of Paris is the",
    "A server that runs a language model reads all of its weights once for every step, so when "
    "many people ask at the same time it is best to",
    "Once upon a time,",
    "The moon rose over the quiet sea, and the old fisherman slowly turned his small wooden boat "
    "towards the",
)

PRESETS = (
    Preset(
        key="tutorial",
        label="Tutorial 46 % / 29 %",
        prompts=_TUTORIAL,
        budgets=(15, 10, 20, 12),
        batch_size=4,
        chat_template=False,
        ignore_eos=True,
    ),
    Preset(
        key="serial",
        label="One by one",
        prompts=_TUTORIAL,
        budgets=(15, 10, 20, 12),
        batch_size=1,
        chat_template=False,
        ignore_eos=True,
    ),
    Preset(
        key="straggler",
        label="One straggler",
        prompts=(
            "What is the capital of Germany?",
            "What is the capital of Japan?",
            "Name three fruits.",
            "Tell me a story about a fox who learns to sail.",
            "How many days are there in a week?",
            "Why is the sky blue?",
        ),
        budgets=(16, 16, 16, 64, 16, 16),
        batch_size=6,
    ),
    Preset(
        key="equal",
        label="Equal lengths",
        prompts=(
            "Tell me about the sun.",
            "Tell me about the sea.",
            "Tell me about the rain.",
            "Tell me about the moon.",
        ),
        budgets=(24, 24, 24, 24),
        batch_size=4,
        ignore_eos=True,
    ),
    Preset(
        key="long-short",
        label="Long and short",
        prompts=(
            "Summarise this in one sentence. A batch of requests runs as one rectangle of tokens. "
            "Every prompt is padded to the length of the longest, so the short ones carry columns "
            "that no one reads. Then every row decodes until the last one has ended, so the rows "
            "that end early keep a slot in which nothing useful is computed.",
            "Say hello.",
            "Name three fruits.",
            "What is the capital of Japan?",
        ),
        budgets=(32, 16, 16, 16),
        batch_size=4,
    ),
    Preset(
        key="waves",
        label="8 into 4 slots",
        prompts=(
            "What is the capital of France?",
            "Name three colours.",
            "Write one sentence about the sea.",
            "What is two plus two?",
            "Name a planet.",
            "Write one sentence about the moon.",
            "What do bees make?",
            "Say good night in one short sentence.",
        ),
        budgets=(12, 16, 32, 12, 8, 32, 12, 16),
        batch_size=4,
    ),
    Preset(
        key="same",
        label="Same prompt × 8",
        prompts=("Invent a name for a small robot and say what it likes to do.",) * 8,
        budgets=(32,) * 8,
        batch_size=8,
        temperature=0.8,
    ),
    Preset(
        key="unicode",
        label="Emoji, 中文, العربية",
        prompts=(
            "Reply with five emoji about the sea 🌊🐟⛵",
            "用一句话介绍你自己。",
            "اكتب جملة قصيرة عن البحر.",
            "Écris une phrase sur la mer, s'il te plaît.",
        ),
        budgets=(24, 24, 24, 24),
        batch_size=4,
    ),
)

MIXED = Preset(
    key="mixed",
    label="Mixed budgets",
    prompts=(
        "Tell me a story about a fox who learns to sail.",
        "What is the capital of Japan?",
        "Name three fruits.",
        "Explain how a bicycle stays upright.",
        "Write a short poem about rain.",
        "Say hello.",
        "Why is the sky blue?",
        "List five things to pack for a trip to the mountains.",
    ),
    budgets=(96, 8, 16, 64, 48, 8, 32, 80),
    batch_size=4,
)
"""What the ways to run requests are compared with, unless others are given."""


def find_preset(key: object) -> Preset:
    """The preset of that key. Raises RequestError if there is none."""
    for preset in (*PRESETS, MIXED):
        if preset.key == key:
            return preset
    raise RequestError(f"There is no preset {key!r:.40}.")

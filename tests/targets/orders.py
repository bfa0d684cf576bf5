"""Orders: what the form, the endpoint and links ask for, the arguments of make_order."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine.orders import Order, PageSettings, make_order, read_link
from engine.static import StaticBatchEngine
from tests.mutants import broken_bytes, broken_json, partly_wrong, texts
from tests.targets.runs import comes_back
from tests.targets.target import LIMITS, FuzzError, model
from viz.editor.editor import prompts_and_budgets


def arguments() -> SearchStrategy[dict[str, Any]]:
    few = st.integers(1, 4)
    return partly_wrong(
        {
            "prompts": st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4),
            "max_new_tokens": few,
            "model": st.none() | st.just("scripted"),
            "batch_size": st.none() | st.integers(1, 3),
            "chat_template": st.booleans(),
            "ignore_eos": st.booleans(),
            "temperature": st.sampled_from([0.0, 1e-8, 0.7, 1e30, 1.7e308]),
            "top_p": st.floats(0, 1, exclude_min=True),
            "top_k": st.integers(0, 300),
            "seed": st.none() | st.integers(-(10**15), 10**15),
            "padding_side": st.sampled_from(["left", "right"]),
            "min_p": st.floats(0, 1),
            "repetition_penalty": st.floats(0.1, 10),
            "min_new_tokens": st.integers(0, 1),
            "stop": st.lists(st.text(min_size=1, max_size=3), max_size=3),
        }
    )


def typed(arguments: dict[str, Any]) -> list[Any]:
    """The same arguments as the page's events bring them: prompt list, model, settings."""
    values = arguments | {"seed": arguments["seed"] if arguments["seed"] is not None else ""}
    prompts, budget = values["prompts"], values["max_new_tokens"]
    if isinstance(prompts, list):
        prompts = [{"prompt": prompt, "max_new_tokens": budget} for prompt in prompts]
    if isinstance(values["stop"], list):
        values["stop"] = "\n".join(map(str, values["stop"]))
    return [prompts, values["model"], *(values[name] for name in PageSettings._fields)]


def ask_for_a_run(inputs: dict[str, Any] | list[Any]) -> None:
    """From a script by name, or typed into the page."""
    if isinstance(inputs, dict):
        order = make_order(LIMITS, **inputs)
    else:
        prompts, model, *settings = inputs
        listed, budgets = prompts_and_budgets(prompts)
        PageSettings.of_prompts(listed, LIMITS)
        asked = PageSettings(*settings).asked()
        order = make_order(LIMITS, prompts=listed, max_new_tokens=budgets, model=model, **asked)
    _shown_as_it_is(order)
    _runs(order)


def _shown_as_it_is(order: Order) -> None:
    """What the page shows of an order asks for that order again."""
    again = make_order(
        LIMITS,
        prompts=[request.prompt for request in order.requests],
        max_new_tokens=[request.max_new_tokens for request in order.requests],
        model=order.model,
        **PageSettings.of_order(order).asked() | {"seed": order.requests[0].seed},
    )
    if again.requests != order.requests:
        raise FuzzError(f"shown as another order: {again}")


def _runs(order: Order) -> None:
    engine = StaticBatchEngine(
        model(),
        batch_size=order.batch_size,
        padding_side=order.padding_side,
        chat_template=order.chat_template,
    )
    comes_back(engine.run(order.requests))


def open_link(text: str) -> None:
    _shown_as_it_is(read_link(text, LIMITS))


def links() -> SearchStrategy[str]:
    def link(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    asked = arguments().map(json.dumps)
    fine = json.dumps({"prompts": ["Hello"], "stop": ["END"], "seed": 1, "min_p": 0.1})
    broken = broken_bytes([fine.encode(), link(fine).encode()])
    return st.one_of(
        asked.map(link),
        broken_json([fine]).map(link),
        broken.map(lambda data: base64.urlsafe_b64encode(data).decode()),
        broken.map(lambda data: data.decode("latin-1")),
        st.sampled_from(["[", '{"prompts":']).map(lambda text: link(text * 50_000)),
        texts,
    )

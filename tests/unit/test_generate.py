"""The two calls for scripts, and what importing the package loads."""

import subprocess
import sys
from pathlib import Path

import pytest

import engine
from engine.errors import RequestError
from engine.generate import GenerationResult, generate_batch, generate_one
from engine.metrics import rows
from engine.requests import make_requests
from engine.static import StaticBatchEngine
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids

ROOT = Path(__file__).parents[2]
A, B = token_ids("AB")


@pytest.fixture(scope="module")
def lm():
    return tiny_lm()


def test_generate_batch_gives_the_engines_ids_and_texts(lm):
    prompts = ["a", "longer", "the longest"]
    results = generate_batch(lm.model, lm.tokenizer, prompts, max_new_tokens=8)
    run = StaticBatchEngine(lm).run(make_requests(prompts, max_new_tokens=8))
    assert [result.generated_token_ids for result in results] == row_ids(run)
    assert [result.text for result in results] == list(run.texts)
    assert [result.prompt for result in results] == prompts
    assert [result.prompt_tokens for result in results] == [1, 6, 11]


def test_generate_one_is_a_batch_of_one(lm):
    one = generate_one(lm.model, lm.tokenizer, "longer", max_new_tokens=8)
    [batch] = generate_batch(lm.model, lm.tokenizer, ["longer"], max_new_tokens=8)
    assert isinstance(one, GenerationResult)
    assert one.generated_token_ids == batch.generated_token_ids
    assert one.text == batch.text


def test_every_field_is_the_rows_own():
    lm = scripted_lm([[A, B, EOS], [B], [A]], seconds=0.002)
    steps = []
    ended, cut, one = generate_batch(
        lm.model, lm.tokenizer, ["a", "bcd", "e"], max_new_tokens=[9, 6, 1], on_step=steps.append
    )
    assert (ended.text, cut.text, one.text) == ("AB", "BBBBBB", "A")
    assert ended.generated_token_ids == [A, B, EOS]
    assert [result.generated_tokens for result in (ended, cut, one)] == [3, 6, 1]
    assert [result.finished for result in (ended, cut, one)] == [True, False, False]
    assert [result.prompt_tokens for result in (ended, cut, one)] == [1, 3, 1]

    for result in (ended, cut, one):
        n = result.generated_tokens
        assert result.prefill_seconds == steps[0].seconds
        assert result.decode_seconds == sum(step.seconds for step in steps[1:n])
        assert result.ttft_seconds >= result.prefill_seconds
        assert result.elapsed_seconds >= result.ttft_seconds
        assert result.tokens_per_second == pytest.approx(n / result.elapsed_seconds)
    assert ended.elapsed_seconds < cut.elapsed_seconds
    assert one.elapsed_seconds == one.ttft_seconds
    assert one.tpot_seconds is None
    decode = ended.elapsed_seconds - ended.ttft_seconds
    assert ended.tpot_seconds == pytest.approx(decode / 2)


def test_times_count_from_the_start_of_the_rows_batch():
    lm = scripted_lm([[A]], seconds=0.01)
    steps = []
    first, second = generate_batch(
        lm.model, lm.tokenizer, ["a", "b"], max_new_tokens=3, batch_size=1, on_step=steps.append
    )
    assert [step.batch for step in steps] == [0, 0, 0, 1, 1, 1]
    assert first.elapsed_seconds <= steps[2].finished
    assert second.elapsed_seconds <= steps[5].finished - steps[2].finished
    assert second.prefill_seconds == steps[3].seconds


def test_all_prompts_share_one_batch_unless_a_batch_size_is_given():
    lm = scripted_lm([[A]])
    for batch_size, rows_per_forward in ((None, [11]), (4, [4, 4, 3])):
        lm.model.calls.clear()
        generate_batch(lm.model, lm.tokenizer, ["a"] * 11, max_new_tokens=1, batch_size=batch_size)
        assert [len(call.ids) for call in lm.model.calls] == rows_per_forward


@pytest.mark.parametrize("batch_size", [0, -1, 1.5])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    lm = scripted_lm([[A]])
    with pytest.raises(RequestError, match="batch size must be"):
        generate_batch(lm.model, lm.tokenizer, ["a", "b"], batch_size=batch_size)


def test_the_options_reach_the_engine():
    lm = scripted_lm([[A, EOS]])
    options = {"max_new_tokens": 4, "ignore_eos": True, "padding_side": "right"}
    results = generate_batch(lm.model, lm.tokenizer, ["abc", "d"], **options)
    assert [result.generated_tokens for result in results] == [4, 4]
    assert lm.model.calls[0].ids[1].tolist() == [*token_ids("d"), EOS, EOS]


def test_chat_template_is_used_if_asked():
    lm = tiny_lm(chat=True)
    for chat, tokens in ((False, 3), (True, 5)):
        [result] = generate_batch(
            lm.model, lm.tokenizer, ["abc"], max_new_tokens=1, chat_template=chat
        )
        assert result.prompt_tokens == tokens


def test_a_seed_makes_sampling_repeatable(lm):
    def ids(seed):
        options = {"max_new_tokens": 12, "temperature": 1.0, "seed": seed}
        return [
            generate_one(lm.model, lm.tokenizer, "a", **options).generated_token_ids,
            *(
                result.generated_token_ids
                for result in generate_batch(
                    lm.model, lm.tokenizer, ["a", "b"], top_k=20, top_p=0.9, **options
                )
            ),
        ]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)


@pytest.mark.parametrize(
    ("prompts", "options", "named"),
    [
        ([], {}, "no prompts"),
        (["a", ""], {}, "Prompt 2 is empty"),
        (["a"], {"max_new_tokens": 0}, "at least 1"),
        (["a"], {"max_new_tokens": [1, 2]}, "2 token budgets for 1 prompts"),
        (["a"], {"temperature": -1}, "temperature"),
        (["a"], {"padding_side": "top"}, "left or right"),
    ],
)
def test_bad_requests_are_refused_before_any_forward(prompts, options, named):
    lm = scripted_lm([[A]])
    with pytest.raises(RequestError, match=named):
        generate_batch(lm.model, lm.tokenizer, prompts, **options)
    assert lm.model.calls == []


# Imports


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split())


@pytest.mark.parametrize(
    "statement",
    [
        "import engine",
        "import engine.run, engine.metrics, engine.requests, engine.runfile, engine.errors",
        "from engine import Run, Step, BatchscopeError, make_requests",
    ],
)
def test_reading_a_record_loads_no_torch(statement):
    loaded = modules_after(statement)
    assert "engine" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "gradio", "plotly"})


def test_every_public_name_can_be_had_from_the_package():
    for name in engine.__all__:
        assert getattr(engine, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = engine.nothing


def test_the_packages_docstring_example_runs():
    lm = tiny_lm()
    stream = engine.StaticBatchEngine(lm, batch_size=4).stream(
        engine.make_requests(["Hello", "What is a slot?"])
    )
    pieces = [step.pieces for step in stream]
    assert tuple(map("".join, zip(*pieces, strict=True))) == stream.record().texts
    assert [row.slot for row in rows(stream.record())] == [0, 1]

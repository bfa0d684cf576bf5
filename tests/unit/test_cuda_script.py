"""The script for a CUDA device, tried without one: what it counts, compares, drops and writes."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

import engine.graphs
import tests.cuda
from engine.bench import measure_sweep
from engine.sweepfile import loads
from tests.captured import captured, record
from tests.cuda import (
    Asked,
    Budget,
    Call,
    Report,
    Waits,
    calls_within,
    compare_ids,
    counting,
    few_places,
    main,
    measure_size,
    watch,
    watched_requests,
)
from tests.families import FAMILIES
from tests.tiny import tiny_lm

ASKED = Asked(prompt=(65, 66, 67), new_tokens=4, runs=3)
SMALL = ["--device", "cpu", "--shapes", "tiny", "--batch-size", "1", "2", "--batches", "1"]
SHORT = ["--prompt-tokens", "4", "--new-tokens", "4", "--runs", "2", "--no-compile"]


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(engine.graphs, "capture", record)


def measured(**asked):
    how = {"baselines": ["eager"], "rates": None, "seconds": 60.0, "budget": Budget(60.0)}
    return measure_size("tiny", tiny_lm("qwen3"), 2, ASKED, **(how | asked))


# The whole


def test_all_parts_are_told_and_written(tmp_path, capsys):
    assert main([*SMALL, *SHORT, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.endswith("0 problems\n")
    found = json.loads((tmp_path / "cuda.json").read_text())
    families = [ids["family"] for ids in found["ids"]]
    assert families == [*tests.cuda.DENSE, *tests.cuda.MIXTURES, tests.cuda.READS]
    assert [ids["differing"] for ids in found["ids"]] == [0] * len(families)
    assert all(ids["replays"] for ids in found["ids"][: len(tests.cuda.DENSE)])
    assert "not permitted" in found["ids"][-1]["reason"]
    chosen = [(one["rows"], one["packed"]) for one in found["attention"] if one["chosen"]]
    assert chosen == [(1, False), (1, True), (8, False), (8, True)]
    assert [waits["options"] for waits in found["waits"]] == [*tests.cuda.OPTIONS, "mixed"]
    sweeps = [loads(json.dumps(one["sweep"])) for one in found["speed"]]
    assert [sweep.sizes[0].batch_size for sweep in sweeps] == [1, 2]
    assert [sweep.rates for sweep in sweeps] == [sweeps[0].rates] * 2
    ways = [[series.way for series in sweep.sizes[0].baselines] for sweep in sweeps]
    assert ways == [["eager", "generate"], ["eager"]]
    for one, sweep in zip(found["speed"], sweeps, strict=True):
        assert sweep.random_weights
        assert len(sweep.sizes[0].engine.samples) == 2
        assert one["step_seconds"] > 0


def test_compiled_steps_come_last_and_are_left_out_without_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tests.cuda, "with_compiled_steps", lambda lm: lm)
    monkeypatch.setattr(tests.cuda, "COMPILE_SECONDS", 1.0)
    for other in ("show_ids", "show_waits"):
        monkeypatch.setattr(tests.cuda, other, lambda *_: None)
    asked = [*SMALL, *SHORT[:-1], "--out", str(tmp_path)]
    assert main(asked) == 0
    found = json.loads((tmp_path / "cuda.json").read_text())
    assert [one["shape"] for one in found["speed"]] == ["tiny"] * 2 + ["tiny c"] * 2
    monkeypatch.setattr(tests.cuda, "COMPILE_SECONDS", 1e9)
    assert main(asked) == 0
    found = json.loads((tmp_path / "cuda.json").read_text())
    assert found["left_out"] == [["tiny compiled", None]]


def test_without_time_the_ids_are_still_compared_and_what_is_left_out_is_told(tmp_path):
    assert main([*SMALL, *SHORT, "--seconds", "0", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "cuda.json").read_text())
    assert found["left_out"] == [["tiny", 1], ["tiny", 2]]
    assert "speed" not in found
    assert len(found["ids"]) == 8


def test_a_part_that_fails_is_a_problem_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def fail(shape, device):
        raise RuntimeError(f"no room for {shape}")

    monkeypatch.setattr(tests.cuda, "make_model", fail)
    monkeypatch.setattr(tests.cuda, "show_waits", lambda *_: None)
    assert main([*SMALL, *SHORT, "--out", str(tmp_path)]) == 1
    found = json.loads((tmp_path / "cuda.json").read_text())
    assert found["problems"] == ["speed of tiny failed: RuntimeError: no room for tiny"]
    assert "no room for tiny" in capsys.readouterr().out
    assert len(found["ids"]) == 8


# Ids


def test_ids_that_differ_are_counted_and_the_first_is_shown(recorded):
    """Two models that are not the same."""
    found = compare_ids("llama", captured(tiny_lm(seed=0)), tiny_lm(seed=1), batches=2)
    assert 0 < found.differing <= found.rows
    assert "eagerly" in found.first
    assert f"{found.differing} differ" in found.line


def test_ids_that_differ_are_a_problem(recorded, monkeypatch, capsys):
    two = captured(tiny_lm(seed=0)), tiny_lm(seed=1)
    monkeypatch.setattr(tests.cuda, "both_ways", lambda family, device: two)
    report = Report(None)
    tests.cuda.show_ids(report, ["llama"], torch.device("cpu"), 1)
    assert len(report.problems) == 1
    assert "rows differ" in report.problems[0]


def test_steps_that_were_not_captured_are_a_problem(monkeypatch):
    lm = FAMILIES["llama"]()
    monkeypatch.setattr(tests.cuda, "both_ways", lambda family, device: (lm, lm))
    report = Report(None)
    tests.cuda.show_ids(report, ["llama"], torch.device("cpu"), 1)
    assert report.problems == ["llama: no step was captured"]


def test_captures_and_replays_are_counted(recorded):
    lm = captured(tiny_lm())
    with counting() as captures, few_places():
        watched = watch(lm, watched_requests("greedy"), "greedy")
    # Two runs of columns 10 to 48, at 16, 32 and 48 places; the first step of each as it is.
    assert len(captures.seconds) == 2 * 3
    assert captures.replays == 2 * (39 - 3)
    assert watched.steps == 39 - 3


# Waits


def test_calls_are_counted_in_the_steps_alone():
    calls = [Call("cudaLaunchKernel", at, at + 1) for at in (0, 5, 9, 10, 25)]
    spans = [Call("decode step", 5, 10), Call("decode step", 20, 30)]
    assert calls_within(calls, spans) == Counter(cudaLaunchKernel=3)


def test_one_wait_for_tokens_in_a_step_is_no_problem_and_any_other_is():
    fine = Waits("greedy", 10, calls={"cudaEventSynchronize": 10, "cudaGraphLaunch": 10})
    assert (fine.waits, fine.problem) == (0, None)
    assert "'cudaGraphLaunch': 1.0" in fine.line
    for calls in ({"cudaEventSynchronize": 12}, {"cudaStreamSynchronize": 2}):
        worse = replace(fine, calls=calls)
        assert worse.waits == 2
        assert "waited 2 times" in worse.problem
    assert "device worked" in replace(fine, wall_seconds=1.0, device_seconds=1.5).problem
    assert "16 bytes were left" in replace(fine, left_bytes=16).problem
    assert "can't" in replace(fine, reason="it can't").problem


@pytest.mark.parametrize("options", [*tests.cuda.OPTIONS, "mixed"])
def test_every_kind_of_option_can_be_watched(options, recorded):
    found = watch(captured(tiny_lm()), watched_requests(options), options)
    assert found.steps > 20
    assert found.problem is None
    assert "not profiled" in found.line


# Speed


def test_a_size_is_measured_with_all_runs_where_there_is_time():
    found = measured()
    assert len(found.size.engine.samples) == ASKED.runs
    assert len(found.size.baseline("eager").samples) == ASKED.runs
    assert found.sweep.status == "done"
    assert found.line.split()[:2] == ["tiny", "2"]


def test_runs_are_dropped_where_there_is_none_but_one_of_each_way_is_kept():
    found = measured(seconds=0.0)
    assert len(found.size.engine.samples) == 1
    assert len(found.size.baseline("eager").samples) == 1


def test_nothing_is_measured_once_the_budget_is_gone():
    assert measured(budget=Budget(0.0)) is None


def test_a_size_that_cannot_be_measured_says_why(monkeypatch):
    def failing(*given, **named):
        for news in measure_sweep(*given, **named):
            yield replace(news, error="Out of memory.") if hasattr(news, "sizes") else news

    monkeypatch.setattr(tests.cuda, "measure_sweep", failing)
    with pytest.raises(RuntimeError, match="Out of memory"):
        measured(seconds=0.0)

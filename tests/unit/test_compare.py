"""Three engines, one after another, on the same requests: beside one another, in line, and when one
of them can't."""

import logging
import threading
from contextlib import closing

import pytest

from engine import comparison, paged
from engine.compare import WARMUP_TOKENS, compare
from engine.comparing import compare_frames, compare_gpu_seconds
from engine.comparison import ENGINES, Comparison, same_ids, table
from engine.continuous import ContinuousEngine
from engine.errors import RequestError
from engine.host import Host, _to_the_end
from engine.live import Refused, Waiting
from engine.metrics import measure
from engine.requests import Limits, make_requests
from engine.shelf import ModelShelf
from engine.static import StaticBatchEngine
from engine.turns import turns_on
from tests.families import ends_often
from tests.tiny import scripted_lm, tiny_lm
from tests.unit.streams import FailingOnce
from tests.unit.test_shell import shell  # noqa: F401  a fixture

if reason := paged.reason_against(tiny_lm()):
    pytest.skip(reason, allow_module_level=True)

PROMPTS = ["hello", "a much longer prompt with some more words", "x", "foo bar", "q" * 30]
BUDGETS = [9, 20, 1, 14, 25]
SCRIPT = [list(range(65, 91))]


def asked(**options):
    return make_requests(PROMPTS, max_new_tokens=BUDGETS, **options)


def whole(lm, requests, *, batch_size=2, **options) -> Comparison:
    with closing(compare(lm, requests, batch_size=batch_size, **options)) as stream:
        for _ in stream:
            pass
        return stream.record()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_float32_gives_equal_ids_in_three_lanes(family):
    done = whole(ends_often(tiny_lm(family)), asked())
    assert done.status == "done"
    assert same_ids(done) is True
    assert [run.settings.engine for run in done.runs] == list(ENGINES)
    assert [run.settings.batch_size for run in done.runs] == [1, 2, 2]
    assert [row.same_ids for row in table(done)] == [True] * 3
    assert comparison.loads(comparison.dumps(done)) == done


def test_continuous_takes_no_more_forwards_than_static():
    rows = table(whole(tiny_lm("llama"), asked(ignore_eos=True)))
    serial, static, continuous = (row.figures.forwards for row in rows)
    # Static: 20, 14, 25; continuous: as worked out in the tests of its record.
    assert (serial, static, continuous) == (sum(BUDGETS), 59, 45)


def test_the_record_grows_and_says_whose_turn_it_is():
    seen = []
    stream = compare(tiny_lm("llama"), asked(), batch_size=2)
    with closing(stream):
        for _ in stream:
            now = stream.record()
            assert now.entry(stream.engine).run.status == "running"
            seen.append((now.under_way, len(now.runs)))
    assert list(dict.fromkeys(seen)) == [("serial", 1), ("static", 2), ("continuous", 3)]
    assert stream.record().under_way is None


def test_c8_every_engine_has_a_warm_up_that_is_in_no_figure():
    lm = scripted_lm(SCRIPT)
    done = whole(lm, make_requests(["abc", "de", "f"], max_new_tokens=30), batch_size=2)
    serial, static = (len(done.entry(engine).run.steps) for engine in ("serial", "static"))
    assert (serial, static) == (3 * 30, 2 * 30)
    assert len(lm.model.calls) == serial + static + 2 * WARMUP_TOKENS
    assert [tuple(call.ids.shape) for call in lm.model.calls[:2]] == [(1, 3), (1, 1)]


# What one of them can't do


def test_an_engine_that_can_not_do_it_says_why_and_the_others_run():
    done = whole(tiny_lm("llama"), asked(temperature=0.5, seed=1))
    assert done.status == "done"
    assert [run.settings.engine for run in done.runs] == ["serial", "static"]
    assert "set the temperature to 0" in done.entry("continuous").reason
    assert same_ids(done) is True  # a row's draws do not depend on its neighbours
    assert table(done)[2].note == done.entry("continuous").reason


def test_right_padding_is_refused_in_its_lane_alone_where_there_are_windows():
    done = whole(tiny_lm("mistral"), asked(), padding_side="right")
    assert "Use left padding" in done.entry("static").reason
    assert [run.settings.engine for run in done.runs] == ["serial", "continuous"]
    assert same_ids(done) is True


def test_what_no_engine_could_run_is_refused_at_once():
    with pytest.raises(RequestError, match="no prompts"):
        compare(tiny_lm("llama"), [], batch_size=2)
    with pytest.raises(RequestError, match="does not fit the model's context"):
        compare(tiny_lm("llama"), make_requests(["a"], max_new_tokens=600), batch_size=2)


def test_an_error_in_one_lane_ends_that_lane_alone():
    failing = FailingOnce(WARMUP_TOKENS + 3, ValueError("broken"))
    lm = scripted_lm(SCRIPT, before_forward=failing)
    done = whole(lm, make_requests(["abc", "de"], max_new_tokens=30))
    serial, static = done.entry("serial").run, done.entry("static").run
    assert (serial.status, static.status, done.status) == ("error", "done", "done")
    assert "ValueError: broken" in serial.error
    assert len(serial.steps) == WARMUP_TOKENS + 2
    assert [row.note for row in table(done)][:2] == [serial.error, None]
    assert table(done)[1].speed_up is None  # there is nothing to hold it against
    assert comparison.loads(comparison.dumps(done)) == done


def test_a_lane_that_fails_in_its_warm_up_has_a_reason_and_no_run():
    lm = scripted_lm(SCRIPT, before_forward=FailingOnce(2, ValueError("broken")))
    done = whole(lm, make_requests(["abc", "de"], max_new_tokens=30))
    assert done.entry("serial").run is None
    assert "ValueError: broken" in done.entry("serial").reason
    assert done.entry("static").run.status == "done"


# Ends before the end


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_in_any_lane_keeps_what_was_measured(engine):
    stop = threading.Event()
    stream = compare(tiny_lm("llama"), asked(ignore_eos=True), batch_size=2, stop=stop)
    with closing(stream):
        for step in stream:
            if stream.engine == engine and step.forward == 7:
                stop.set()
    now = stream.record()
    assert now.status == "stopped"
    assert [run.status for run in now.runs][-1] == "stopped"
    assert len(now.runs) == ENGINES.index(engine) + 1
    assert comparison.loads(comparison.dumps(now)) == now
    assert not len(turns_on("cpu"))


def test_closing_between_two_steps_gives_the_device_back():
    stream = compare(tiny_lm("llama"), asked(), batch_size=2)
    next(stream)
    stream.close()
    stream.close()
    assert stream.record().status == "stopped"
    assert [run.status for run in stream.record().runs] == ["stopped"]


def test_the_deadline_is_of_all_runs_together():
    lm = scripted_lm(SCRIPT, seconds=0.01)
    now = whole(lm, make_requests(["abc"] * 3, max_new_tokens=40), seconds=1.2)
    assert now.status == "error"
    assert now.error == "The comparison took longer than this host allows: 1.2 s."
    assert now.runs[-1].error == now.error
    assert now.entry("continuous").run is None
    assert comparison.loads(comparison.dumps(now)) == now


# As frames


def frames_of(lm, requests=None, *, stop=None, seconds=60):
    return compare_frames(
        lm,
        requests or make_requests(["abc", "de"], max_new_tokens=20),
        stop or threading.Event(),
        batch_size=2,
        padding_side="left",
        chat_template=False,
        seconds=seconds,
    )


def test_the_last_frame_is_the_whole_comparison():
    *_, last = frames_of(tiny_lm("llama"), asked())
    assert last.status == "done"
    assert len(last.runs) == 3


def test_frames_show_who_waits_and_then_what_is_measured():
    before = turns_on("cpu").join()
    frames = frames_of(scripted_lm(SCRIPT, seconds=0.02))
    assert isinstance(next(frames), Comparison)
    assert next(frames).ahead == 1
    before.leave()
    seen = [frame for frame in frames if not isinstance(frame, Waiting)]
    assert [now.status for now in seen[:-1]] == ["running"] * (len(seen) - 1)
    assert seen[-1].status == "done"
    assert len(seen) > 3


def test_closing_the_frames_ends_the_comparison():
    lm = scripted_lm(SCRIPT, seconds=0.02)
    frames = frames_of(lm, make_requests(["abc"], max_new_tokens=400))
    while not lm.model.calls:
        next(frames)
    frames.close()
    for thread in [each for each in threading.enumerate() if each.name == "engine"]:
        thread.join(30)
        assert not thread.is_alive()
    assert len(lm.model.calls) < 100


def test_what_can_not_be_run_is_a_refused_frame():
    frames = list(frames_of(tiny_lm("llama"), make_requests(["a"], max_new_tokens=600)))
    assert len(frames) == 1
    assert isinstance(frames[0], Refused)


def test_between_the_forwards_where_a_gpu_is_lent(monkeypatch):
    monkeypatch.setattr("engine.comparing.ON_ZERO_GPU", True)
    *_, last = frames_of(tiny_lm("llama"), asked())
    assert last.status == "done"
    assert not [thread for thread in threading.enumerate() if thread.name == "engine"]


def test_a_gpu_is_asked_for_by_the_steps_and_no_longer_than_a_run_may_take():
    asked_for = [
        compare_gpu_seconds(
            None, make_requests(["a"] * rows, max_new_tokens=50), None, seconds=limit, batch_size=4
        )
        for rows, limit in ((1, 300), (4, 300), (400, 300), (400, 60))
    ]
    assert asked_for == [25, 40, 120, 60]


# For a visitor, and in a shell


def test_a_host_compares_for_its_visitor_and_logs_a_line(caplog):
    caplog.set_level(logging.INFO, "batchscope.host")
    shelf = ModelShelf(["tiny-llama"])
    shelf.add(tiny_lm("llama"))
    host = Host(shelf, Limits())
    *_, last = host.compare("ann", prompts=["secret", "b"], max_new_tokens=4, ignore_eos=True)
    assert last.status == "done"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("comparison 1 done: tiny-llama, serial ")
    assert "continuous" in line
    assert "secret" not in line


def test_a_host_keeps_its_limits():
    shelf = ModelShelf(["tiny-llama"])
    shelf.add(tiny_lm("llama"))
    with pytest.raises(RequestError, match="the limit is 1"):
        list(Host(shelf, Limits(prompts=1)).compare("ann", prompts=["a", "b"]))


def test_the_shell_prints_the_table_and_saves_the_record(shell, tmp_path):  # noqa: F811
    path = tmp_path / "out.json"
    status, out, err = shell(
        *("compare", "--prompt", "hello", "--prompt", "hi", "--max-new-tokens", "5,3"),
        *("--ignore-eos", "--batch-size", 1, "--json", path),
        lm=tiny_lm("llama"),
    )
    assert status == 0
    assert f"saved {path}" in err
    loaded = comparison.loads(path.read_bytes())
    assert [measure(run).generated_tokens for run in loaded.runs] == [8, 8, 8]
    assert ["ids", "the", "same", "the", "same", "the", "same"] in map(str.split, out.splitlines())
    assert ["new", "tokens", "8", "8", "8"] in map(str.split, out.splitlines())


def test_the_shell_says_why_an_engine_did_not_run(shell):  # noqa: F811
    status, out, _ = shell("compare", "--prompt", "hello", "--max-new-tokens", 4)
    assert status == 0
    assert "continuous: scripted can't be run by transformers' continuous batching" in out


def test_what_was_cut_off_is_a_record_that_loads(caplog):
    """A lent GPU can be taken away in the middle of a run."""
    with closing(compare(tiny_lm(), asked(), batch_size=2)) as stream:
        for _ in range(70):  # into the static run
            next(stream)
        shown = stream.record()

    def taken_away():
        yield shown
        raise RuntimeError("GPU task aborted")

    *_, last = _to_the_end(taken_away(), Comparison, "comparison 1", threading.Event())
    assert last.under_way is None
    assert [run.status for run in last.runs] == ["done", "error"]
    assert last.error == "The comparison was cut off: GPU task aborted."
    assert comparison.loads(comparison.dumps(last)) == last


def test_while_the_manager_has_the_attention_others_are_told_the_models_own():
    lm = tiny_lm()
    lm.model.set_attn_implementation("eager")
    with closing(ContinuousEngine(lm).stream(asked())) as stream:
        next(stream)
        assert lm.model.config._attn_implementation != "eager"
        assert paged.reason_against(lm) is None
        told = StaticBatchEngine(lm).forecast(asked()).working_bytes
    assert told == StaticBatchEngine(lm).forecast(asked()).working_bytes

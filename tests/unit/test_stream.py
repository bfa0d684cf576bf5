"""A run under way: stopping it, breaking it, its steps and times, and what it leaves behind."""

import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch

from engine import static
from engine.clock import DeviceClock
from engine.errors import RequestError, RunError
from engine.metrics import measure, rows
from engine.requests import make_requests
from engine.serial import SerialEngine
from engine.static import RunStream, StaticBatchEngine
from engine.text import TextStream
from engine.turns import turns_on
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids
from tests.unit.streams import PATIENCE, A, B, FailingOnce, kept_caches, stream_of, works

# Stopping


@pytest.mark.parametrize("stop_after", [1, 5])
def test_e1_stop_ends_the_run_within_one_step(stop_after):
    lm = scripted_lm([[EOS], [A]])
    with closing(stream_of(lm, max_new_tokens=500)) as stream:
        for _ in range(stop_after):
            next(stream)
        stream.stop()
        assert list(stream) == []
        record = stream.record()
    assert len(lm.model.calls) == len(record.steps) == stop_after
    assert record.status == "stopped"
    assert [row.end for row in rows(record)] == ["eos", "cancelled"]
    assert measure(record).generated_tokens == 1 + stop_after
    assert works(lm)


def test_e1_stop_during_a_forward_keeps_its_tokens():
    lm = scripted_lm([[A]], before_forward=lambda column: column == 3 and stream.stop())
    with closing(stream_of(lm)) as stream:
        assert len(list(stream)) == 3
    assert stream.record().status == "stopped"
    assert row_ids(stream.record()) == [[A] * 3] * 2


def test_e1_stop_in_the_last_forward_leaves_a_run_whose_rows_all_ended_done():
    lm = scripted_lm([[A]], before_forward=lambda column: column == 3 and stream.stop())
    with closing(stream_of(lm, max_new_tokens=3)) as stream:
        assert len(list(stream)) == 3
    assert stream.record().status == "done"
    assert [row.end for row in rows(stream.record())] == ["length", "length"]


def test_e1_stop_before_the_first_step_runs_no_forward():
    lm = scripted_lm([[A]])
    with closing(stream_of(lm)) as stream:
        stream.stop()
        assert list(stream) == []
    record = stream.record()
    assert lm.model.calls == []
    assert record.status == "stopped"
    assert [(row.end, row.ttft, row.waited) for row in rows(record)] == [
        ("cancelled", None, None)
    ] * 2


def test_e1_stop_leaves_the_batches_after_it_unstarted():
    lm = scripted_lm([[A]])
    with closing(stream_of(lm, batch_size=1)) as stream:
        next(stream)
        stream.stop()
        assert list(stream) == []
    assert [batch.started is None for batch in stream.record().batches] == [False, True]


def test_e1_a_stop_event_of_the_callers_ends_the_run():
    stop = threading.Event()
    engine = StaticBatchEngine(scripted_lm([[A]]))
    with closing(engine.stream(make_requests(["a", "b"], max_new_tokens=10), stop=stop)) as stream:
        next(stream)
        stop.set()
        assert list(stream) == []
    assert stream.record().status == "stopped"


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "gemma3"])
def test_e1_stop_ends_a_prefill_between_its_layers(family):
    lm = tiny_lm(family)
    assert len(lm.layers) == 2
    left = []

    def stop(*_):
        left.append(stream)
        stream.stop()

    hooks = [layer.register_forward_hook(stop) for layer in lm.layers]
    with closing(stream_of(lm)) as stream:
        assert list(stream) == []
    assert len(left) == 1
    assert stream.record().status == "stopped"
    assert [row.end for row in rows(stream.record())] == ["cancelled", "cancelled"]
    for hook in hooks:
        hook.remove()
    assert works(lm)
    assert not any(layer._forward_pre_hooks for layer in lm.layers)


def test_a_prefill_that_takes_longer_than_it_may_ends_between_its_layers():
    lm = tiny_lm()
    engine = StaticBatchEngine(lm)
    slow = lm.layers[0].register_forward_hook(lambda *_: time.sleep(0.2))
    with closing(engine.stream(make_requests(["a", "b"]), seconds=0.1)) as stream:
        with pytest.raises(RunError, match="took longer than this host allows"):
            next(stream)
        assert stream.record().steps == ()
    slow.remove()
    assert works(lm)


def test_e1_stop_from_another_thread():
    in_forward, stopped = threading.Event(), threading.Event()

    def hold(column):
        if column == 2:
            in_forward.set()
            assert stopped.wait(PATIENCE)

    lm = scripted_lm([[A]], before_forward=hold)
    with closing(stream_of(lm)) as stream, ThreadPoolExecutor(1) as pool:
        steps = pool.submit(list, stream)
        assert in_forward.wait(PATIENCE)
        stream.stop()
        stopped.set()
        assert len(steps.result(PATIENCE)) == 2
    assert stream.record().status == "stopped"


def test_e2_close_in_the_middle_gives_the_device_back():
    lm = scripted_lm([[A]])
    stream = stream_of(lm)
    next(stream)
    stream.close()
    assert stream.record().status == "stopped"
    assert list(stream) == []
    assert works(lm)


def test_close_after_the_end_changes_nothing():
    stream = stream_of(scripted_lm([[A]]))
    list(stream)
    record = stream.record()
    stream.close()
    stream.close()
    assert stream.record() == record
    assert record.status == "done"


def test_d9_closing_frees_the_cache(monkeypatch):
    caches = kept_caches(monkeypatch)
    stream = stream_of(tiny_lm())
    next(stream)
    [cache] = map(weakref.ref, caches)
    caches.clear()
    assert cache() is not None
    stream.close()
    assert cache() is None


# Breaking


def test_a_keyboard_interrupt_in_another_thread_is_the_models_own():
    lm = scripted_lm([[A]], before_forward=FailingOnce(3, KeyboardInterrupt()))
    with closing(stream_of(lm)) as stream, ThreadPoolExecutor(1) as pool:
        error = pool.submit(list, stream).exception(PATIENCE)
    assert isinstance(error, RunError)
    assert "it raised KeyboardInterrupt" in str(error)
    assert len(stream.record().steps) == 2
    assert works(lm)


def test_ctrl_c_in_the_main_thread_is_passed_on():
    lm = scripted_lm([[A]], before_forward=FailingOnce(3, KeyboardInterrupt()))
    with closing(stream_of(lm)) as stream, pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.record().status == "stopped"
    assert works(lm)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_e5_a_model_that_exits_ends_its_run_and_no_more(kind):
    lm = scripted_lm([[A]], before_forward=FailingOnce(3, kind("leaving")))
    with closing(stream_of(lm)) as stream:
        with pytest.raises(RunError, match=rf"forward 3: RuntimeError: it raised {kind.__name__}"):
            list(stream)
        assert len(stream.record().steps) == 2
    assert works(lm)


def test_e5_an_error_keeps_the_steps_before_it_and_the_next_run_works():
    lm = scripted_lm([[A]], before_forward=FailingOnce(3, ValueError("the cable fell out")))
    with closing(stream_of(lm)) as stream:
        next(stream)
        next(stream)
        with pytest.raises(RunError, match=r"forward 3: ValueError: the cable fell out."):
            next(stream)
        record = stream.record()
        assert list(stream) == []
    assert record.status == "error"
    assert record.error == "The model failed in forward 3: ValueError: the cable fell out."
    assert row_ids(record) == [[A, A], [A, A]]
    assert record.texts == ("AA", "AA")
    assert [row.end for row in rows(record)] == ["error", "error"]
    assert works(lm)


def test_e5_run_raises_too_and_the_next_run_works():
    lm = scripted_lm([[A]], before_forward=FailingOnce(1, KeyError("layer")))
    engine = StaticBatchEngine(lm)
    with pytest.raises(RunError, match="forward 1: KeyError"):
        engine.run(make_requests(["a"]))
    assert engine.run(make_requests(["a"])).status == "done"


def test_an_error_of_on_step_reaches_the_caller_and_frees_the_device():
    lm = scripted_lm([[A]])

    def fail(step):
        raise LookupError("on_step")

    with pytest.raises(LookupError, match="on_step"):
        StaticBatchEngine(lm).run(make_requests(["a"]), on_step=fail)
    assert works(lm)


def nan_in_row(row, *, from_column, value=float("nan")):
    def poison(column, logits):
        if column >= from_column:
            logits[row] = value
        return logits

    return poison


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("column", [1, 3])
def test_a2_logits_that_are_no_numbers_stop_the_run_and_name_the_row(column, value, temperature):
    lm = scripted_lm([[A]])
    lm.model.poison = nan_in_row(1, from_column=column, value=value)
    stream = stream_of(lm, ("one", "three", "fourth"), temperature=temperature)
    with pytest.raises(RunError, match=r"Row 2 .*NaN logits \(float32, sdpa attention\)"):
        list(stream)
    record = stream.record()
    assert record.status == "error"
    assert "Row 2" in record.error
    assert len(record.steps) == column - 1


def test_a2_the_row_of_a_later_batch_is_named_with_its_prompt():
    lm = scripted_lm([[A]])
    with closing(stream_of(lm, ("a", "b", "c"), batch_size=2, max_new_tokens=2)) as stream:
        next(stream)
        next(stream)
        lm.model.poison = nan_in_row(0, from_column=1)
        with pytest.raises(RunError, match=r"Row 1 \(prompt 3\)"):
            next(stream)


def test_a2_one_nan_among_the_logits_is_enough():
    lm = scripted_lm([[A]])

    def poison(column, logits):
        logits[0, 0, 5] = float("nan")
        return logits

    lm.model.poison = poison
    with closing(stream_of(lm)) as stream, pytest.raises(RunError, match="Row 1 "):
        list(stream)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a2_nan_in_a_row_that_has_ended_is_ignored(temperature):
    lm = scripted_lm([[EOS], [B]])
    lm.model.poison = nan_in_row(0, from_column=2)
    # At 10 above all other logits, the scripted token is drawn at any likely random number.
    with closing(stream_of(lm, temperature=temperature / 10)) as stream:
        assert len(list(stream)) == 10
    assert stream.record().status == "done"
    assert row_ids(stream.record()) == [[EOS], [B] * 10]


def test_a2_logits_of_minus_infinity_are_allowed_beside_a_number():
    lm = scripted_lm([[A]])

    def mask_out(column, logits):
        logits[:, :, B:] = -float("inf")
        return logits

    lm.model.poison = mask_out
    with closing(stream_of(lm)) as stream:
        assert len(list(stream)) == 10


def test_d3_out_of_memory_frees_the_failed_forward_and_the_next_run_works(monkeypatch):
    caches = kept_caches(monkeypatch)
    lm = scripted_lm([[A]])
    left = []

    def run_out(column):
        if column == 2 and not left:
            big = torch.zeros(1000)
            left.append(weakref.ref(big))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    lm.model.before_forward = run_out
    with closing(stream_of(lm)) as stream:
        next(stream)
        left_cache = weakref.ref(caches.pop())
        with pytest.raises(RunError, match=r"^Out of memory in forward 2: 2 rows x 5 ") as caught:
            next(stream)
        assert caught.value.__context__ is None
        assert [tensor() for tensor in left] == [None]
        assert left_cache() is None
        assert stream.record().status == "error"
        assert "fewer or shorter prompts" in stream.record().error
    assert works(lm)


def test_e5_what_fails_before_the_first_forward_is_said_in_a_sentence(monkeypatch):
    def fail(stream):
        raise OSError("the driver is gone")

    lm = scripted_lm([[A]])
    with closing(stream_of(lm)) as stream, monkeypatch.context() as patch:
        patch.setattr(RunStream, "check_memory", fail)
        with pytest.raises(RunError, match="The run can't begin: OSError: the driver is gone"):
            next(stream)
        assert stream.record().status == "error"
    assert works(lm)


def test_e5_a_tokenizer_that_fails_ends_its_run_in_a_sentence(monkeypatch):
    lm = scripted_lm([token_ids("é")])

    def fail(text, *_, **__):
        raise ValueError("no such id")

    with closing(stream_of(lm)) as stream, monkeypatch.context() as patch:
        next(stream)
        patch.setattr(TextStream, "_decode", fail)
        with pytest.raises(RunError, match="ValueError: no such id"):
            next(stream)
        assert stream.record().status == "error"
    assert works(lm)


def test_a_failed_runs_memory_is_free_before_the_next_one_has_the_device(monkeypatch):
    lm = scripted_lm([[A]], before_forward=FailingOnce(2, ValueError("broken")))
    in_line = []
    monkeypatch.setattr(static, "_free_memory", lambda _: in_line.append(len(turns_on(lm.device))))
    with closing(stream_of(lm)) as stream, pytest.raises(RunError):
        list(stream)
    assert in_line == [1]
    assert len(turns_on(lm.device)) == 0


# The deadline


def test_a_run_that_takes_longer_than_it_may_ends_after_its_forward(monkeypatch):
    clock = [100.0]

    def take_two_seconds(_):
        clock[0] += 2.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    lm = scripted_lm([[A]], before_forward=take_two_seconds)
    engine = StaticBatchEngine(lm)
    requests = make_requests(["a", "b"], max_new_tokens=4000)
    with closing(engine.stream(requests, seconds=5)) as stream:
        with pytest.raises(RunError, match=r"took longer than this host allows: 5 s\.$"):
            list(stream)
        record = stream.record()
    monkeypatch.undo()
    assert len(record.steps) == len(lm.model.calls)
    assert record.status == "error"
    assert [row.end for row in rows(record)] == ["error", "error"]
    assert [step.finished for step in record.steps] == [2.0, 4.0, 6.0]
    assert works(lm)


def test_waiting_in_line_does_not_count_against_the_deadline():
    lm = scripted_lm([[A]])
    first = stream_of(lm)
    second = StaticBatchEngine(lm).stream(make_requests(["a"], max_new_tokens=3), seconds=1e-9)
    with closing(first), closing(second):
        next(first)
        assert not second.wait_turn(0.01)
        first.close()
        with pytest.raises(RunError, match="longer than this host allows"):
            next(second)
    assert second.record().queued_seconds > 0.01


def test_the_time_in_line_is_in_the_record():
    lm = scripted_lm([[A]])
    first, second = stream_of(lm), stream_of(lm)
    with closing(first), closing(second):
        next(first)
        assert not second.wait_turn(0.05)
        list(first)
        list(second)
    assert second.record().queued_seconds >= 0.05
    assert first.record().queued_seconds == 0  # there was no line


# Steps and their times


def test_steps_may_be_drawn_from_different_threads():
    lm = tiny_lm()

    def in_a_new_thread(call, *arguments):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call, *arguments).result(PATIENCE)

    with closing(stream_of(lm)) as stream:
        while in_a_new_thread(next, stream, None):
            pass
        in_a_new_thread(stream.close)
    expected = StaticBatchEngine(lm).run(make_requests(["one", "three"], max_new_tokens=10))
    assert row_ids(stream.record()) == row_ids(expected)
    assert stream.record().status == "done"


def test_between_steps_the_callers_thread_is_in_no_inference_mode():
    with closing(stream_of(tiny_lm())) as stream:
        for _ in stream:
            assert not torch.is_inference_mode_enabled()


def test_steps_keep_nothing_for_a_backward_pass(monkeypatch):
    caches = kept_caches(monkeypatch)
    with closing(stream_of(tiny_lm(), max_new_tokens=2)) as stream:
        assert len(list(stream)) == 2
        assert not any(layer.keys.requires_grad for layer in caches[0].layers)


def test_on_step_is_called_once_per_forward():
    lm = scripted_lm([[A]])
    seen = []
    record = StaticBatchEngine(lm, batch_size=2).run(
        make_requests(["a", "b", "c"], max_new_tokens=4), on_step=seen.append
    )
    assert tuple(seen) == record.steps
    assert len(seen) == len(lm.model.calls) == 8


def test_one_forward_per_step_for_all_rows():
    lm = scripted_lm([[A]])
    with closing(stream_of(lm, list("abcdefgh"), max_new_tokens=5)) as stream:
        for number, step in enumerate(stream, start=1):
            assert len(lm.model.calls) == number == step.forward
            assert len(lm.model.calls[-1].ids) == len(step.tokens) == 8
    assert [step.phase for step in stream.record().steps] == ["prefill", *["decode"] * 4]


def test_the_record_grows_step_by_step():
    with closing(stream_of(scripted_lm([[A], [B, EOS]]), max_new_tokens=3)) as stream:
        assert stream.record().steps == ()
        for number, step in enumerate(stream, start=1):
            record = stream.record()
            assert record.steps[-1] == step
            assert len(record.steps) == number
            assert record.status == "running"
            assert record.texts == ("A" * number, "B")
    assert stream.record().status == "done"


def test_step_times_follow_each_other_and_fit_into_the_wall_time():
    lm = scripted_lm([[A]], seconds=0.002)
    record = StaticBatchEngine(lm, batch_size=1).run(make_requests(["a", "b"], max_new_tokens=6))
    starts = [step.started for step in record.steps]
    assert starts == sorted(starts)
    assert all(step.seconds >= 0.002 for step in record.steps)
    for step, following in zip(record.steps, record.steps[1:], strict=False):
        assert step.finished <= following.started
    figures = measure(record)
    assert figures.prefill_seconds + figures.decode_seconds <= figures.wall_seconds
    assert figures.wall_seconds >= 12 * 0.002


class Mark:
    """Stands in for a CUDA event: the clock of a device that works 3 ms for each `work`."""

    now = 0.0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Mark.now

    def elapsed_time(self, other):
        return other.at - self.at


def test_c7_the_devices_own_clock_times_the_work_between_its_marks(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Mark)
    clock = DeviceClock(torch.device("cuda"))
    Mark.now += 3
    clock.stop()
    Mark.now += 5
    assert clock.seconds == pytest.approx(0.003)


def test_c7_off_cuda_the_host_tells_the_time():
    record = StaticBatchEngine(scripted_lm([[A]])).run(make_requests(["a"], max_new_tokens=3))
    assert [step.device_seconds for step in record.steps] == [None] * 3


def test_no_requests_are_refused():
    with pytest.raises(RequestError, match="no prompts"):
        StaticBatchEngine(scripted_lm([[A]])).stream([])


# The serial control


def test_serial_gives_the_static_ids_without_pads_or_idle_slots():
    lm = tiny_lm()
    requests = make_requests(["a", "longer", "the longest"], max_new_tokens=[9, 3, 6])
    serial, static = SerialEngine(lm).run(requests), StaticBatchEngine(lm).run(requests)
    assert row_ids(serial) == row_ids(static)
    assert serial.texts == static.texts
    figures = measure(serial)
    assert (figures.padding.wasted, figures.idle.wasted) == (0, 0)
    assert measure(static).padding.wasted > 0 < measure(static).idle.wasted
    assert len(serial.steps) == figures.generated_tokens
    assert (serial.settings.engine, static.settings.engine) == ("serial", "static")

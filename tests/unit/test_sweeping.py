"""A sweep as frames: beside the engine's thread, in line, within its time."""

import threading
from dataclasses import replace

import pytest

from engine.live import Refused, Waiting
from engine.sweep import Progress, Sweep
from engine.sweeping import BenchThread, Deadline, sweep_frames, sweep_gpu_seconds
from engine.turns import Turns, turns_on
from tests.tiny import scripted_lm
from tests.unit.streams import PATIENCE
from tests.unit.sweeps import WHOLE

SCRIPT = [list(range(65, 91))]


def frames_of(lm, sizes=(1, 2), *, stop=None, seconds=60, prompt="hello", tokens=4, runs=2):
    return sweep_frames(
        lm,
        sizes,
        stop or threading.Event(),
        prompt=prompt,
        max_new_tokens=tokens,
        runs=runs,
        seconds=seconds,
    )


@pytest.fixture(autouse=True)
def quick_rates(monkeypatch):
    """The rates of the device take a second to measure, and are no matter here."""
    from engine import bench
    from engine.sweep import Rates

    monkeypatch.setattr(bench, "measure_rates", lambda *_: Rates(1e9, 1e9, "float32"))


class Clock:
    """The time of a sweep, which passes only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("engine.sweeping.time", clock)
    return clock


def bench_threads():
    return [thread for thread in threading.enumerate() if thread.name == "bench"]


def wait_until_nothing_is_measured():
    for thread in bench_threads():
        thread.join(PATIENCE)
    assert bench_threads() == []


def test_a_sweep_ends_with_all_its_runs():
    lm = scripted_lm(SCRIPT, seconds=0.02)
    frames = list(frames_of(lm))
    last = frames[-1]
    assert last.status == "done"
    assert [len(size.engine.samples) for size in last.sizes] == [2, 2]
    assert {type(frame) for frame in frames} == {Progress, Sweep}
    assert len(lm.model.calls) == 2 * (1 + 2) * 4  # sizes, a warm-up and two runs, forwards
    assert not len(turns_on("cpu"))


def test_c8_the_warm_up_has_the_shape_of_the_runs_and_is_in_no_figure():
    lm = scripted_lm(SCRIPT, seconds=0.02)
    *_, last = frames_of(lm, (3,))
    assert [tuple(call.ids.shape) for call in lm.model.calls[:4]] == [(3, 5), *[(3, 1)] * 3]
    assert len(last.size(3).engine.samples) == last.runs == 2
    assert last.warmup == 1


def test_stop_ends_it_within_a_forward_and_keeps_what_was_measured():
    stop = threading.Event()
    lm = scripted_lm(SCRIPT, seconds=0.02)
    for frame in frames_of(lm, (1, 2, 4), stop=stop):
        if isinstance(frame, Sweep) and frame.size(1) and len(frame.size(1).engine.samples) == 2:
            stop.set()
    assert frame.status == "stopped"
    assert len(frame.size(1).engine.samples) == 2
    assert frame.size(4) is None


def test_closing_the_frames_ends_the_sweep():
    lm = scripted_lm(SCRIPT, seconds=0.02)
    frames = frames_of(lm, tokens=50)
    while not lm.model.calls:
        next(frames)
    frames.close()
    wait_until_nothing_is_measured()
    assert not len(turns_on("cpu"))
    assert len(lm.model.calls) < 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_news_end_whatever_ends_their_thread():
    def news():
        yield WHOLE
        raise SystemExit

    bench = BenchThread(news(), Turns())
    heard = []
    while not bench.is_over:
        heard += bench.newest(PATIENCE)
    assert heard == [WHOLE]
    wait_until_nothing_is_measured()


def test_its_place_in_the_line_is_told_and_the_time_in_line_does_not_count(clock):
    lm = scripted_lm(SCRIPT)
    other = turns_on(lm.device).join()
    frames = frames_of(lm, seconds=60)
    waiting = (frame for frame in frames if isinstance(frame, Waiting))
    for _ in range(4):
        place = next(waiting)
        assert place.ahead == 1
        clock.now += 50  # while the frame is shown
    assert place.seconds > 60
    next(waiting)
    other.leave()
    assert list(frames)[-1].status == "done"


def test_a_sweep_that_takes_too_long_keeps_what_it_has_and_says_why(clock):
    def before_forward(_column):
        if len(lm.model.calls) == (1 + 2) * 4:  # the first size is over
            clock.now += 61

    lm = scripted_lm(SCRIPT, before_forward=before_forward)
    *_, last = frames_of(lm, (1, 2, 4, 8), seconds=60, tokens=4)
    assert (last.status, last.error) == (
        "error",
        "The sweep took longer than this host allows: 60 s.",
    )
    assert [len(size.engine.samples) for size in last.sizes] == [2, 0]


def test_what_cannot_be_measured_is_refused_in_its_own_words():
    [refused] = frames_of(scripted_lm(SCRIPT), prompt="a")
    assert refused == Refused(
        "No prompt has more than 1 token: there would be no real prefill to measure."
    )


def test_memory_that_is_too_small_for_a_size_ends_the_sweep_and_keeps_the_others(monkeypatch):
    from engine import static
    from engine.errors import RequestError

    def check(forecast):
        if forecast.rows > 2:
            raise RequestError("It needs 9 GB.")

    monkeypatch.setattr(static, "check_memory", check)
    *_, last = frames_of(scripted_lm(SCRIPT), (1, 2, 4))
    assert (last.status, last.error) == ("error", "It needs 9 GB.")
    assert [len(size.engine.samples) for size in last.sizes] == [2, 2, 0]


def test_a_deadline_is_only_named_where_it_was_the_reason():
    stopped = threading.Event()
    stopped.set()
    sweep = replace(WHOLE, status="stopped")
    assert Deadline(stopped, -1).explain(sweep) == sweep
    assert Deadline(threading.Event(), 60).explain(sweep) == sweep
    assert Deadline(threading.Event(), -1).explain(sweep).status == "error"
    assert Deadline(threading.Event(), -1).explain(WHOLE) == WHOLE


def test_a_gpu_is_asked_for_as_long_as_the_steps_may_take():
    asked = {"max_new_tokens": 32, "runs": 3}
    assert sweep_gpu_seconds(None, [1, 2], None, seconds=300, **asked) == 20 + 2 * 4 * 32 // 20
    assert sweep_gpu_seconds(None, [1] * 99, None, seconds=300, **asked) == 120
    assert sweep_gpu_seconds(None, [1] * 99, None, seconds=60, **asked) == 60

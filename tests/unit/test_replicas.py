"""What replicas are made of, without Ray: a record in pieces, flags that tell, shares of cores."""

import logging
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from queue import SimpleQueue

import pytest

from engine import cluster
from engine.cluster import Share, fair_cpus, reason_against
from engine.collecting import FullError
from engine.compare import compare
from engine.errors import (
    BatchscopeError,
    LostError,
    ModelError,
    RecordError,
    RequestError,
    RunError,
)
from engine.growing import Growth, grown, growth, in_pieces, whole
from engine.keeper import LONGEST_PAUSE, pause_after
from engine.live import Refused, Waiting, frames
from engine.logs import OneLine
from engine.openai.refusals import refused
from engine.options import page_parser
from engine.replica import Teller, each_step
from engine.requests import make_requests
from engine.run import until
from engine.static import RunStream
from engine.visitors import Signal, StillRunningError
from tests.tiny import EOS, row_ids, scripted_lm, tiny_lm, token_ids
from tests.unit.paper import WORKED


def moments():
    return [until(WORKED, steps) for steps in range(len(WORKED.steps) + 1)]


def test_a_run_in_pieces_is_the_run():
    shown = [Waiting(1, 0.5), *moments(), Refused("No.")]
    assert list(whole(in_pieces(frame for frame in shown))) == shown


def test_a_piece_has_what_is_new_and_nothing_else():
    before, after = until(WORKED, 3), until(WORKED, 5)
    piece = growth(before, after)
    assert piece.steps == WORKED.steps[3:5]
    assert [old + new for old, new in zip(before.texts, piece.texts, strict=True)] == list(
        after.texts
    )
    assert "requests" not in piece.changes
    assert grown(before, piece) == after
    assert len(pickle.dumps(growth(after, after))) < len(pickle.dumps(after)) / 4


def test_what_changes_but_does_not_grow_travels_too():
    late = replace(WORKED, queued_seconds=3.0, status="error", error="Out of memory.")
    assert isinstance(growth(WORKED, late), Growth)
    assert grown(WORKED, growth(WORKED, late)) == late


def test_another_run_travels_whole():
    other = replace(WORKED, steps=WORKED.steps[1:])
    assert growth(WORKED, other) == other
    other = replace(WORKED, texts=tuple(text[:-1] + "?" for text in WORKED.texts))
    assert growth(WORKED, other) == other


def test_a_comparison_in_pieces_is_the_comparison():
    requests = make_requests(["Hi", "Hello"], max_new_tokens=4, ignore_eos=True)
    how = {"batch_size": 2, "padding_side": "left", "chat_template": False}
    stream = compare(tiny_lm(), requests, **how, stop=threading.Event(), seconds=60)
    shown = [stream.record(), *(stream.record() for _ in stream), stream.record()]
    stream.close()
    assert shown[-1].status == "done"
    assert list(whole(in_pieces(frame for frame in shown))) == shown


def test_who_stops_looking_closes_the_frames():
    closed = []

    def shown():
        try:
            yield from moments()
        finally:
            closed.append(True)

    pieces = in_pieces(shown())
    next(pieces)
    pieces.close()
    assert closed == [True]


@pytest.mark.parametrize(
    "error",
    [
        BatchscopeError("One."),
        RequestError("Two."),
        ModelError("Three."),
        RunError("Four."),
        RecordError("Five."),
        FullError("Six."),
        StillRunningError("Seven."),
        LostError("killed"),
        refused("Eight.", param="prompt", code="too_long"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_out_of_another_process_as_they_went_in(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_frames_can_travel():
    lm = scripted_lm([token_ids("hello")])
    shown = list(
        frames(
            lm,
            make_requests(["Hi"], max_new_tokens=5),
            threading.Event(),
            batch_size=2,
            padding_side="left",
            chat_template=False,
            seconds=60,
        )
    )
    told = [*shown, Refused("No."), Waiting(2, 1.0)]
    assert pickle.loads(pickle.dumps(told)) == told


def test_each_step_is_told_and_the_end():
    lm = scripted_lm([token_ids("abcd"), [*token_ids("x"), EOS]], seconds=0.02)
    requests = make_requests(["Hi", "Ho"], max_new_tokens=4)
    shown = list(each_step(lm, requests, threading.Event(), batch_size=2, seconds=60))
    assert (shown[0].status, shown[-1].status) == ("running", "done")
    counts = [len(run.steps) for run in shown]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert row_ids(shown[-1]) == [token_ids("abcd"), [*token_ids("x"), EOS]]


def test_a_run_that_breaks_is_told_as_far_as_it_came():
    def fail(column):
        if column == 3:
            raise ValueError("odd")

    lm = scripted_lm([token_ids("abcd")], before_forward=fail)
    requests = make_requests(["Hi"], max_new_tokens=4)
    *_, last = each_step(lm, requests, threading.Event(), batch_size=1, seconds=60)
    assert (last.status, len(last.steps)) == ("error", 2)
    assert last.error == "The model failed in forward 3: ValueError: odd."


def test_a_run_that_does_not_fit_is_refused_elsewhere_too(monkeypatch):
    def refuse(_):
        raise RequestError("It needs 9 GB.")

    monkeypatch.setattr(RunStream, "check_memory", refuse)
    shown = each_step(
        scripted_lm([token_ids("ab")]),
        make_requests(["Hi"], max_new_tokens=2),
        threading.Event(),
        batch_size=1,
        seconds=60,
    )
    told = []
    with pytest.raises(RequestError, match=r"^It needs 9 GB.$"):
        told.extend(shown)
    assert (told[-1].status, told[-1].steps) == ("error", ())


def test_a_signal_tells_at_once_and_only_once():
    signal, told = Signal(), []
    signal.then(lambda: told.append("early"))
    assert (signal.is_set(), told) == (False, [])
    signal.set()
    signal.set()
    assert (signal.is_set(), told) == (True, ["early"])
    signal.then(lambda: told.append("late"))
    assert told == ["early", "late"]


@pytest.mark.parametrize(
    ("nodes", "replicas", "cpus"),
    [
        ([2], 2, 1),
        ([8], 2, 4),
        ([8], 3, 2),
        ([4, 2], 2, 2),
        ([4, 2], 3, 2),
        ([3, 3], 4, 1),
        ([2], 4, 0.5),
        ([1], 1, 1),
        ([1, 1], 3, 1 / 2),
        ([3, 3], 7, 1 / 2),
        ([1, 0], 3, 1 / 3),
        ([5, 1], 8, 1 / 2),
    ],
)
def test_cores_are_shared_alike_and_there_is_room_for_all(nodes, replicas, cpus):
    assert fair_cpus(nodes, replicas) == cpus
    assert sum(int(node / cpus) for node in nodes) >= replicas


def test_without_cores_there_are_no_replicas():
    with pytest.raises(ModelError, match=r"^Ray has no cores here for replicas.$"):
        fair_cpus([0, 0], 2)


def test_a_product_has_the_threads_of_its_share():
    shares = [Share(4, 0), Share(0.5, 0), Share(1, 1)]
    assert [share.threads for share in shares] == [4, 1, None]


@pytest.mark.parametrize(
    ("replicas", "address", "device", "reason"),
    [
        (2, None, "auto", None),
        (2, "10.0.0.1:6379", "cuda", None),
        (None, "10.0.0.1:6379", "auto", "--ray is where replicas run: say how many"),
        (2, "ray://10.0.0.1:10001", "auto", "--ray takes host:port, on a machine of the cluster"),
        (2, None, "cuda:1", "Ray gives each replica a GPU of its own: use --device cuda"),
    ],
)
def test_what_can_be_no_replica_is_said_at_the_start(replicas, address, device, reason):
    said = reason_against(replicas, address, device)
    assert said is None if reason is None else said.startswith(reason)


def test_without_ray_there_is_a_sentence_with_the_command(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    assert reason_against(2, None, "auto").endswith("not installed: pip install ray")


def test_lines_of_a_log_travel_whole(caplog):
    said = SimpleQueue()
    log = logging.getLogger("batchscope.test")
    log.addHandler(teller := Teller(said))
    try:
        raise ValueError("odd\n2026 INFO forged")
    except ValueError:
        log.exception("it %s", "failed")
    finally:
        log.removeHandler(teller)
    record = pickle.loads(pickle.dumps(said.get()))
    line, *rest = OneLine("%(levelname)s %(message)s").format(record).split("\n")
    assert line == "ERROR it failed"
    assert rest[0] == "    | Traceback (most recent call last):"
    assert all(one.startswith("    | ") for one in rest)


def test_a_page_without_replicas_has_nothing_of_them():
    code = (
        "import sys, app; from engine.openai import server; "
        "print([name for name in ('ray', 'engine.fleet', 'engine.keeper', 'engine.cluster') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_of_ray_is_there_before_a_model_is_asked_for():
    code = (
        "import sys; from engine.fleet import Fleet; Fleet(['one'], replicas=2); "
        "print([name for name in ('ray', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_replicas_that_go_on_dying_are_made_ever_more_slowly():
    pauses = [pause_after(deaths) for deaths in range(10)]
    assert pauses[:3] == [0, 0, 4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE == pause_after(10_000)


def test_the_command_line_says_how_many_replicas(capsys):
    options = page_parser().parse_args(["--replicas", "2", "--ray", "10.0.0.1:6379"])
    assert (options.replicas, options.ray) == (2, "10.0.0.1:6379")
    assert page_parser().parse_args([]).replicas is None
    with pytest.raises(SystemExit):
        page_parser().parse_args(["--replicas", "0"])
    assert "'0' is not a whole number of at least 1" in capsys.readouterr().err

"""Stands in for the package `spaces` on a ZeroGPU host, as far as a generator can tell.

The decorated generator's body runs in a process that is forked for each call. Arguments and yields
are pickled, a closed generator is closed in the worker at its next yield, and what a worker raises
comes out as the name of its class. A line in the file EVENTS tells when a worker starts and ends.
"""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import gradio as gr

assert "torch" not in sys.modules, "the real package would be too late to change torch"

fork = multiprocessing.get_context("fork")


def GPU(task: Callable, *, duration: Callable[..., int]) -> Callable:  # noqa: N802
    """`task` in a forked worker; `duration(*arguments)` is how long it may keep the GPU."""

    @wraps(task)
    def lent(*args: Any, **kwargs: Any) -> Iterator[Any]:
        assert 0 < duration(*args, **kwargs) <= 120
        packed = pickle.dumps((args, kwargs))
        ours, theirs = fork.Pipe(duplex=False)
        stop = fork.Event()
        worker = fork.Process(target=_work, args=(task, packed, theirs, stop), daemon=True)
        worker.start()
        theirs.close()
        try:
            while (answer := _receive(ours))[0] == "yield":
                yield answer[1]
            if answer[0] == "error":
                raise gr.Error(answer[1], title="ZeroGPU worker error", print_exception=False)
        finally:
            stop.set()
            while _receive(ours)[0] == "yield":
                continue
            worker.join()
            ours.close()

    return lent


def _receive(ours: Connection) -> tuple[str, Any]:
    try:
        return pickle.loads(ours.recv_bytes())
    except EOFError:
        return "error", "GPU task aborted"


def _work(task: Callable, packed: bytes, theirs: Connection, stop: Event) -> None:
    def send(*answer: Any) -> None:
        theirs.send_bytes(pickle.dumps(answer))

    note(f"start {os.getpid()}")
    args, kwargs = pickle.loads(packed)
    yields = task(*args, **kwargs)
    try:
        for value in yields:
            if stop.is_set():
                yields.close()
                break
            send("yield", value)
        send("end", None)
    except Exception as error:
        send("error", type(error).__name__)
    finally:
        note("end")


def note(event: str) -> None:
    """Write a line for the tests; one write, so that processes don't mix theirs."""
    with open(os.environ["EVENTS"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{event}\n")

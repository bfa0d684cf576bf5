"""What the page costs: the engine, the server, the wire, and the browser that watches.

python -m tests.pagecost                  everything, as one table; minutes
python -m tests.pagecost behind bytes     only these

watched  a run of the default model with a browser watching, against the same run alone
behind   how far the browser's picture is behind a fast engine, and what piles up in the page
bytes    bytes of an update at step 10 and at step 2,000
server   processor time of an update on the server
start    from the command to the page, and from a click to the picture
visits   bytes of a first and of a second visit
slider   from a move of the slider of the Compare tab to its picture
browsers how many browsers that each watch a run of their own one process carries (not among "all")

Each figure stands beside what it may be at most. The browser is the system's Chromium; it, the
server and the engine share this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from engine import comparison as comparisons
from tests.browser.conftest import NAMES, QUIET
from tests.serving import DEFAULTS, Visitor, rows_of
from tests.unit.comparisons import long_comparison

ROOT = Path(__file__).parents[1]
ROWS, COLUMNS = 32, 512
FAKE_SECONDS = {"fake": 0.001, "slow": 0.01, "many": 0.0}
"""Of a step of an engine without a model."""
PROMPT = "Why does a batch wait for its longest row, and what would a better scheduler do instead?"
WATCH = """() => {
  const stage = document.querySelector('.bs-stage');
  window.drawn = [];
  window.watcher?.disconnect();
  window.watcher = new MutationObserver(() => {
    const { step, value } = stage.batchscope;
    window.drawn.push([step, value.status, performance.timeOrigin + performance.now()]);
  });
  window.watcher.observe(stage, { attributes: true, attributeFilter: ['data-frames'] });
}"""
"""From now on every picture that is drawn leaves its step, its status and its time."""

MOVE = """async (numbers) => {
  const slider = document.querySelector('.bs-compare-slots');
  const note = document.querySelectorAll('.bs-compare-titles p')[3];
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  for (const slots of numbers) {
    slider.value = slots;
    const began = performance.now();
    slider.dispatchEvent(new Event('input'));
    while (!note.textContent.endsWith(`batches of ${slots}`)) await frame();
    await frame();
    times.push(performance.now() - began);
  }
  return times;
}"""
"""Moves the slider to one number of slots after another -> milliseconds until each is drawn."""


WATCHERS = (1, 5, 10, 20, 40, 80)
MOST_WATCHERS = 400
WATCHED = (8, 480, 0.03)
"""Rows and columns of the run that each of them watches, and the seconds of a step."""


class Line(NamedTuple):
    """One line of the table; `most` is what the figure may be, None if it is only told."""

    what: str
    figure: float
    unit: str
    most: float | None = None

    def __str__(self) -> str:
        bar = "" if self.most is None else f"at most {self.most:g}"
        missed = self.most is not None and self.figure > self.most
        return f"{self.what:<66}{self.figure:>10.3f} {self.unit:<8}{bar}{' MISSED' * missed}"


# --- the server's side


def serve(kind: str) -> None:
    """Serve the page over the fake engine or the default model, and answer questions of stdin."""
    import torch

    from app import build_demo
    from engine import StaticBatchEngine, host, load_model
    from engine.requests import Limits, make_requests
    from engine.shelf import ModelShelf
    from engine.static import RunStream
    from tests.tiny import scripted_lm, token_ids

    if kind in FAKE_SECONDS:
        torch.set_num_threads(1)
        lm = scripted_lm([token_ids("slot by slot ")], seconds=FAKE_SECONDS[kind])
    else:
        lm = in_a_thread(load_model, dtype="float32", device="cpu")
    at: list[
        tuple[float, float, float]
    ] = []  # of each step, by the wall and by two processor clocks
    write_down = RunStream._write_down

    def timed(stream: RunStream, *args: Any) -> Any:
        step = write_down(stream, *args)
        at.append((time.time(), time.process_time(), time.thread_time()))
        return step

    RunStream._write_down = timed
    shelf = ModelShelf([lm.name])
    shelf.add(lm)
    limits = Limits(prompts=64, new_tokens=4096, batch_size=64, run_seconds=600)
    began: dict[str, float] = {}
    if kind == "many":
        host.frames = played_again(began, *WATCHED)
        limits = replace(limits, runs=MOST_WATCHERS)
    demo = build_demo(shelf, limits=limits)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    print(json.dumps([url.rstrip("/"), lm.name]), flush=True)
    for question in sys.stdin:
        what, *numbers = question.split()
        if what == "began":
            answer: Any = began
        elif what == "alone":
            rows, columns = map(int, numbers)
            engine = StaticBatchEngine(lm, batch_size=rows)
            requests = make_requests([PROMPT] * rows, max_new_tokens=columns, ignore_eos=True)
            answer = in_a_thread(engine.run, requests).steps[-1].finished
        else:
            answer, at[:] = [*at, (time.time(), time.process_time(), 0.0)], []
        print(json.dumps(answer), flush=True)


def played_again(
    began: dict[str, float], rows: int, columns: int, seconds: float
) -> Callable[..., Iterator[Any]]:
    """In place of `engine.live.frames`: the frames of a recorded run, each step of which takes so
    long, for any number of visitors at the same time. Only the page is at work. `began` is told
    when the run of each first prompt began."""
    from engine import StaticBatchEngine
    from engine.live import FRAME_SECONDS
    from engine.requests import make_requests
    from engine.run import until
    from tests.tiny import scripted_lm, token_ids

    engine = StaticBatchEngine(scripted_lm([token_ids("slot by slot ")]), batch_size=rows)
    run = engine.run(make_requests([PROMPT] * rows, max_new_tokens=columns, ignore_eos=True))
    moments = [until(run, steps) for steps in range(len(run.steps) + 1)]

    def frames(_lm: Any, requests: Sequence[Any], stop: Any, **_how: Any) -> Iterator[Any]:
        start = began[requests[0].prompt] = time.time()
        yield moments[0]
        while (steps := int((time.time() - start) / seconds)) < columns and not stop.is_set():
            yield moments[steps]
            next_step = start + (steps + 1) * seconds
            time.sleep(max(FRAME_SECONDS, next_step - time.time()))
        yield run

    return frames


def in_a_thread(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """As the page does: OpenMP keeps a team of threads for every thread that ever computed, and
    once these are more than the cores, it lets them sleep between two operations, which is slow."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work(*args, **options)))
    thread.start()
    thread.join()
    return done[0]


class Server:
    """A served page in a process of its own."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pagecost", "--serve", kind],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url, self.model = json.loads(self.process.stdout.readline())

    def ask(self, question: str) -> Any:
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def alone(self, rows: int, columns: int) -> float:
        """The same run without a page -> its wall time."""
        return self.ask(f"alone {rows} {columns}")

    def steps(self) -> list[tuple[float, float, float]]:
        """When each step since the last call was over, by the wall, by the processor time of the
        process and by that of the engine's thread; the last line is about now."""
        return [tuple(step) for step in self.ask("steps")]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


# --- the browser's side


@contextmanager
def browser(url: str) -> Iterator[Any]:
    """A page of the system's Chromium at an address."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        page = chromium.new_context(viewport={"width": 1440, "height": 810}).new_page()
        page.set_default_timeout(120_000)
        if url:
            page.goto(url)
            page.wait_for_selector(".bs-rows")
            page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
        yield page
        chromium.close()


def fill_in(page: Any, rows: int, columns: int) -> None:
    """Prompts and settings for a run in which every row uses its whole budget."""
    page.get_by_role("button", name="Paste or open").click()
    page.get_by_label("Prompts, one per line").fill("\n".join([PROMPT] * rows))
    with page.expect_response(lambda response: "/gradio_api/run/" in response.url):
        page.get_by_role("button", name="Replace all").click()
    for index in range(rows):
        page.get_by_label(f"Token budget of prompt {index + 1}", exact=True).fill(str(columns))
    page.get_by_label("Chat template").uncheck()
    page.get_by_label("Ignore EOS").check()
    page.wait_for_timeout(1000)  # the forecast, which is none of a run's costs


def press_run(page: Any) -> None:
    key = page.evaluate("document.querySelector('.bs-stage').batchscope.value.key")
    page.evaluate(WATCH)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(
        """key => {
          const { value } = document.querySelector('.bs-stage').batchscope;
          return value.key !== key && value.status !== 'running';
        }""",
        arg=key,
        polling=200,
    )


def last_run_seconds(page: Any) -> float:
    """The wall time of the run that is shown, as its record tells it."""
    record = json.loads(
        page.evaluate("document.querySelector('.bs-stage').batchscope.value.record")
    )
    step = record["steps"][-1]
    return step["started"] + step["seconds"]


def processor_seconds(pid: int) -> float:
    """What a process and its descendants have used so far."""
    ticks = 0
    for stat in tree(pid):
        ticks += sum(map(int, stat[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[list[str]]:
    """The fields of /proc/PID/stat after the name, of a process and its descendants."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    found = [pid]
    for parent in found:
        found += [child for child, stat in stats.items() if int(stat[1]) == parent]
    yield from (stats[child] for child in found if child in stats)


# --- what is measured


def watched(pairs: int, nice: int) -> Iterator[Line]:
    """A run of the default model alone, watched over HTTP by a client that draws nothing, and
    watched in a browser, one after the other, so many times."""
    rows, columns = 16, 128
    prompts = rows_of([PROMPT] * rows, columns)
    alone, heard, seen, shares, pictures = [], [], [], [], []
    with closing(Server("default")) as server:
        os.nice(nice)  # inherited by the browser
        visitor = Visitor(server.url)
        with browser(server.url) as page:
            fill_in(page, rows, columns)
            server.alone(rows, 8)
            for _ in range(pairs):
                alone.append(server.alone(rows, columns))
                last = visitor.run(prompts, server.model, batch_size=rows, ignore_eos=True)[-1]
                heard.append(last.record.steps[-1].finished)
                before = processor_seconds(os.getpid()) - processor_seconds(server.process.pid)
                press_run(page)
                used = processor_seconds(os.getpid()) - processor_seconds(server.process.pid)
                seen.append(last_run_seconds(page))
                shares.append((used - before) / seen[-1])
                pictures.append(len(page.evaluate("window.drawn")))
                told = f"alone {alone[-1]:.2f} s, HTTP {heard[-1]:.2f} s, browser {seen[-1]:.2f} s"
                print(f"  {told}, {pictures[-1]} pictures", file=sys.stderr)
    yield Line(f"{rows} x {columns}, default model: alone", statistics.median(alone), "s")
    over_http = statistics.median(heard) / statistics.median(alone)
    yield Line("watched over HTTP / alone, medians", over_http, "", 1.03)
    in_browser = statistics.median(seen) / statistics.median(alone)
    yield Line(f"watched in a browser of niceness {nice} / alone", in_browser, "", 1.03)
    yield Line("share of a core that the browser used", statistics.median(shares), "")
    yield Line("pictures drawn", statistics.median(pictures), "")


def behind() -> Iterator[Line]:
    """The fake engine, 32 x 512, in a browser: each picture against the clock of its step."""
    with closing(Server("fake")) as server, browser(server.url) as page:
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        fill_in(page, ROWS, COLUMNS)
        late: list[float] = []
        for run in range(6):
            server.steps()
            press_run(page)
            page.wait_for_timeout(300)
            steps = [at for at, *_ in server.steps()[:-1]]
            drawn = page.evaluate("window.drawn")
            late += [1000 * (at / 1000 - steps[step - 1]) for step, _, at in drawn[:-1] if step]
            done = drawn[-1][2] / 1000 - steps[-1]
            print(
                f"  run {run}: {len(drawn)} pictures, {steps[-1] - steps[0]:.2f} s, "
                f"done {done:.3f} s after the engine, {held(devtools)}, last of them behind: "
                f"{[round(ms) for ms in late[-len(drawn) + 1 :]]}",
                file=sys.stderr,
            )
            if run == 0:
                before = held(devtools)
        after = held(devtools)
    late.sort()
    yield Line(f"picture behind the engine, {ROWS} x {COLUMNS}: median", late[len(late) // 2], "ms")
    yield Line("p95", late[int(0.95 * len(late))], "ms", 150)
    yield Line("done after the engine", done, "s", 1)
    yield Line(f"DOM nodes more after {len(late)} updates", after["Nodes"] - before["Nodes"], "", 0)
    more = after["JSEventListeners"] - before["JSEventListeners"]
    yield Line("listeners more", more, "", 0)


def held(devtools: Any) -> dict[str, int]:
    """DOM nodes and listeners that are alive."""
    devtools.send("HeapProfiler.collectGarbage")
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return {
        metric["name"]: int(metric["value"])
        for metric in metrics
        if metric["name"] in ("Nodes", "JSEventListeners")
    }


def bytes_of_updates() -> Iterator[Line]:
    """What an update weighs early and late, of an engine so slow that each has as many steps."""
    with closing(Server("slow")) as server:
        visitor = Visitor(server.url)
        frames, wire = visitor.run_on_wire(
            rows_of([PROMPT] * ROWS, 2000), server.model, batch_size=ROWS, ignore_eos=True
        )
    at = [state["times"][0].count(" ") for state in wire.states]
    sizes = [pair for pair in zip(at, wire.sizes, strict=True) if pair[0] >= 10][1:]
    early = statistics.median(size for step, size in sizes if step <= 500)
    late = statistics.median(size for step, size in sizes if step >= 1500)
    yield Line("steps of an update, mean", at[-1] / len(at), "")
    yield Line(f"bytes of an update with {ROWS} rows, steps 10 to 500", early, "B")
    yield Line("steps 1,500 to 2,000", late, "B")
    yield Line("late / early", late / early, "", 1.1)
    yield Line("the last update", frames[-1].size / 1e6, "MB")


def server_time() -> Iterator[Line]:
    """Processor time of the server's process between the first step and the last, without that of
    the engine's thread, by the number of updates; and what follows the last step."""
    each, after = [], []
    with closing(Server("fake")) as server:
        visitor = Visitor(server.url)
        for _ in range(6):
            server.steps()
            frames, wire = visitor.run_on_wire(
                rows_of([PROMPT] * ROWS, COLUMNS), server.model, batch_size=ROWS, ignore_eos=True
            )
            (_, began, its_own), *_, (_, ended, its_own_then), (_, now, _) = server.steps()
            updates = sum(frame.drawn for frame in frames) - 1 + len(wire.states)
            each.append(1000 * (ended - began - (its_own_then - its_own)) / updates)
            after.append(1000 * (now - ended))
            print(f"  {updates} updates, {each[-1]:.2f} ms each", file=sys.stderr)
    what = f"server's processor time per update, {ROWS} x {COLUMNS}"
    yield Line(what, statistics.median(each), "ms", 2)
    yield Line("after the last step", statistics.median(after), "ms")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def command(*flags: str) -> Iterator[tuple[str, float]]:
    """The page by its command -> its address, and when the command was given."""
    port, started = free_port(), time.time()
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port), *flags],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}", started
    finally:
        process.terminate()
        process.wait()


def first_answer(url: str) -> None:
    """Wait for the first whole page."""
    while True:
        with suppress(httpx.TransportError):
            if "</html>" in httpx.get(url, timeout=30).text:
                return
        time.sleep(0.02)


def start(times: int) -> Iterator[Line]:
    """The command with the model in the user's cache, then a run of one prompt."""
    answers, usable, pictures = [], [], []
    for _ in range(times):
        with command("--dtype", "float32") as (url, started):
            first_answer(url)
            answers.append(time.time() - started)
            print(f"  first page {answers[-1]:.2f} s", file=sys.stderr)
        with browser("") as page, command("--dtype", "float32") as (url, started):
            first_answer(url)
            page.goto(url)
            page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
            usable.append(time.time() - started)
            page.wait_for_function("document.querySelector('#bs-notice').innerText.trim() === ''")
            for run in range(2):  # the second one finds everything warm
                page.wait_for_timeout(500)
                pressed = page.evaluate("performance.timeOrigin + performance.now()")
                press_run(page)
                value = json.loads(
                    page.evaluate("document.querySelector('.bs-stage').batchscope.value.record")
                )
                ttft = value["steps"][0]["started"] + value["steps"][0]["seconds"]
                drawn = page.evaluate("window.drawn")
                plan = (drawn[0][2] - pressed) / 1000
                first = (next(at for step, _, at in drawn if step) - pressed) / 1000
                pictures.append((first - ttft, plan))
                print(
                    f"  run {run}: plan {plan:.3f} s, tokens {first:.3f} s, TTFT {ttft:.3f} s",
                    file=sys.stderr,
                )
    yield Line("command to first page, median", statistics.median(answers), "s", 5)
    yield Line("command to a page in the browser, median", statistics.median(usable), "s")
    yield Line("click to picture, without TTFT, largest", max(a for a, _ in pictures), "s", 0.3)
    yield Line("click to the empty picture, largest", max(b for _, b in pictures), "s")


def visits() -> Iterator[Line]:
    """What travels to a browser on its first visit and on its second."""
    with closing(Server("fake")) as server, browser("") as page:
        devtools = page.context.new_cdp_session(page)
        devtools.send("Network.enable")
        sizes: dict[str, int] = {}
        types: dict[str, str] = {}
        devtools.on(
            "Network.responseReceived",
            lambda event: types.update({event["requestId"]: event["response"]["url"]}),
        )
        devtools.on(
            "Network.loadingFinished",
            lambda event: sizes.update({event["requestId"]: int(event["encodedDataLength"])}),
        )
        for visit, most in (("first", None), ("second", 0.01)):
            sizes.clear()
            types.clear()
            page.goto(server.url)
            page.wait_for_function("document.querySelector('.bs-stage')?.batchscope !== undefined")
            page.wait_for_timeout(1000)
            scripts = sum(
                size for key, size in sizes.items() if re.search(r"\.js(\?|$)", types.get(key, ""))
            )
            for size, key in sorted(((s, types.get(k, "?")) for k, s in sizes.items()))[-6:]:
                print(f"  {visit}: {size:>9,} {key[-90:]}", file=sys.stderr)
            yield Line(f"{visit} visit: all", sum(sizes.values()) / 1e6, "MB")
            yield Line(f"{visit} visit: scripts", scripts / 1e6, "MB", most)


def slider(moves: int = 20) -> Iterator[Line]:
    """The computed lanes of 64 requests with up to 2,048 tokens each, for one number of slots after
    another: from the event of the slider to the frame that shows its picture."""
    record = comparisons.dumps(long_comparison(requests=64, tokens=2048, slots=32))
    with closing(Server("fake")) as server, browser(server.url) as page:
        page.get_by_role("tab", name="Compare").click()
        file = {"name": "long.json", "mimeType": "application/json", "buffer": record.encode()}
        page.get_by_label("A saved comparison").set_input_files(file)
        page.wait_for_function("document.querySelector('.bs-compare').batchscope?.opened")
        page.wait_for_timeout(1000)  # the arrivals, which are none of a move's costs
        times = page.evaluate(MOVE, [1 + (7 * move) % 64 for move in range(moves + 2)])[
            2:
        ]  # the first two find nothing warm
    print(f"  {[round(ms) for ms in times]}", file=sys.stderr)
    times.sort()
    what = "slider to picture, 64 requests x 2,048 tokens: median"
    yield Line(what, statistics.median(times), "ms")
    yield Line(f"p95 of {moves}", times[math.ceil(0.95 * moves) - 1], "ms", 100)


class Seen(NamedTuple):
    """One update as it came: when, and how many steps of the run it shows."""

    at: float
    step: int


async def watch(url: str, events: dict[str, int], prompt: str, model: str) -> list[Seen]:
    """What a browser does that presses Run, as far as the server can tell; it draws nothing."""
    rows, columns, _ = WATCHED
    session, seen, step = uuid.uuid4().hex, [], 0
    values = DEFAULTS | {"batch_size": rows}
    listed = rows_of([prompt] + [PROMPT] * (rows - 1), columns)
    data = [listed, model, *(values[name] for name in DEFAULTS)]
    joined = {"data": data, "fn_index": events["press_run"], "session_hash": session}
    async with heard(url, f"heartbeat/{session}"):
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            (await client.post("/gradio_api/queue/join", json=joined)).raise_for_status()
        async with heard(url, f"queue/data?session_hash={session}") as lines:
            async for line in lines:
                message = json.loads(line[6:]) if line.startswith(b"data: ") else {}
                if message.get("msg") == "process_completed":
                    return seen
                if message.get("msg") == "process_generating":
                    step += _steps_in(message["output"]["data"][0])
                    if step:
                        seen.append(Seen(time.time(), step))
    return seen


@asynccontextmanager
async def heard(url: str, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """What a route streams, line by line. A client for HTTP takes as long for a line as the server
    does, and these share its cores."""
    host, port = url.removeprefix("http://").split(":")
    lines, sent = await asyncio.open_connection(host, int(port), limit=2**24)
    sent.write(f"GET /gradio_api/{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    try:
        yield lines
    finally:
        sent.close()


def _steps_in(stage: Any) -> int:
    """How many steps an update adds to the picture: the times of the only batch."""
    if isinstance(stage, dict):
        return stage["times"][0].count(" ") if "times" in stage else 0
    added = (edit for edit in stage if edit[1][:1] == ["times"] and edit[1][1:] in ([0], []))
    return sum(
        (operand if isinstance(operand, str) else operand[0]).count(" ") for _, _, operand in added
    )


def browsers(watchers: Sequence[int]) -> Iterator[Line]:
    """So many at the same time, each at a run of its own whose steps cost nothing: what is measured
    is the page. All share this machine's cores with the clients."""
    _, columns, seconds = WATCHED
    with closing(Server("many")) as server:
        events = Visitor(server.url).ids

        async def all_of_them(count: int) -> tuple[list[list[Seen]], float, float, float]:
            async def one(number: int) -> list[Seen]:
                await asyncio.sleep(number / count)  # they don't press at the same moment
                return await watch(server.url, events, f"{count}-{number}", server.model)

            async def measure() -> tuple[float, float, float]:
                await asyncio.sleep(SETTLE[0])
                before, its_own = processor_seconds(server.process.pid), time.process_time()
                began = time.time()
                await asyncio.sleep(SETTLE[1])
                used = processor_seconds(server.process.pid) - before
                return began, used, time.process_time() - its_own

            (began, used, by_clients), *seen = await asyncio.gather(
                measure(), *map(one, range(count))
            )
            return seen, began, used, by_clients

        for count in watchers:
            seen, since, used, by_clients = asyncio.run(all_of_them(count))
            starts = server.ask("began")
            late = sorted(
                1000 * (update.at - starts[f"{count}-{number}"] - update.step * seconds)
                for number, updates in enumerate(seen)
                for update in updates
                if since <= update.at < since + SETTLE[1] and update.step < columns
            )
            p95 = late[math.ceil(0.95 * len(late)) - 1]
            yield Line(
                f"{count} watching: updates a second, each", len(late) / count / SETTLE[1], ""
            )
            yield Line("  a step to its update: median", statistics.median(late), "ms")
            yield Line("  p95", p95, "ms")
            yield Line("  server's processor time per update", 1000 * used / len(late), "ms")
            yield Line("  cores that the server uses", used / SETTLE[1], "")
            yield Line("  cores that the clients use", by_clients / SETTLE[1], "")


SETTLE = (3.0, 8.0)
"""Seconds before anything is counted, and for how long it is."""

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "watched": lambda options: watched(options.pairs, options.nice),
    "behind": lambda _: behind(),
    "bytes": lambda _: bytes_of_updates(),
    "server": lambda _: server_time(),
    "start": lambda options: start(options.starts),
    "visits": lambda _: visits(),
    "slider": lambda _: slider(),
    "browsers": lambda options: browsers(options.watchers),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--pairs", type=int, default=5, help="of runs, alone and watched")
    parser.add_argument(
        "--nice", type=int, default=0, help="the niceness of the browser that shares the cores"
    )
    parser.add_argument(
        "--watchers", nargs="+", type=int, default=WATCHERS, metavar="N", help="for browsers"
    )
    parser.add_argument("--starts", type=int, default=3, help="of the command")
    parser.add_argument("--serve", choices=[*FAKE_SECONDS, "default"], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    lines = []
    for part in options.parts or [part for part in PARTS if part != "browsers"]:
        print(part, file=sys.stderr)
        for line in PARTS[part](options):
            lines.append(line)
            print(line, flush=True)
    return int(any(line.most is not None and line.figure > line.most for line in lines))


if __name__ == "__main__":
    sys.exit(main())

"""A strict reader of exported traces."""

import json
from collections import defaultdict

from viz.trace import trace

KINDS = {"X", "C", "M", "b", "e"}


def events_of(run):
    def refuse(name):
        raise AssertionError(f"{name} in the trace")

    return json.loads(trace(run), parse_constant=refuse)["traceEvents"]


def tracks_of(events):
    """Complete events per (process, thread), in the order of the file."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def problems(events):
    """What a strict reader of the Trace Event Format would refuse -> sentences."""
    for event in events:
        if event["ph"] not in KINDS or not isinstance(event["name"], str) or not event["name"]:
            yield f"a kind or name that does not exist: {event}"
        if event["ph"] == "M":
            continue
        for field in ("ts", "dur") if event["ph"] == "X" else ("ts",):
            if type(event.get(field)) is not int or event[field] < 0:
                yield f"{field} of {event['name']} is not whole microseconds"
    for track, slices in tracks_of(events).items():
        open_ends, last = [], 0
        for piece in slices:
            start, end = piece["ts"], piece["ts"] + piece["dur"]
            if start < last:
                yield f"{track}: {piece['name']} is out of order"
            last = start
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                yield f"{track}: {piece['name']} reaches out of the slice that it starts in"
            open_ends.append(end)
    waits = [(event["ph"], event["id"], event["ts"]) for event in events if event["ph"] in "be"]
    begun = {wait: at for kind, wait, at in waits if kind == "b"}
    ended = {wait: at for kind, wait, at in waits if kind == "e"}
    if len(waits) != 2 * len(begun) or begun.keys() != ended.keys():
        yield "a wait without its end"
    if any(ended[wait] < at for wait, at in begun.items()):
        yield "a wait that ends before it begins"


def span_of(events):
    """Microseconds from the start of the run to its end; the wait in line comes before it."""
    timed = [event for event in events if "ts" in event and event["name"] != "in line"]
    times = [(event["ts"], event["ts"] + event.get("dur", 0)) for event in timed]
    return max(end for _, end in times) - min(start for start, _ in times)

"""A record that is shown again and again, in pieces: what one process tells another of it is what
it had not told before."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import fields, replace
from typing import Any, NamedTuple

from engine.comparison import Comparison, Entry
from engine.run import Run, Step

GROWS = ("steps", "texts")
REST = tuple(field.name for field in fields(Run) if field.name not in GROWS)


class Growth(NamedTuple):
    """What a run has that it had not before: further steps, the ends of its texts, and the fields
    that have another value."""

    steps: tuple[Step, ...]
    texts: tuple[str, ...]
    changes: dict[str, Any]


class Entries(NamedTuple):
    """A comparison whose entries have no runs, and what is to be told of each of these."""

    comparison: Comparison
    runs: tuple[Run | Growth | None, ...]


def in_pieces(frames: Generator[Any]) -> Iterator[Any]:
    """What is to be told of each frame, for `whole`. Frames of other kinds pass as they are."""
    before: Run | Comparison | None = None
    with closing(frames):
        for frame in frames:
            if isinstance(frame, Run):
                yield growth(before, frame)
            elif isinstance(frame, Comparison):
                yield _entries(before, frame)
            else:
                yield frame
                continue
            before = frame


def whole(pieces: Iterator[Any]) -> Iterator[Any]:
    """The frames again."""
    before: Run | Comparison | None = None
    for piece in pieces:
        if isinstance(piece, Run | Growth):
            before = grown(before, piece)
        elif isinstance(piece, Entries):
            before = _comparison(before, piece)
        else:
            yield piece
            continue
        yield before


def growth(before: Run | None, run: Run) -> Run | Growth:
    """What the run has more; all of it where it is another one."""
    if before is None or run.steps[: len(before.steps)] != before.steps:
        return run
    texts = tuple(zip(before.texts, run.texts, strict=True))
    if not all(new.startswith(old) for old, new in texts):
        return run
    return Growth(
        steps=run.steps[len(before.steps) :],
        texts=tuple(new[len(old) :] for old, new in texts),
        changes={
            name: new for name in REST if (new := getattr(run, name)) != getattr(before, name)
        },
    )


def grown(before: Run | None, piece: Run | Growth) -> Run:
    """The run of which this is told."""
    if isinstance(piece, Run):
        return piece
    return replace(
        before,
        steps=before.steps + piece.steps,
        texts=tuple(map(str.__add__, before.texts, piece.texts)),
        **piece.changes,
    )


def _entries(before: Comparison | None, comparison: Comparison) -> Entries:
    runs = tuple(
        entry.run and growth(old and old.run, entry.run)
        for old, entry in zip(_known(before, comparison), comparison.entries, strict=True)
    )
    bare = tuple(replace(entry, run=None) for entry in comparison.entries)
    return Entries(replace(comparison, entries=bare), runs)


def _comparison(before: Comparison | None, piece: Entries) -> Comparison:
    entries = tuple(
        replace(entry, run=run and grown(old and old.run, run))
        for old, entry, run in zip(
            _known(before, piece.comparison), piece.comparison.entries, piece.runs, strict=True
        )
    )
    return replace(piece.comparison, entries=entries)


def _known(before: Comparison | None, comparison: Comparison) -> tuple[Entry | None, ...]:
    return before.entries if before else (None,) * len(comparison.entries)

"""Where runs run: in this process, which holds the models, or on replicas of it (engine.fleet)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engine.run import Request, Run, Step
from engine.visitors import Flag, StopFlag

if TYPE_CHECKING:
    from engine.models import LanguageModel

Answer = TypeVar("Answer")
Shown = TypeVar("Shown")


class Named(Protocol):
    """A model, or what stands for one that lies elsewhere."""

    @property
    def name(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...


class Stream(Protocol):
    """A run under way, as `RunStream` is one. `record` is None before it has begun elsewhere."""

    def __iter__(self) -> Iterator[Step]: ...

    def record(self) -> Run | None: ...

    def close(self) -> None: ...


class Where(Protocol):
    """Functions are named as they stand in a module, and what goes in and comes out is plain data:
    both may go to another process."""

    at_once: int
    """So many runs may be under way."""

    def new_flag(self) -> Flag:
        """A flag that reaches a run which is shown."""

    def ask(self, question: Callable[..., Answer], lm: Named, *asked: Any) -> Answer:
        """`question(lm, *asked)`."""

    def show(
        self, frames: Callable[..., Iterator[Shown]], lm: Named, what: Any, stop: Flag, **how: Any
    ) -> Iterator[Shown]:
        """`frames(lm, what, stop, **how)`."""

    def stream(
        self,
        lm: Named,
        requests: Sequence[Request],
        stop: Flag,
        *,
        batch_size: int,
        seconds: float | None,
    ) -> Stream:
        """A run whose every step is wanted."""


class Here:
    """In this process."""

    at_once = 1

    def new_flag(self) -> Flag:
        return StopFlag.new()

    def ask(self, question: Callable[..., Answer], lm: LanguageModel, *asked: Any) -> Answer:
        return question(lm, *asked)

    def show(
        self,
        frames: Callable[..., Iterator[Shown]],
        lm: LanguageModel,
        what: Any,
        stop: Flag,
        **how: Any,
    ) -> Iterator[Shown]:
        return frames(lm, what, stop, **how)

    def stream(
        self,
        lm: LanguageModel,
        requests: Sequence[Request],
        stop: Flag,
        *,
        batch_size: int,
        seconds: float | None,
    ) -> Stream:
        from engine import StaticBatchEngine

        engine = StaticBatchEngine(lm, batch_size=batch_size)
        return engine.stream(requests, stop=stop, seconds=seconds)

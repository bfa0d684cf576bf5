"""A decode step without the Python of its model: the calls to torch that it made, made again.

On a CPU a sixth of a step of a small model goes by in Python, between one operation and the next.
Two steps in a row are written down, call by call, and laid over one another: what is the same in
both stays, and a number that grew by one is the number of columns seen. What comes of it is a plain
function that calls torch and nothing else. In every batch it is believed once it has given the
logits of a step, bit for bit; from then on it stands in for the model. What none of these shows is
a number that a model keeps in Python and changes later: see `LanguageModel.captures`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from engine.errors import first_line
from engine.free import is_out_of_memory

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.engine")

Step = Callable[[], Tensor]
Replay = Callable[[Sequence[Tensor], int], Tensor]
"""From the tensors of a run, and how many columns it has seen, to the logits of a step."""

MOST_TAPES = 8
"""Kept per model, one for each shape of a batch."""

WORTH = 16
"""Steps to come that are worth the writing down."""

QUESTIONS = frozenset(
    {"__get__", "__hash__", "__len__", "dim", "element_size", "get_device", "is_complex"}
    | {"is_contiguous", "is_floating_point", "ndimension", "nelement", "numel", "size", "stride"}
)
"""What a tensor answers without a look at its numbers."""

MADE_IN_PYTHON = frozenset({"as_tensor", "asarray", "from_numpy", "new_tensor", "tensor"})
"""What brings numbers into a step that may be others in the next one."""

READS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
COUNTED = (torch.bool, torch.uint8)


class CannotReplayError(Exception):
    """Why steps can't be made of their calls."""


class Made(NamedTuple):
    """What a call of the step made: its result, or a part of it."""

    call: int
    part: int | None = None


class Given(NamedTuple):
    """A tensor of the run."""

    index: int


class Call(NamedTuple):
    """A function and its arguments, in which tensors of the step and of the run are named."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Take(NamedTuple):
    """A step as it went, with so many columns seen; `problem` is why it can't be replayed."""

    seen: int
    calls: list[Call]
    result: Made | Given | Tensor
    problem: str | None


class Tapes:
    """The tapes of a model, by the shape of a batch. `reason` says why there are none, None while
    there may be some."""

    def __init__(self, lm: LanguageModel) -> None:
        self._name = lm.name
        self._tapes: OrderedDict[Hashable, Replay] = OrderedDict()
        self.reason: str | None = None
        if not lm.captures:
            self.reason = "not asked to"
        elif lm.compiled:
            self.reason = "its steps are compiled"
        elif lm.device.type != "cpu":
            self.reason = "not on a CPU"
        elif lm.split:
            self.give_up(f"it lies over {lm.split}")

    def __len__(self) -> int:
        return len(self._tapes)

    def find(self, shape: Hashable) -> Replay | None:
        if shape in self._tapes:
            self._tapes.move_to_end(shape)
        return self._tapes.get(shape)

    def add(self, shape: Hashable, replay: Replay) -> None:
        self._tapes[shape] = replay
        if len(self._tapes) > MOST_TAPES:
            self._tapes.popitem(last=False)

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self._tapes.clear()
        log.info("%s decodes without replays: %s", self._name, reason)


class TapedSteps:
    """The steps of one batch: replayed where there is a tape for its shape, else taken as they are
    and written down on the way."""

    def __init__(
        self,
        tapes: Tapes,
        *,
        run: Sequence[Tensor],
        counters: Sequence[Tensor],
    ) -> None:
        """`run` are all tensors that a step finds in its place beside those of the model;
        `counters` are those of them that would count twice if the step were taken twice."""
        self._tapes = tapes
        self._run = run
        self._counters = counters
        self._proved: set[Hashable] = set()
        self._shape: Hashable = None
        self._takes: list[Take] = []

    def take(self, step: Step, *, seen: int, left: int, shape: Hashable) -> Tensor:
        """The next step, which sees so many columns; so many come after it. Steps of one shape
        make the same calls."""
        if self._tapes.reason is not None:
            return step()
        if replay := self._tapes.find(shape):
            if shape in self._proved:
                return replay(self._run, seen)
            return self._prove(replay, shape, step, seen)
        if shape != self._shape:
            self._shape, self._takes = shape, []
        if left + len(self._takes) < WORTH:
            return step()
        return self._write_down(step, seen)

    def _write_down(self, step: Step, seen: int) -> Tensor:
        before = [counter.clone() for counter in self._counters]
        try:
            result, take = record(step, self._run, seen)
        except NotImplementedError as error:  # of torch, for what it can't do under a mode
            self._tapes.give_up(f"{type(error).__name__}: {first_line(error)}")
            self._put_back(before)
            return step()  # if it fails, then by itself
        self._takes.append(take)
        try:
            if take.problem:
                raise CannotReplayError(take.problem)
            if len(self._takes) == 2:
                self._tapes.add(self._shape, lay_over(*self._takes))
        except CannotReplayError as error:
            self._tapes.give_up(str(error))
        return result

    def _prove(self, replay: Replay, shape: Hashable, step: Step, seen: int) -> Tensor:
        """A step both ways."""
        before = [counter.clone() for counter in self._counters]
        try:
            replayed = replay(self._run, seen)
        except Exception as error:  # of torch, where what was laid over one another doesn't fit
            if is_out_of_memory(error):
                raise
            replayed, reason = None, f"{type(error).__name__}: {first_line(error)}"
        else:
            reason = "a replay gave other logits"
        self._put_back(before)
        result = step()
        if replayed is not None and torch.equal(replayed, result):
            self._proved.add(shape)
        else:
            self._tapes.give_up(reason)
        return result

    def _put_back(self, before: Sequence[Tensor]) -> None:
        for counter, value in zip(self._counters, before, strict=True):
            counter.copy_(value)


def record(step: Step, run: Sequence[Tensor], seen: int) -> tuple[Tensor, Take]:
    """Take a step, and write it down."""
    drawn = torch.get_rng_state()
    with Watch(run) as watch, Recorder(run, watch) as recorder:
        result = step()
    problem = recorder.problem or watch.problem
    if not torch.equal(drawn, torch.get_rng_state()):
        problem = "it draws random numbers"
    return result, Take(seen, recorder.calls, recorder.named(result), problem)


class Watch(TorchDispatchMode):
    """Sees the operations under a call: whether one changed a tensor, or made one."""

    def __init__(self, run: Sequence[Tensor]) -> None:
        super().__init__()
        self.changed = self.made = False
        self.problem: str | None = None
        self._may_change = {place_of(tensor) for tensor in run}

    def __torch_dispatch__(
        self, operation: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if reads_numbers(operation, args):
            self.problem = f"it reads numbers ({operation.name()})"
        result = operation(*args, **(kwargs or {}))
        if operation._schema.is_mutable:
            self.changed = True
            if place_of(args[0]) not in self._may_change:
                self.problem = f"it keeps what it changes ({operation.name()})"
        else:
            made = (leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
            given = {place_of(leaf) for leaf in tree_leaves(args) if isinstance(leaf, Tensor)}
            self._may_change |= {
                place for tensor in made if (place := place_of(tensor)) not in given
            }
        self.made |= not any(result is given for given in args)
        return result


def place_of(tensor: Tensor) -> int:
    """Where its numbers lie, also those of its views; one in a layout of oneDNN has none."""
    with torch._C.DisableTorchFunction():
        if tensor.is_mkldnn:
            return id(tensor)
        return tensor.untyped_storage().data_ptr()


def places_in(value: Any) -> set[int]:
    return {place_of(leaf) for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}


def holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))


def reads_numbers(operation: OpOverload, args: Sequence[Any]) -> bool:
    """Whether the shape or the value of its result, as Python sees it, depends on numbers."""
    if operation is torch.ops.aten.index.Tensor:  # which takes places, or truth values
        return any(index is not None and index.dtype in COUNTED for index in args[1])
    return any(tag in operation.tags for tag in READS)


class Recorder(TorchFunctionMode):
    """Writes down the calls that changed or made a tensor."""

    def __init__(self, run: Sequence[Tensor], watch: Watch) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.problem: str | None = None
        self._watch = watch
        self._names = WeakTensorKeyDictionary()  # so that a step's tensors are freed as they were
        self._names.update({tensor: Given(index) for index, tensor in enumerate(run)})

    def named(self, value: Any) -> Any:
        """The value with names in place of the tensors of the step and of the run."""
        if isinstance(value, Tensor):
            return self._names.get(value, value)
        if isinstance(value, slice):
            return slice(*map(self.named, (value.start, value.stop, value.step)))
        if isinstance(value, list):
            return [self.named(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self.named(item) for item in value)
        return value

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        named = {key: self.named(value) for key, value in kwargs.items()}
        call = Call(function, self.named(args), named)
        self._watch.changed = self._watch.made = False
        result = function(*args, **kwargs)
        self._note(call, (args, kwargs), result)
        return result

    def _note(self, call: Call, given: Any, result: Any) -> None:
        name = getattr(call.function, "__name__", str(call.function))
        parts = result if isinstance(result, list | tuple) else [result]
        has_tensors = holds_tensors(result)
        if name in MADE_IN_PYTHON:
            self.problem = f"it makes tensors in Python ({name})"
        elif self._watch.changed or (has_tensors and self._watch.made):
            number = len(self.calls)
            self.calls.append(call)
            for part, tensor in enumerate(parts):
                if isinstance(tensor, Tensor):
                    made = Made(number, None if tensor is result else part)
                    self._names.setdefault(tensor, made)  # what is changed keeps its name
        elif holds_tensors(given) and not has_tensors and name not in QUESTIONS:
            self.problem = f"it reads numbers ({name})"


def lay_over(first: Take, second: Take) -> Replay:
    """The function that both steps are instances of. Raises CannotReplayError if there is none."""
    if [call.function for call in first.calls] != [call.function for call in second.calls]:
        raise CannotReplayError("its steps differ in their calls")
    script = Script(first.seen, second.seen)
    result = script.value(first.result, second.result)
    script.take_ended()
    lines: list[str] = []
    for number in reversed(range(len(first.calls))):  # where values are used last comes first
        variable = script.end_before(number)
        call = script.call(first.calls[number], second.calls[number])
        line = f"{variable} = {call}" if variable else call
        ended = sorted(script.take_ended() - {variable})
        lines.append("; ".join([line, *(f"{name} = None" for name in ended)]))
    body = "".join(f"    {line}\n" for line in reversed(lines))
    source = f"def replay(run, seen):\n{body}    return {result}\n"
    exec(compile(source, "<tape>", "exec"), script.names)
    return script.names["replay"]


class Script:
    """What is common to two steps, as Python that is written from its end to its beginning; `names`
    are the objects that it speaks of.

    Variables are used again. As many as there are calls would fill the 16 kB that CPython 3.11
    takes from the system at a time for the frames of functions, and have it take and give back the
    next ones in every call from then on.
    """

    def __init__(self, first: int, second: int) -> None:
        """From how many columns each of them saw."""
        self.names: dict[str, Any] = {}
        self._seen = (first, second)
        self._variables: dict[int, str] = {}  # of calls whose results are still spoken of
        self._unused: list[str] = []
        self._count = 0
        self._ended: set[str] = set()

    def end_before(self, call: int) -> str | None:
        """The variable for what a call makes, if it is spoken of; nothing before the call does."""
        variable = self._variables.pop(call, None)
        if variable:
            self._unused.append(variable)
        return variable

    def _variable(self, call: int) -> str:
        if call not in self._variables:
            self._variables[call] = self._unused.pop() if self._unused else self._new_variable()
            self._ended.add(self._variables[call])
        return self._variables[call]

    def _new_variable(self) -> str:
        self._count += 1
        return f"m{self._count}"

    def take_ended(self) -> set[str]:
        """The variables that were spoken of for the last time since this was asked last."""
        ended, self._ended = self._ended, set()
        return ended

    def call(self, one: Call, other: Call) -> str:
        if len(one.args) != len(other.args) or one.kwargs.keys() != other.kwargs.keys():
            raise CannotReplayError("its steps differ in what they are given")
        args = [self.value(*pair) for pair in zip(one.args, other.args, strict=True)]
        args += [
            f"{key}={self.value(value, other.kwargs[key])}" for key, value in one.kwargs.items()
        ]
        return f"{self._name(one.function)}({', '.join(args)})"

    def value(self, one: Any, other: Any) -> str:
        if isinstance(one, Made) and one == other:
            variable = self._variable(one.call)
            return variable if one.part is None else f"{variable}[{one.part}]"
        if isinstance(one, Given) and one == other:
            return f"run[{one.index}]"
        if isinstance(one, Made | Given | Tensor) or type(one) is not type(other):
            return self._name_of_same(one, other)
        if isinstance(one, slice):
            parts = ((one.start, other.start), (one.stop, other.stop), (one.step, other.step))
            return f"slice({', '.join(self.value(*pair) for pair in parts)})"
        if isinstance(one, list | tuple) and len(one) == len(other):
            items = "".join(f"{self.value(*pair)}, " for pair in zip(one, other, strict=True))
            return f"[{items}]" if isinstance(one, list) else f"({items})"
        if type(one) is int and one != other:
            return self._counted(one, other)
        return self._name_of_same(one, other)

    def _counted(self, one: int, other: int) -> str:
        beside = one - self._seen[0]
        if other - self._seen[1] != beside:
            raise CannotReplayError(f"a number of its steps went from {one} to {other}")
        return f"seen + {beside}"

    def _name_of_same(self, one: Any, other: Any) -> str:
        same = one is other if holds_tensors(one) else one == other
        if not same:
            raise CannotReplayError("its steps differ in what they are given")
        return self._name(one)

    def _name(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

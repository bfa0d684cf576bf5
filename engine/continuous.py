"""Continuous batching: a slot that becomes free goes to the next request before the next forward.

engine = ContinuousEngine(lm, batch_size=4)
for step in engine.stream(make_requests(["Hello", "What is a slot?"])):
    print(step.batch, step.pieces)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace

from engine.batching import plan
from engine.errors import BatchscopeError, RequestError, first_line
from engine.free import is_out_of_memory
from engine.interrupt import asking_before_each
from engine.memory import Forecast, check_memory
from engine.models import LanguageModel
from engine.paged import PagedRequests, reason_against, reason_against_request
from engine.pool import Lengths, pool_for, pool_forecast
from engine.run import Batch, Request, Settings, Step
from engine.static import RunStream, StaticBatchEngine
from engine.visitors import Flag

log = logging.getLogger("batchscope.engine")


class ContinuousEngine(StaticBatchEngine):
    """Runs requests by transformers' ContinuousBatchingManager, at most `batch_size` at a time,
    first come first served.

    Greedy alone, each request with its own budget, ends and stop strings; in float32 the ids are
    those of the other engines. Its forwards are plain calls of the model: neither compiled, nor
    replayed, nor captured. Raises RequestError for what the manager can't do as the others do it.
    """

    name = "continuous"

    def __init__(
        self, lm: LanguageModel, *, batch_size: int = 8, chat_template: bool = False
    ) -> None:
        if reason := reason_against(lm):
            raise RequestError(_refusal(lm, reason))
        super().__init__(lm, batch_size=batch_size, chat_template=chat_template)

    @property
    def _under_way(self) -> type[ContinuousStream]:
        return ContinuousStream

    def forecast(self, requests: Sequence[Request]) -> Forecast:
        batches = plan(self.lm, requests, _one_by_one(self.settings))
        return _forecast(self.lm, batches, requests, self.settings)


class ContinuousStream(RunStream):
    """A continuous run under way: in the record every request is a batch of its own, and a forward
    that served five of them is five Steps of the same time.

    The clock starts when the pages are set aside, as in a server that was there before its
    requests; it covers all that the manager does for them from then on: scheduling, its tensors,
    the forward, and reading the tokens as text.
    """

    def __init__(
        self,
        lm: LanguageModel,
        requests: Sequence[Request],
        settings: Settings,
        stop: Flag,
        seconds: float | None,
    ) -> None:
        for request in requests:
            if reason := reason_against_request(request):
                raise RequestError(_refusal(lm, reason))
        super().__init__(lm, requests, _one_by_one(settings), stop, seconds)
        self._settings = settings
        self._forecast = _forecast(lm, self._batches, self._requests, settings)
        lm.info  # noqa: B018  told now, since the manager may change the model's attention

    def check_memory(self) -> None:
        check_memory(_forecast(self._lm, self._batches, self._requests, self._settings))

    def _serve(self) -> Iterator[Step]:
        """All at once: their forwards are shared."""
        if self._stop.is_set():
            return
        everyone = Batch(
            index=0,
            requests=tuple(range(len(self._requests))),
            prompt_ids=tuple(batch.prompt_ids[0] for batch in self._batches),
            padding_side=self._settings.padding_side,
        )
        pool = pool_for(
            self._lm, _lengths(self._batches, self._requests), self._settings.batch_size
        )
        with closing(PagedRequests(self._lm, everyone, self._requests, pool)) as paged:
            self._active = paged
            log.debug("the pages take %d bytes, used or not", paged.reserved_bytes)
            self._clock = time.perf_counter()
            while paged.running and not self._stop.is_set():
                self._check_deadline()
                started = self._seconds()
                self._forward(paged)
                yield from self._write_down(paged, started, self._seconds() - started)

    def _forward(self, paged: PagedRequests) -> None:
        # The first forward is left between two layers if it must be; a prompt may come with any.
        prompts = paged.forwards > 0 and paged.reads_prompts
        with asking_before_each(self._lm.layers, self._ask) if prompts else nullcontext():
            super()._forward(paged)

    def _write_down(self, paged: PagedRequests, started: float, seconds: float) -> list[Step]:
        steps = [
            Step(
                batch=served.request,
                forward=served.number,
                phase="prefill" if served.number == 1 else "decode",
                tokens=(served.token,),
                pieces=(served.piece,),
                ends=(served.end,),
                started=started,
                seconds=seconds,
                kv_bytes=served.kv_bytes,
            )
            for served in paged.served
        ]
        with self._writing:
            for index in paged.seated:
                self._batches[index] = replace(self._batches[index], started=started)
            self._steps += steps
            for step in steps:
                self._add_to_texts(self._batches[step.batch], step.pieces)
        return steps

    def _explain(self, error: Exception) -> str:
        if isinstance(error, BatchscopeError):
            return str(error)
        forwards = self._active.forwards if self._active else 0
        if is_out_of_memory(error):
            return (
                f"Out of memory in forward {forwards + 1}: {self._settings.batch_size} requests at "
                "a time; try fewer, or shorter prompts."
            )
        cause = f"{type(error).__name__}: {first_line(error)}"
        if forwards:
            sentence = f"The model failed in forward {forwards + 1}: {cause}."
        else:
            sentence = _refusal(self._lm, cause)
        log.error("%s", sentence, exc_info=error)
        return sentence


def _refusal(lm: LanguageModel, reason: str) -> str:
    return f"{lm.name} can't be run by transformers' continuous batching: {reason}."


def _one_by_one(settings: Settings) -> Settings:
    """For a plan in which every request is a batch of its own."""
    return replace(settings, batch_size=1)


def _lengths(batches: Sequence[Batch], requests: Sequence[Request]) -> list[Lengths]:
    return [Lengths(batch.padded_length, requests[batch.index].max_new_tokens) for batch in batches]


def _forecast(
    lm: LanguageModel,
    batches: Sequence[Batch],
    requests: Sequence[Request],
    settings: Settings,
) -> Forecast:
    return pool_forecast(lm, _lengths(batches, requests), settings.batch_size)

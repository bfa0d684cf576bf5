"""The models that a host offers, each loaded once, in the background, for everyone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import BatchscopeError, ModelError
from engine.visitors import Flag
from engine.where import Here, Named, Where

if TYPE_CHECKING:
    from engine.models import LanguageModel

log = logging.getLogger("batchscope.models")


@dataclass
class Loading:
    """How far one model is: `message` while it loads, then `lm` or `error`."""

    message: str = ""
    lm: Named | None = None
    error: str | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def over(self) -> bool:
        return self.lm is not None or self.error is not None

    def update(self, **changes: object) -> None:
        with self.changed:
            for name, value in changes.items():
                setattr(self, name, value)
            self.changed.notify_all()

    def messages(self, stop: Flag | None = None, patience: float | None = None) -> Iterator[str]:
        """What is being done, at each change and every `patience` seconds, until it is over or
        `stop` is set."""
        while not self.over and not (stop and stop.is_set()):
            seen = self.message
            yield seen
            with self.changed:
                self.changed.wait_for(lambda seen=seen: self.over or self.message != seen, patience)

    def wait(self) -> Named:
        """The model, once loading is over. Raises ModelError if it failed."""
        with self.changed:
            self.changed.wait_for(lambda: self.over)
        return self.result()

    def result(self) -> Named:
        """The model once loading is over. Raises ModelError if it failed."""
        if self.error is not None:
            raise ModelError(self.error)
        return self.lm


class ModelShelf:
    """Loads models by name on first use. Names outside the host's list are refused.

    torch is imported by the loading thread, so that a page is up before it.
    """

    where: Where = Here()

    def __init__(
        self,
        names: Sequence[str],
        *,
        device: str = "auto",
        dtype: str = "auto",
        compile: bool = False,
        device_map: str | None = None,
    ) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._how = {"device": device, "dtype": dtype, "compile": compile, "device_map": device_map}
        self._lock = threading.Lock()
        self._loadings: dict[str, Loading] = {}
        self._closed = False

    def add(self, lm: LanguageModel) -> None:
        """Put a model that is loaded already on the shelf."""
        self._loadings[lm.name] = Loading(lm=lm)

    def load_all(self) -> None:
        """Load every model here and now, and none later: forked workers find only what was loaded
        before, and ZeroGPU follows the weights of the thread that imported it alone."""
        self._closed = True
        for name in self.names:
            loading = self._loadings[name] = Loading(message=f"Loading {name}")
            self._load(name, loading)

    def start(self, name: str) -> Loading:
        """Begin to load a model unless that is under way or done; a failed one is tried again."""
        if name not in self.names:
            raise ModelError(f"This page does not offer the model {name!r:.60}.")
        with self._lock:
            loading = self._loadings.get(name)
            if loading is None or (loading.error is not None and not self._closed):
                loading = self._loadings[name] = Loading(message=f"Loading {name}")
                threading.Thread(target=self._load, args=(name, loading), daemon=True).start()
            return loading

    def loaded(self, name: str) -> Named | None:
        """The model if it is there already; nothing begins to load."""
        loading = self._loadings.get(name)
        return loading and loading.lm

    def _load(self, name: str, loading: Loading) -> None:
        def on_progress(message: str, fraction: float | None) -> None:
            done = "" if fraction is None else f" ({fraction:.0%})"
            loading.update(message=message + done)

        try:
            from engine import load_model

            lm = load_model(name, **self._how, on_progress=on_progress)
            # Asked for here first: on ZeroGPU only the loading thread sees where the weights are.
            device = lm.info.device
        except BatchscopeError as error:
            loading.update(error=str(error))
        except BaseException as error:
            # A loader that calls exit() too: whoever waits for the model must hear of its end.
            log.exception("loading %s failed", name)
            loading.update(error=f"{name} can't be loaded: {type(error).__name__}.")
            if isinstance(error, KeyboardInterrupt):
                raise
        else:
            log.info("loaded %s on %s", name, device)
            loading.update(lm=lm)

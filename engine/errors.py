"""The exceptions that reach a person: `str(error)` is one plain sentence, ready to show."""

from pathlib import Path


class BatchscopeError(Exception):
    """Base of everything below; catch this one to show any of them."""


class RequestError(BatchscopeError):
    """What was asked for can't be run; nothing has been computed."""


class ModelError(BatchscopeError):
    """The model can't be loaded or can't be batched."""


class RunError(BatchscopeError):
    """A run ended before its rows did; the steps so far are in its record."""


class LostError(RunError):
    """The process of the replica that ran it has died; `cause` is what is known of that, for the
    log."""

    def __init__(self, cause: str) -> None:
        super().__init__("The process that ran this has died; another one takes its place.")
        self.cause = cause


class RecordError(BatchscopeError):
    """A saved run can't be read."""


def first_line(error: BaseException) -> str:
    """The first line of a foreign error's text, without the local path of the home folder."""
    text = words_of(error).strip() or type(error).__name__
    text = text.splitlines()[0].replace(str(Path.home()), "~").rstrip(".: ")
    return text.encode("utf-8", "replace").decode()


def words_of(error: BaseException) -> str:
    """The text of a foreign error, "" where even that raises."""
    try:
        # Where an error has a `message`, as one of ZeroGPU has, str() only quotes it.
        return str(getattr(error, "message", error))
    except Exception:
        return ""

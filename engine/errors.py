"""The exceptions that reach a person: `str(error)` is one plain sentence, ready to show."""


class BatchscopeError(Exception):
    """Base of everything below; catch this one to show any of them."""


class RequestError(BatchscopeError):
    """What was asked for can't be run; nothing has been computed."""


class ModelError(BatchscopeError):
    """The model can't be loaded or can't be batched."""


class RunError(BatchscopeError):
    """A run ended before its rows did; the steps so far are in its record."""


class RecordError(BatchscopeError):
    """A saved run can't be read."""

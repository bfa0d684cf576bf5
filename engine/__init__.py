"""Batchscope's engine: static batches on a real model, recorded step by step.

The names below are loaded when first used, so that reading a record never loads torch.
"""

from importlib import import_module

_HOME = {
    "BatchscopeError": "errors",
    "GenerationResult": "generate",
    "LanguageModel": "models",
    "Run": "run",
    "SerialEngine": "serial",
    "StaticBatchEngine": "static",
    "Step": "run",
    "generate_batch": "generate",
    "generate_one": "generate",
    "load_model": "models",
    "make_requests": "requests",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(f"engine.{_HOME[name]}"), name)

"""Batchscope's engine: static batches on a real model, recorded step by step.

The names below are loaded when first used, so that reading a record never loads torch.
"""

import gc
import sys
from importlib import import_module

_HOME = {
    "BatchscopeError": "errors",
    "ContinuousEngine": "continuous",
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
    home = f"engine.{_HOME[name]}"
    if home not in sys.modules:
        _import_once(home)
    return getattr(sys.modules[home], name)


def _import_once(module: str) -> None:
    """Import without looking for garbage meanwhile or, later, among what was imported: torch and
    transformers make very many objects, and all of them stay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        import_module(module)
    finally:
        gc.freeze()
        if collecting:
            gc.enable()

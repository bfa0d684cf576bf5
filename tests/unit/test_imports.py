"""Imports point one way: app -> viz -> the engine's plain data; app -> engine."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN_DATA = {
    "engine.run",
    "engine.metrics",
    "engine.runfile",
    "engine.sweep",
    "engine.sweepfile",
    "engine.lanes",
    "engine.schedules",
    "engine.costs",
    "engine.planner",
    "engine.arrivals",
    "engine.capacity",
    "engine.comparison",
    "engine.errors",
    "engine.inert",
    "engine.served",
}


def imported(source: str, package: str) -> set[str]:
    """The modules a source file names in its imports, wherever they stand in it.

    `from a import b` counts as a.b too, since b may be a module.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*parents, *filter(None, [node.module])]) if node.level else node.module
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


def top(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    return imported(path.read_text(encoding="utf-8"), ".".join(path.parent.relative_to(ROOT).parts))


def forbidden_in_engine(names: set[str]) -> set[str]:
    return top(names) & {"gradio", "plotly", "app", "viz"}


def forbidden_in_viz(names: set[str]) -> set[str]:
    wrong = top(names) & {"torch", "transformers", "app"}
    from_engine = {".".join(name.split(".")[:2]) for name in names if top({name}) == {"engine"}}
    return wrong | (from_engine - PLAIN_DATA - {"engine"})


@pytest.mark.parametrize("path", files("engine"), ids=lambda path: path.stem)
def test_the_engine_draws_nothing(path):
    names = imports_of(path)
    if path.name == "__main__.py":  # the shell, which prints text
        names -= {
            name for name in names if name.startswith(("viz.slots", "viz.terminal", "viz.words"))
        }
    assert forbidden_in_engine(names) == set()


@pytest.mark.parametrize("path", files("viz"), ids=lambda path: path.stem)
def test_viz_reads_plain_data_only(path):
    assert forbidden_in_viz(imports_of(path)) == set()


def test_the_engine_was_looked_at():
    assert {"static.py", "run.py", "metrics.py"} <= {path.name for path in files("engine")}


@pytest.mark.parametrize(
    "line",
    [
        "import gradio",
        "from plotly import io",
        "def f():\n    import viz.slots",
        "from app import x",
    ],
)
def test_a_wrong_import_in_engine_is_found(line):
    assert forbidden_in_engine(imported(line, "engine"))


@pytest.mark.parametrize(
    "line",
    [
        "import torch.nn",
        "from transformers import Cache",
        "import app",
        "from engine import static",
        "from engine.static import StaticBatchEngine",
        "from engine import make_requests",
        "if True:\n    from engine import models as m",
    ],
)
def test_a_wrong_import_in_viz_is_found(line):
    assert forbidden_in_viz(imported(line, "viz"))


@pytest.mark.parametrize(
    "line",
    [
        "from engine.run import Run",
        "from engine import metrics, runfile",
        "import engine.errors",
        "import plotly.graph_objects as go",
        "from . import theme",
        "from .stage import stage",
    ],
)
def test_a_right_import_in_viz_is_allowed(line):
    assert forbidden_in_viz(imported(line, "viz")) == set()


def test_relative_imports_are_resolved():
    assert "viz.theme" in imported("from . import theme", "viz")
    assert "viz.theme.COLOURS" in imported("from ..theme import COLOURS", "viz.stage")

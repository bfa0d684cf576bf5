"""The models of a host: whoever waits for one hears how its loading ended."""

import pytest

from engine import models
from engine.errors import ModelError
from engine.shelf import ModelShelf


@pytest.fixture
def shelf(monkeypatch):
    """A shelf whose one model raises this when it is loaded."""

    def raising(error):
        def load(*_, **__):
            raise error

        monkeypatch.setattr(models, "load_model", load)
        return ModelShelf(["one"])

    return raising


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("There is no such model."), "There is no such model."),
        (ValueError("odd"), "one can't be loaded: ValueError."),
        (SystemExit(3), "one can't be loaded: SystemExit."),
        (GeneratorExit(), "one can't be loaded: GeneratorExit."),
    ],
)
def test_a_loader_that_fails_in_any_way_is_heard_of(shelf, error, said):
    in_background = shelf(error).start("one")
    before_all_else = shelf(error)
    before_all_else.load_all()
    for loading in (in_background, before_all_else.start("one")):
        with loading.changed:
            assert loading.changed.wait_for(lambda loading=loading: loading.over, 20)
        for ask in (loading.wait, loading.result):
            with pytest.raises(ModelError) as raised:
                ask()
            assert str(raised.value) == said


def test_ctrl_c_ends_a_host_that_loads_its_models_first(shelf):
    with pytest.raises(KeyboardInterrupt):
        shelf(KeyboardInterrupt()).load_all()

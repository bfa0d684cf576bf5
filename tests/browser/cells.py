"""The cells that the page should draw, from the record alone."""

from engine.run import until
from viz.slots import slot_states

CODES = {"planned": 0, "active": 1, "padded": 2, "idle": 3, "empty": None}


def picture_after(run, k, places):
    """The cells of the whole run, laid out on the places that the page chose; those that step k
    has not reached are planned."""
    now = until(run, k)
    reached = [sum(step.batch == batch.index for step in now.steps) for batch in run.batches]
    last = places[-1]
    columns = last["start"] + last["batch"]["width"]
    cells = [[None] * columns for _ in range(run.slots)]
    for place, states, done in zip(places, slot_states(run), reached, strict=True):
        for slot, row in enumerate(cells):
            for column, state in enumerate(states.prefill[slot]):
                row[place["promptStart"] + column] = state if done else _later(state)
            for column, state in enumerate(states.generation[slot]):
                row[place["start"] + column] = state if column < done else _later(state)
    return [[None if state is None else CODES[state] for state in row] for row in cells]


def _later(state):
    return "empty" if state == "empty" else "planned"

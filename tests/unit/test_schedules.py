"""Computed schedules against a simulation of every token, and against counts by hand."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.metrics import Waste
from engine.schedules import (
    KEYS,
    Job,
    Stay,
    Stretch,
    continuous,
    jobs_of,
    serial,
    static,
)
from tests.unit.paper import WORKED, cut, make_run

THOUSAND = settings(max_examples=1000, deadline=None)

LENGTHS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(1, 12)), min_size=1, max_size=12
)


def made(lengths) -> list[Job]:
    """One (prompt, budget beyond what was generated, generated) each."""
    return [Job(i, prompt, more + new, new) for i, (prompt, more, new) in enumerate(lengths)]


JOBS = LENGTHS.map(made)
TUTORIAL = made(zip((10, 30, 5, 20), (0,) * 4, (15, 10, 20, 12), strict=True))


class Simulated:
    """A batch or a set of slots, one forward after another, one token at a time."""

    def __init__(self) -> None:
        self.forwards = []  # (prompt tokens read, pads included; rows that decode; their columns)
        self.cells = []  # per forward {slot: request that emits a token, or None for an idle row}
        self.padding = [0, 0]
        self.held = []  # columns in the cache after each forward

    def static(self, batch, *, shrinking):
        width, done = max(job.prompt for job in batch), [0] * len(batch)
        self.padding[0] += sum(width - job.prompt for job in batch)
        self.padding[1] += width * len(batch)
        while any(have < job.generated for have, job in zip(done, batch, strict=True)):
            cells, read, decoding, columns = {}, 0, 0, 0
            for slot, job in enumerate(batch):
                ended = done[slot] == job.generated
                if ended and shrinking:
                    continue
                emitted = max(done)
                if emitted == 0:
                    read += width
                else:
                    decoding += 1
                    columns += width + emitted
                cells[slot] = None if ended else job.request
            for slot, job in enumerate(batch):
                done[slot] += done[slot] < job.generated
            self.forwards.append((read, decoding, columns))
            self.cells.append(cells)
            self.held.append(read + columns)

    def continuous(self, queue, slots):
        waiting, seats = list(queue), [None] * slots  # [job, tokens so far]
        self.padding[1] = sum(job.prompt for job in queue)
        while waiting or any(seats):
            read = decoding = columns = 0
            for slot, seat in enumerate(seats):
                if seat is None and waiting:
                    seats[slot] = [waiting.pop(0), 0]
                    read += seats[slot][0].prompt
                elif seat:
                    decoding += 1
                    columns += seat[0].prompt + seat[1]
            self.cells.append({slot: seat[0].request for slot, seat in enumerate(seats) if seat})
            self.forwards.append((read, decoding, columns))
            self.held.append(read + columns)
            for slot, seat in enumerate(seats):
                if seat:
                    seat[1] += 1
                    if seat[1] == seat[0].generated:
                        seats[slot] = None

    @property
    def idle(self):
        """Of all cells, those without a token."""
        slots = [request for cells in self.cells for request in cells.values()]
        return Waste(slots.count(None), len(slots))


def simulated_static(jobs, batch_size, *, shrinking=False):
    simulated = Simulated()
    for at in range(0, len(jobs), batch_size):
        simulated.static(jobs[at : at + batch_size], shrinking=shrinking)
    return simulated


def simulated_continuous(jobs, slots):
    simulated = Simulated()
    simulated.continuous(jobs, slots)
    return simulated


def simulated(jobs, slots):
    """Every kind of schedule beside its simulation, over every order."""
    for order, key in KEYS.items():
        queue = sorted(jobs, key=key)
        for shrinking in (False, True):
            yield (
                static(jobs, batch_size=slots, order=order, shrinking=shrinking),
                simulated_static(queue, slots, shrinking=shrinking),
            )
        yield continuous(jobs, slots=slots, order=order), simulated_continuous(queue, slots)
    yield serial(jobs), simulated_static(jobs, 1)


def forwards_of(schedule):
    return [
        (stretch.prompt_tokens, stretch.decoding, stretch.columns + done * stretch.decoding)
        for stretch in schedule.stretches
        for done in range(stretch.steps)
    ]


def cells_of(schedule):
    cells = [{} for _ in range(schedule.steps)]
    for stay in schedule.stays:
        for step in range(stay.start, stay.left):
            assert stay.slot not in cells[step], "a slot holds two requests"
            cells[step][stay.slot] = stay.request if step < stay.end else None
    return cells


# Against the simulation


@THOUSAND
@given(JOBS, st.integers(1, 5))
def test_steps_slots_and_waste_are_those_of_a_simulation_of_every_token(jobs, slots):
    for schedule, truth in simulated(jobs, slots):
        assert schedule.steps == len(truth.forwards)
        assert forwards_of(schedule) == truth.forwards
        assert cells_of(schedule) == truth.cells
        assert schedule.padding == tuple(truth.padding)
        nothing_decoded = all(job.generated == 1 for job in jobs)
        assert schedule.idle == (Waste(0, 0) if nothing_decoded else truth.idle)
        assert schedule.peak_columns == max(truth.held)


@THOUSAND
@given(JOBS, st.integers(1, 5))
def test_work_is_conserved(jobs, slots):
    """Each request's tokens exactly once, one a step, in one slot."""
    tokens = [(job.request, token) for job in jobs for token in range(job.generated)]
    for schedule, _ in simulated(jobs, slots):
        assert sorted(stay.request for stay in schedule.stays) == list(range(len(jobs)))
        emitted = [
            (stay.request, step - stay.start)
            for stay in schedule.stays
            for step in range(stay.start, stay.end)
        ]
        assert sorted(emitted) == tokens
        assert schedule.generated == len(tokens)


@THOUSAND
@given(JOBS, st.integers(1, 5))
def test_continuous_never_needs_more_steps_than_static_in_the_same_order(jobs, slots):
    for order in KEYS:
        batches = static(jobs, batch_size=slots, order=order)
        assert continuous(jobs, slots=slots, order=order).steps <= batches.steps


def test_in_another_order_continuous_can_need_more_steps_than_static():
    """So the order belongs to the claim: 1, 2, 1, 2 tokens in 2 slots, against 2, 2 and 1, 1."""
    jobs = made((1, 0, new) for new in (1, 2, 1, 2))
    assert continuous(jobs, slots=2).steps == 4
    assert static(jobs, batch_size=2, order="by generated length").steps == 3


@THOUSAND
@given(JOBS, st.integers(1, 5))
def test_no_schedule_is_shorter_than_its_longest_request_or_its_work(jobs, slots):
    longest = max(job.generated for job in jobs)
    total = sum(job.generated for job in jobs)
    for schedule, _ in simulated(jobs, slots):
        assert schedule.steps >= max(longest, -(-total // schedule.slots))


@THOUSAND
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4))
def test_no_order_of_static_batches_is_shorter_than_by_generated_length(lengths, batch_size):
    """Every order there is."""
    best = min(
        sum(max(order[at : at + batch_size]) for at in range(0, len(order), batch_size))
        for order in set(permutations(lengths))
    )
    jobs = made((1, 0, new) for new in lengths)
    by_length = static(jobs, batch_size=batch_size, order="by generated length")
    assert by_length.steps == best


@THOUSAND
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_for_equal_lengths_all_schedules_coincide(prompt, new, many, slots):
    jobs = made([(prompt, 0, new)] * many)
    first, *others = [
        schedule
        for schedule, _ in simulated(jobs, slots)
        if schedule.name != "serial" or slots == 1
    ]
    assert first.steps == -(-many // slots) * new
    assert {schedule.stays for schedule in others} == {first.stays}
    assert {schedule.stretches for schedule in others} == {first.stretches}
    assert {(schedule.padding, schedule.idle) for schedule in others} == {
        (first.padding, first.idle)
    }


# By hand: 15, 10, 20 and 12 tokens after prompts of 10, 30, 5 and 20


def test_static_batches_of_two_take_15_and_20_steps():
    schedule = static(TUTORIAL, batch_size=2)
    assert schedule.steps == 15 + 20
    assert schedule.stays == (
        Stay(slot=0, request=0, start=0, end=15, left=15),
        Stay(slot=1, request=1, start=0, end=10, left=15),
        Stay(slot=0, request=2, start=15, end=35, left=35),
        Stay(slot=1, request=3, start=15, end=27, left=35),
    )
    assert schedule.idle == Waste(5 + 8, 2 * 35)
    assert schedule.padding == Waste((30 - 10) + (20 - 5), 2 * 30 + 2 * 20)
    assert schedule.peak_columns == 2 * (30 + 14)


def test_continuous_with_two_slots_takes_30_steps():
    """Slot 1 is free after 10 steps and takes request 2, until 30; slot 0 after 15, until 27."""
    schedule = continuous(TUTORIAL, slots=2)
    assert schedule.steps == 30
    assert schedule.stays == (
        Stay(slot=0, request=0, start=0, end=15, left=15),
        Stay(slot=1, request=1, start=0, end=10, left=10),
        Stay(slot=1, request=2, start=10, end=30, left=30),
        Stay(slot=0, request=3, start=15, end=27, left=27),
    )
    assert schedule.stretches == (
        Stretch(steps=1, prompt_tokens=10 + 30, decoding=0, columns=0),
        Stretch(steps=9, prompt_tokens=0, decoding=2, columns=11 + 31),
        Stretch(steps=1, prompt_tokens=5, decoding=1, columns=20),
        Stretch(steps=4, prompt_tokens=0, decoding=2, columns=21 + 6),
        Stretch(steps=1, prompt_tokens=20, decoding=1, columns=10),
        Stretch(steps=11, prompt_tokens=0, decoding=2, columns=11 + 21),
        Stretch(steps=3, prompt_tokens=0, decoding=1, columns=22),
    )
    assert (schedule.padding, schedule.idle) == (Waste(0, 65), Waste(0, 57))


def test_by_generated_length_batches_take_20_and_12_steps():
    schedule = static(TUTORIAL, batch_size=2, order="by generated length")
    assert schedule.order == (2, 0, 3, 1)
    assert schedule.steps == 20 + 12
    assert schedule.idle == Waste(5 + 2, 2 * 32)


def test_by_prompt_length_batches_take_12_and_20_steps():
    schedule = static(TUTORIAL, batch_size=2, order="by prompt length")
    assert schedule.order == (1, 3, 0, 2)
    assert schedule.steps == 12 + 20
    assert schedule.padding == Waste(10 + 5, 2 * 30 + 2 * 10)


def test_by_budget_is_by_what_could_be_known():
    jobs = made([(1, 9, 1), (1, 0, 5), (1, 0, 4), (1, 0, 3)])
    assert static(jobs, batch_size=2, order="by budget").order == (0, 1, 2, 3)
    assert static(jobs, batch_size=2, order="by generated length").order == (1, 2, 3, 0)


def test_shrinking_takes_the_same_steps_with_fewer_rows():
    schedule = static(TUTORIAL, batch_size=2, shrinking=True)
    assert (schedule.steps, schedule.idle) == (35, Waste(0, 57))
    assert [stretch.decoding for stretch in schedule.stretches] == [0, 2, 1, 0, 2, 1]


def test_one_after_another_takes_57_steps():
    schedule = serial(TUTORIAL)
    assert (schedule.name, schedule.slots, schedule.steps) == ("serial", 1, 57)


def test_a_batch_may_have_more_slots_than_there_are_requests():
    for schedule in (static(TUTORIAL, batch_size=9), continuous(TUTORIAL, slots=9)):
        assert (schedule.slots, schedule.steps) == (4, 20)


def test_a_schedule_grows_with_its_requests_and_not_with_their_tokens():
    """An event is a request that starts or ends."""
    jobs = made((100, 0, 2048 - request) for request in range(64))
    for schedule, limit in (
        (static(jobs, batch_size=8), 64 + 8),
        (continuous(jobs, slots=8), 2 * 64),
        (serial(jobs), 2 * 64),
    ):
        assert len(schedule.stretches) <= limit


# From a run


def test_the_settings_of_a_run_give_its_steps():
    run = make_run([[(3, 4), (5, 10)], [(12, 10), (2, 3)], [(7, 1)]])
    schedule = static(jobs_of(run), batch_size=2)
    of_the_run = []
    for step in run.steps:
        rows, width = len(step.tokens), run.batches[step.batch].padded_length
        columns = rows * (width + step.forward - 1)
        of_the_run.append((columns, 0, 0) if step.forward == 1 else (0, rows, columns))
    assert forwards_of(schedule) == of_the_run
    assert (schedule.steps, schedule.idle) == (21, Waste(6 + 7, 41))


def test_jobs_of_a_run():
    assert jobs_of(WORKED) == (Job(0, 3, 4, 4), Job(1, 5, 10, 10), Job(2, 12, 10, 10))


@pytest.mark.parametrize("status", ["running", "stopped", "error"])
def test_a_run_that_is_not_done_is_refused(status):
    with pytest.raises(RequestError, match="once all rows of the run have ended"):
        jobs_of(cut(WORKED, 3, status))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda: static([], batch_size=2), "There are no requests"),
        (lambda: continuous([], slots=2), "There are no requests"),
        (lambda: static(TUTORIAL, batch_size=0), "at least 1 slot"),
        (lambda: continuous(TUTORIAL, slots=0), "at least 1 slot"),
        (lambda: static(TUTORIAL, batch_size=2, order="by name"), "no order 'by name'"),
    ],
)
def test_what_can_not_be_scheduled_is_refused_in_a_sentence(asked, sentence):
    with pytest.raises(RequestError, match=sentence):
        asked()

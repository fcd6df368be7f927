# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulated machine: exact times of handwritten jobs, and invariants of any program."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spyre_mlir.timeline.events import Job, OperandLoad, Repeat, Shares, lower, simulate, upper

#: Waits 10 for x, streams it for 100, computes 30 and stores y for 50, visible 10 later.
STREAMING = Job(0, (OperandLoad(("x",), 100),), compute=30, target="y", store=50, access=10)


def times(*jobs: Job) -> list[tuple[int, int, int]]:
    """Return for each job the begin of its loads, and begin and end of its body."""
    return [(each.load_begin, each.body_begin, each.ring_end) for each in simulate(jobs).events]


def test_one_job_takes_what_the_cost_model_says():
    """Waits, then compute and memory overlapped, hypot(30, 155) = 157, then the ring."""
    job = replace(STREAMING, ring=7, turnaround=5)
    (event,) = simulate([job]).events
    assert (event.stream_begin, event.body_begin, event.body_end, event.ring_end) == (10, 10, 167, 174)
    assert simulate([job]).total == 184 == job.alone
    assert simulate([replace(job, compute=300)]).total == 10 + 337 + 7 + 10


def test_two_loads_wait_one_after_the_other():
    """After their waits the loads stream together: 20 of waits, hypot(40, 130) of compute and streams."""
    job = Job(0, (OperandLoad(("x",), 100), OperandLoad(("w",), 30)), compute=40, access=10)
    assert times(job) == [(0, 20, 156)]


def test_what_depends_waits_until_it_is_visible():
    """The first body ends at 162, y is visible at 172; it is read for 20 more."""
    second = Job(1, (OperandLoad(("y",), 20),), compute=5, access=10)
    assert times(STREAMING, second) == [(0, 10, 162), (172, 182, 202)]


def test_the_next_load_hides_behind_computation():
    """The memory is free at 110, so w waits until 120 and has streamed at 180, while the first computes to 326."""
    first = Job(0, (OperandLoad(("x",), 100),), compute=300, access=10)
    second = Job(1, (OperandLoad(("w",), 60),), compute=40, access=10)
    assert times(first, second) == [(0, 10, 326), (110, 326, 366)]
    assert simulate([first, second]).events[1].loaded_early == 60


def test_a_load_without_room_waits_for_the_job_before():
    first = Job(0, (OperandLoad(("x",), 100),), compute=300, access=10)
    second = Job(1, (OperandLoad(("w",), 60, early=False),), compute=40, access=10)
    assert times(first, second) == [(0, 10, 326), (326, 336, 408)]


def test_nothing_begins_two_jobs_ahead():
    """The third job's load finds no room while the first one computes."""
    jobs = [
        Job(0, (OperandLoad(("x",), 10),), compute=300),
        Job(1, (), compute=20),
        Job(2, (OperandLoad(("w",), 60),), compute=5),
    ]
    assert times(*jobs)[2] == (300, 320, 360)


def test_a_load_that_is_ready_goes_before_one_that_is_not():
    """Of y and w, w arrives while y is still computed: the body begins a wait after y."""
    second = Job(1, (OperandLoad(("y",), 20), OperandLoad(("w",), 60)), compute=5, access=10)
    (_, event) = simulate([STREAMING, second]).events
    assert (event.load_begin, event.body_begin) == (160, 182)
    assert simulate([replace(STREAMING, compute=500), second]).events[1].loaded_early == 60


def test_stores_become_visible_one_after_the_other():
    jobs = [Job(number, compute=1, target=f"y{number}", access=10) for number in range(3)]
    assert [each.visible for each in simulate(jobs).events] == [11, 21, 31]


def test_time_goes_to_what_takes_it():
    """10 until the first byte, 152 of memory, 7 of ring, and 10 until the last store is visible."""
    assert simulate([replace(STREAMING, ring=7)]).shares == {0: Shares(152, 0, 7, 20, 1)}
    assert simulate([replace(STREAMING, compute=200)]).shares == {0: Shares(0, 250, 0, 20, 1)}


def test_a_loop_is_simulated_until_it_repeats():
    """65,535 iterations of 65,535 take a handful of events."""
    loop = Repeat(65535, (Repeat(65535, (STREAMING,)), replace(STREAMING, position=1)))
    run = simulate([loop])
    assert len(run.events) < 20 and run.shares[0].runs == 65535**2 and run.shares[1].runs == 65535
    assert lower([loop]) < run.total <= upper([loop])


def test_nothing_takes_no_time():
    assert simulate([Repeat(0, (STREAMING,))]).total == simulate([]).total == lower([]) == upper([]) == 0


# -- invariants of any program -----------------------------------------------------------------------------


def random_job(rng: random.Random) -> Job:
    def some(most: int) -> int:
        return rng.choice((0, rng.randint(0, most)))

    loads = tuple(
        OperandLoad((rng.randint(0, 3),), some(50), rng.random() < 0.6) for _ in range(rng.randint(0, 3))
    )
    target = rng.choice((None, 0, 1, 2, 3))
    stores = {} if target is None else {"target": target, "store": some(40), "turnaround": some(5)}
    return Job(rng.randint(0, 99), loads, compute=some(50), ring=some(20), access=rng.randint(0, 9), **stores)


def random_program(rng: random.Random, depth: int = 2) -> tuple[Job | Repeat, ...]:
    return tuple(
        Repeat(rng.randint(0, 12), random_program(rng, depth - 1))
        if depth and rng.random() < 0.4
        else random_job(rng)
        for _ in range(rng.randint(1, 4))
    )


def unrolled(program: Sequence[Job | Repeat]) -> list[Job]:
    jobs: list[Job] = []
    for node in program:
        jobs += [node] if isinstance(node, Job) else unrolled(node.body) * node.count
    return jobs


def faster(job: Job, rng: random.Random) -> Job:
    """With more bandwidth, or a faster array."""
    loads = tuple(replace(load, stream=rng.randint(0, load.stream)) for load in job.loads)
    return replace(job, loads=loads, store=rng.randint(0, job.store), compute=rng.randint(0, job.compute))


@pytest.mark.parametrize("seed", range(100))
def test_a_loop_is_its_iterations(seed):
    """The times and their parts are equal to the picosecond."""
    program = random_program(random.Random(seed))
    looped, flat = simulate(program), simulate(unrolled(program))
    assert (looped.total, looped.shares) == (flat.total, flat.shares)
    skipped = sum(skip.end - skip.begin for skip in looped.skips)
    assert skipped <= looped.total and len(looped.events) <= len(flat.events)


@pytest.mark.parametrize("seed", range(100))
def test_the_time_is_between_all_overlapped_and_all_serial(seed):
    """The time is at most the sum of the jobs; every picosecond is part of a category."""
    program = random_program(random.Random(seed))
    run, alone = simulate(program), sum(job.alone for job in unrolled(program))
    assert lower(program) <= run.total <= alone <= upper(program)
    assert sum(shares.total for shares in run.shares.values()) == run.total


@pytest.mark.parametrize("seed", range(100))
def test_less_work_is_never_slower(seed):
    """More bandwidth, a faster array, or one operation less is never slower."""
    rng = random.Random(seed)
    jobs = unrolled(random_program(rng))
    total = simulate(jobs).total
    assert simulate([faster(job, rng) for job in jobs]).total <= total
    for _ in range(min(5, len(jobs))):
        dropped = rng.randrange(len(jobs))
        assert simulate(jobs[:dropped] + jobs[dropped + 1 :]).total <= total


@pytest.mark.parametrize("seed", range(100))
def test_engines_do_one_thing_at_a_time(seed):
    """Loads, bodies, streams and waits of stores follow each other, and each job's parts are in order."""
    events = simulate(unrolled(random_program(random.Random(seed)))).events
    for one, other in itertools.pairwise(events):
        assert one.ring_end <= other.body_begin
        if one.job.target is not None and other.job.target is not None:
            assert one.visible <= other.visible - other.job.access
    loading = [event for event in events if event.job.loads]
    for one, other in itertools.pairwise(loading):
        assert max(one.load_end, one.memory_end) <= other.load_begin
    for event in events:
        assert event.body_begin <= event.body_end <= event.ring_end <= event.visible
        assert 0 <= event.loaded_early <= event.job.stream

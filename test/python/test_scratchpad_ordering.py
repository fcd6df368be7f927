# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of independent tasks: legal, and better by the planner's own measure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from buffer_sets import buffer, buffers

from spyre_mlir.passes.reorder_operations import Task, better_order
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.portfolio import PortfolioSolver

#: Four times a large buffer and a small one made of it, all large ones first; the last task reads the small ones.
BRANCHES = [*[Task()] * 4, *(Task((at,)) for at in range(4)), Task((4, 5, 6, 7))]
BRANCHED = buffers(
    *(buffer(100, at, 4 + at, name=f"large{at}") for at in range(4)),
    *(buffer(10, 4 + at, 8, name=f"small{at}") for at in range(4)),
)


def is_legal(order: Sequence[int], tasks: Sequence[Task]) -> bool:
    """Return whether an order has all tasks, each after its predecessors."""
    place = {task: at for at, task in enumerate(order)}
    return sorted(order) == list(range(len(tasks))) and all(
        place[before] < place[at] for at, task in enumerate(tasks) for before in task.after
    )


def ordered(
    some: Sequence[LifetimeBoundBuffer], tasks: Sequence[Task], order: Sequence[int]
) -> list[LifetimeBoundBuffer]:
    """Buffers with their uses where another order has them, step by step."""
    begin = [sum(task.steps for task in tasks[:at]) for at in range(len(tasks))]
    steps = [begin[at] + step for at in order for step in range(tasks[at].steps)]
    place = {step: at for at, step in enumerate(steps)}
    return [replace(each, uses=tuple(sorted(place[use] for use in each.uses))) for each in some]


def test_branches_one_behind_the_other():
    """140 bytes do for one branch at a time; as given, the four branches need 400."""
    order = better_order(BRANCHES, BRANCHED, MemorySpace(140, 1))
    assert order is not None and is_legal(order, BRANCHES)
    assert PortfolioSolver().plan(BRANCHED, MemorySpace(140, 1)).spilled
    assert not PortfolioSolver().plan(ordered(BRANCHED, BRANCHES, order), MemorySpace(140, 1)).spilled


def test_the_given_order_where_it_loses_nothing():
    """With room for all there is no better one."""
    assert better_order(BRANCHES, BRANCHED, MemorySpace(440, 1)) is None


def test_a_chain_has_one_order():
    """If each task needs the one before, the order does not change for any costs."""
    tasks = [Task((at - 1,) if at else ()) for at in range(9)]
    assert better_order(tasks, BRANCHED, MemorySpace(140, 1)) is None


def test_the_steps_of_a_loop_stay_together():
    """The first large buffer is made by a loop of three steps and read by the fifth task."""
    tasks = [Task(steps=3), *BRANCHES[1:]]
    some = buffers(
        buffer(100, 0, 2, 6, name="large0"),
        *(buffer(100, 2 + at, 6 + at, name=f"large{at}") for at in range(1, 4)),
        *(buffer(10, 6 + at, 10, name=f"small{at}") for at in range(4)),
    )
    order = better_order(tasks, some, MemorySpace(140, 1))
    assert order is not None and is_legal(order, tasks)
    assert not PortfolioSolver().plan(ordered(some, tasks, order), MemorySpace(140, 1)).spilled


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block):
    """Orders are legal and lose less; a plan without spills in the given order has no better one."""
    better = 0
    for seed in range(40 * block, 40 * block + 40):
        rng = random.Random(seed)
        count = rng.randint(3, 14)
        tasks = [
            Task(tuple(sorted(rng.sample(range(at), min(at, rng.randint(0, 2)))))) for at in range(count)
        ]
        readers = {at: [user for user, task in enumerate(tasks) if at in task.after] for at in range(count)}
        some = [
            LifetimeBoundBuffer(f"b{at}", rng.randint(1, 9), (at, *users))
            for at, users in readers.items()
            if users
        ]
        space = MemorySpace(rng.randint(5, 20), 1)
        before = PortfolioSolver().plan(some, space)
        order = better_order(tasks, some, space)
        if order is None:
            continue
        better += 1
        after = PortfolioSolver().plan(ordered(some, tasks, order), space)
        assert is_legal(order, tasks)
        assert before.spilled and after.bound < before.traffic
    assert better > 5

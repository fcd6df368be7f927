# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans around pinned addresses."""

from __future__ import annotations

import random

import pytest
from buffer_sets import buffer, buffers, conflicts, random_set

from spyre_mlir.analysis.plan_pins import PinnedSolver, conflict
from spyre_mlir.scratchpad.buffers import MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlan


def random_pins(seed: int) -> tuple[list, MemorySpace, dict[str, int]]:
    """A random set, and addresses inside of the memory for some of its buffers."""
    rng = random.Random(seed)
    some, space = random_set(seed)
    pins = {}
    for each in some:
        room = space.capacity - space.bytes_of(each)
        if room >= 0 and rng.random() < 0.4:
            pins[each.name] = rng.randrange(room // space.alignment + 1) * space.alignment
    return some, space, pins


def as_plan(pins: dict[str, int]) -> MemoryPlan:
    return MemoryPlan("by hand", pins, {}, 0, 0, 0, 0)


def found_conflict(some: list, space: MemorySpace, pins: dict[str, int]) -> bool:
    instance = Instance.of(some, space)
    fixed = {at: pins[each.name] for at, each in enumerate(instance.buffers) if each.name in pins}
    return conflict(instance, fixed) is not None


@pytest.mark.parametrize("seed", range(150))
def test_conflicts_are_those_of_the_definition(seed: int):
    """Two live buffers conflict if they share bytes and are not a pair in place."""
    some, space, pins = random_pins(seed)
    assert found_conflict(some, space, pins) == any(conflicts(some, space, as_plan(pins)))


@pytest.mark.parametrize("seed", range(150))
def test_pins_hold_and_the_plan_is_right(seed: int):
    """For all valid pins: the plan is valid, with these addresses."""
    some, space, pins = random_pins(seed)
    while found_conflict(some, space, pins):
        pins.popitem()
    plan = PinnedSolver(pinned=pins).plan(some, space)
    check_plan(some, space, plan)
    assert {name: plan.addresses[name] for name in pins} == pins


def test_others_go_around():
    """5 bytes pinned in the middle of 10: only buffers that fit around them are placed."""
    some = buffers(buffer(5, 0, 1), buffer(2, 0, 1), buffer(3, 0, 1), buffer(3, 0, 1))
    plan = PinnedSolver(pinned={"b0": 3}).plan(some, MemorySpace(10, 1))
    assert plan.addresses["b0"] == 3 and sorted(plan.addresses.values()) == [0, 3, 8]


def test_a_pinned_buffer_need_not_pay():
    """A pinned buffer has its address even if this saves no traffic."""
    some = buffers(buffer(4, 0, 1, spilled_traffic=0))
    assert PinnedSolver().plan(some, MemorySpace(8, 1)).addresses == {}
    assert PinnedSolver(pinned={"b0": 4}).plan(some, MemorySpace(8, 1)).addresses == {"b0": 4}

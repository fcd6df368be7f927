# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The check of plans: right ones pass, and each rule is refused when broken."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from buffer_sets import buffer, conflicts, random_set

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import GreedyLayoutSolver
from spyre_mlir.scratchpad.solver import MemoryPlan

SPACE = MemorySpace(512, 128)
PARENT = buffer(256, 0, 1, name="parent")
CHILD = buffer(128, 1, 2, name="child", parents=["parent"])
STRANGER = buffer(100, 1, 3, name="stranger")
SOME = [PARENT, CHILD, STRANGER]
RIGHT = MemoryPlan(
    "hand", {"parent": 0, "child": 0, "stranger": 256}, {}, traffic=0, bound=0, peak=384, load=384
)


def refused(plan: MemoryPlan, message: str, some: list[LifetimeBoundBuffer] = SOME) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        check_plan(some, SPACE, plan)


def moved(**addresses: int) -> MemoryPlan:
    return replace(RIGHT, addresses={**RIGHT.addresses, **addresses})


def test_a_right_plan():
    """A child is in place, and a stranger above the parent, whose bytes are still in use at operation 1."""
    check_plan(SOME, SPACE, RIGHT)


def test_an_overlap():
    """The stranger is next to the child but on the parent: both are named with their bytes."""
    refused(
        moved(stranger=128),
        "Buffers 'parent' (bytes 0 to 256, operations 0 to 1) and 'stranger' (bytes 128 to",
    )
    refused(moved(stranger=0), "overlap.")


def test_a_child_at_another_base():
    """In the upper half of its parent it shares bytes that it may not share."""
    refused(moved(child=128), "Buffers 'parent'")


@pytest.mark.parametrize(
    "child",
    [
        replace(CHILD, in_place_parents=()),
        replace(CHILD, uses=(0, 1, 2)),
        replace(CHILD, copies=2),
        replace(CHILD, size=300),
    ],
    ids=["no parent", "before the last use", "two copies", "larger"],
)
def test_no_legal_hand_over(child):
    """An equal base is not enough for a pair."""
    some = [PARENT, child]
    plan = MemoryPlan("hand", {"parent": 0, "child": 0}, {}, traffic=0, bound=0, peak=384, load=0)
    refused(plan, "overlap.", some)


def test_two_children_of_one_parent():
    """Each of them may take the place, not both."""
    twin = replace(CHILD, name="twin")
    plan = MemoryPlan("hand", {"parent": 0, "child": 0, "twin": 0}, {}, traffic=0, bound=0, peak=256, load=0)
    refused(plan, "Buffers 'child'", [PARENT, CHILD, twin])


def test_the_memory():
    """Addresses are aligned, from 0 on and below the capacity."""
    refused(moved(stranger=300), "not aligned to 128 bytes")
    refused(moved(stranger=-128), "'stranger' (bytes -128 to 0, operations 1 to 3) is not inside the memory")
    refused(moved(stranger=512), "not inside the memory of 512 bytes")


def test_every_buffer_has_an_address_or_a_reason():
    """Exactly one of both, and no unknown buffers."""
    reason = {"stranger": "it lost"}
    refused(replace(RIGHT, spilled=reason), "'stranger' has an address and a reason")
    refused(replace(RIGHT, addresses={"parent": 0, "child": 0}), "'stranger' has neither")
    refused(
        replace(RIGHT, addresses={"parent": 0, "child": 0}, spilled={"stranger": ""}),
        "'stranger' has neither",
    )
    refused(moved(nobody=0), "'nobody', which is not a buffer")


def test_the_numbers():
    """Traffic and peak are computed from the addresses; the bounds are below them."""
    refused(replace(RIGHT, traffic=1), "claims 1 bytes of traffic; its buffers move 0")
    spilled = replace(
        RIGHT, addresses={"parent": 0, "child": 0}, spilled={"stranger": "it lost"}, peak=256, load=0
    )
    refused(spilled, "claims 0 bytes of traffic; its buffers move 200")
    check_plan(SOME, SPACE, replace(spilled, traffic=200))
    refused(replace(spilled, traffic=200, bound=201), "201 bytes of traffic are the least")
    refused(replace(RIGHT, peak=512), "a peak of 512 bytes; its highest buffer ends at 384")
    refused(replace(RIGHT, load=385), "a load of 385 bytes, more than its peak of 384")


def test_moved_buffers_in_random_plans():
    """One buffer has a random address: the plan is refused exactly if the definition is violated."""
    wrong = 0
    for seed in range(1000):
        some, space = random_set(seed)
        plan = GreedyLayoutSolver().plan(some, space)
        if not plan.addresses:
            continue
        rng = random.Random(seed)
        name = rng.choice(list(plan.addresses))
        size = next(space.bytes_of(each) for each in some if each.name == name)
        units = (space.capacity - size) // space.alignment
        addresses = {**plan.addresses, name: rng.randint(0, units) * space.alignment}
        ends = [addresses[each.name] + space.bytes_of(each) for each in some if each.name in addresses]
        plan = replace(plan, addresses=addresses, peak=max(ends), load=0)
        if list(conflicts(some, space, plan)):
            wrong += 1
            with pytest.raises(PlanError, match="overlap"):
                check_plan(some, space, plan)
        else:
            check_plan(some, space, plan)
    assert 200 < wrong < 800

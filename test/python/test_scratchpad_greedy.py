# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement in the order of time."""

from __future__ import annotations

import pytest
from buffer_sets import buffer, buffers, conflicts, pattern, random_set

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import GreedyLayoutSolver


def planned(some: list[LifetimeBoundBuffer], capacity: int, alignment: int = 1) -> list[int | None]:
    """Addresses in the order of the buffers, None where spilled."""
    plan = GreedyLayoutSolver().plan(some, MemorySpace(capacity, alignment))
    return [plan.addresses.get(each.name) for each in some]


def test_one_above_the_other():
    """Three begin together and fit exactly; of 7, 4 and 3 bytes in 10 the second does not."""
    assert planned(buffers(buffer(3, 0, 1), buffer(3, 0, 1), buffer(4, 0, 1)), 10) == [0, 3, 6]
    assert planned(buffers(buffer(7, 0, 1), buffer(4, 0, 1), buffer(3, 0, 1)), 10) == [0, None, 7]


def test_the_dead_are_freed_first():
    """Address 0 is free again at operation 2."""
    assert planned(buffers(buffer(10, 0, 1), buffer(3, 2)), 10) == [0, 0]


def test_above_the_high_water_before_gaps():
    """The last of four takes the gap only if there is no capacity above; with 12 bytes it is placed above."""
    some = buffers(buffer(3, 0, 3), buffer(3, 1, 2), buffer(3, 2, 3), buffer(3, 3))
    assert planned(some, 10) == [0, 3, 6, 3]
    assert planned(some, 12) == [0, 3, 6, 9]


def test_address_0_before_the_high_water():
    """The bytes of the first buffer, once dead, are used before the bytes above."""
    assert planned(buffers(buffer(3, 0, 1), buffer(3, 0, 2), buffer(3, 2)), 100) == [0, 3, 0]


def test_sizes_are_rounded_to_the_alignment():
    """200 bytes take 256 of 512."""
    some = buffers(buffer(200, 0, 3), buffer(100, 1, 2), buffer(100, 2, 3), buffer(100, 3))
    assert planned(some, 512, 128) == [0, 256, 384, 256]


def test_the_place_of_the_parent_comes_first():
    """Before address 0, which is free; of two children only one gets it."""
    wall, parent = buffer(8, 0, 1, name="w"), buffer(8, 1, 2, name="p")
    children = [buffer(8, 2, 3, name=name, parents=["p"]) for name in "cd"]
    assert planned([wall, parent, *children], 100) == [0, 8, 8, 0]


def test_a_chain_in_place():
    """Three of 100 bytes in 150."""
    links = [("a", 0, []), ("b", 1, ["a"]), ("c", 2, ["b"])]
    three = [buffer(100, at, at + 1, name=name, parents=parents) for name, at, parents in links]
    assert planned(three, 150) == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "spilled"),
    [
        ("simple_fragmentation", ["C"]),
        ("staircase", ["A6", "B6", "A7", "B7"]),
        ("downward_staircase", ["B4"]),
        ("simple_eviction", ["B"]),
        ("eviction_reallocation", ["B"]),
        ("gqattention", []),
        ("moe_mlp", []),
    ],
)
def test_published_patterns(name, spilled):
    """The order of time fails the first five."""
    some, space = pattern(name)
    plan = GreedyLayoutSolver().plan(some, space)
    check_plan(some, space, plan)
    assert list(plan.spilled) == spilled


def test_attention_needs_the_place_of_the_parents():
    """Without in-place reuse one of the buffers of half the memory stays outside."""
    some, space = pattern("gqattention")
    apart = [buffer(each.size, *each.uses, name=each.name) for each in some]
    assert list(GreedyLayoutSolver().plan(apart, space).spilled) == ["numerators"]


def test_random_sets():
    """No two buffers overlap by the definition, and the check of plans agrees."""
    for seed in range(400):
        some, space = random_set(seed, most=25)
        plan = GreedyLayoutSolver().plan(some, space)
        assert not list(conflicts(some, space, plan))
        check_plan(some, space, plan)

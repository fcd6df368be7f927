# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engine of the heuristics and first fit, best fit and largest first on it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from buffer_sets import buffer, buffers, chain, conflicts, pattern, random_lives, random_set

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
    Fitting,
    LargestFirstSolver,
    fit,
    lowest,
    outermost,
    tightest,
)
from spyre_mlir.scratchpad.instance import Instance

SOLVERS = (FirstFitLayoutSolver, BestFitLayoutSolver, LargestFirstSolver)
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)


def planned(solver, some, capacity: int, alignment: int = 1) -> list[int | None]:
    """Addresses in the order of the buffers, None where spilled."""
    plan = solver().plan(some, MemorySpace(capacity, alignment))
    return [plan.addresses.get(each.name) for each in some]


@every_solver
def test_three_that_fit_exactly(solver):
    """3, 3 and 4 bytes in 10: all are placed, without a hole."""
    addresses = planned(solver, buffers(buffer(3, 0, 1), buffer(3, 0, 1), buffer(4, 0, 1)), 10)
    assert addresses == ([4, 7, 0] if solver is LargestFirstSolver else [0, 3, 6])


@every_solver
def test_one_of_three_is_left_out(solver):
    """7, 4 and 3 bytes in 10: the second does not fit next to the first, the third does."""
    assert planned(solver, buffers(buffer(7, 0, 1), buffer(4, 0, 1), buffer(3, 0, 1)), 10) == [0, None, 7]


@every_solver
def test_dead_bytes_are_free(solver):
    """10 bytes at operations 0 and 1, 3 at operation 2."""
    assert planned(solver, buffers(buffer(10, 0, 1), buffer(3, 2)), 10) == [0, 0]


@every_solver
def test_all_four_find_a_place_over_their_whole_lives(solver):
    """Three buffers of 3 bytes, and one that is live throughout, in 10 bytes."""
    some = buffers(buffer(3, 0, 3), buffer(3, 1, 2), buffer(3, 2, 3), buffer(3, 3))
    assert planned(solver, some, 10) == ([0, 3, 6, 3] if solver is LargestFirstSolver else [6, 0, 3, 0])


@every_solver
def test_sizes_are_rounded_to_the_alignment(solver):
    """200 bytes take 256; only the orders by lifetime put the long one on top."""
    some = buffers(buffer(200, 0, 3), buffer(100, 1, 2), buffer(100, 2, 3), buffer(100, 3))
    expected = [0, 256, 384, 256] if solver is LargestFirstSolver else [256, 0, 128, 0]
    assert planned(solver, some, 512, 128) == expected


@every_solver
def test_a_child_takes_the_place_of_its_parent(solver):
    """Children of equal and smaller size, and a chain of three, of which only one fits at a time."""
    same = [buffer(512, 0, 3, name="p"), buffer(512, 3, name="c", parents=["p"])]
    assert planned(solver, same, 513) == [0, 0]
    smaller = [buffer(20, 0, 1, 2, 3, 4, name="p"), buffer(15, 4, 8, name="c", parents=["p"])]
    assert planned(solver, smaller, 20) == [0, 0]
    links = [("a", 0, []), ("b", 1, ["a"]), ("c", 2, ["b"])]
    three = [buffer(100, at, at + 1, name=name, parents=parents) for name, at, parents in links]
    assert planned(solver, three, 150) == [0, 0, 0]


@every_solver
def test_no_stranger_beside_the_child_at_the_hand_over(solver):
    """At operation 1 the parent's 40 bytes are in use, although its child has only 5 of them."""
    parent, child = buffer(40, 0, 1, name="p"), buffer(5, 1, 3, name="c", parents=["p"])
    stranger = buffer(20, 1, 2, name="s")
    addresses = planned(solver, [parent, child, stranger], 120)
    assert addresses[0] is not None and addresses[2] is not None
    assert addresses[2] >= addresses[0] + 40 or addresses[2] + 20 <= addresses[0]
    assert planned(solver, [parent, child, stranger], 59).count(None) == 1


@every_solver
def test_a_child_that_is_too_large_is_a_stranger(solver):
    """A child whose parent is read later is a stranger, too: in 512 bytes one of the two is left out."""
    larger = [buffer(256, 0, 1, name="p"), buffer(384, 1, 2, name="c", parents=["p"])]
    read_later = [buffer(512, 0, 2, name="p"), buffer(512, 1, 2, name="c", parents=["p"])]
    assert planned(solver, larger, 512).count(None) == 1
    assert planned(solver, read_later, 512).count(None) == 1


def test_copies_stay_together():
    """Two copies of 3 bytes are one block of 6 and larger than 5: largest first puts them at 0."""
    some = [buffer(5, 0, 1, name="one"), buffer(3, 0, 1, name="two", copies=2)]
    assert planned(LargestFirstSolver, some, 11) == [6, 0]
    assert planned(LargestFirstSolver, some, 8) == [None, 0]


def test_largest_first_without_need():
    """If all fit next to each other the largest is at 0 too, and equal sizes keep their order."""
    some = buffers(buffer(16, 0, 1), buffer(32, 0, 1), buffer(16, 0, 1))
    assert planned(LargestFirstSolver, some, 1000) == [32, 0, 48]


def test_best_fit_takes_the_tightest_gap():
    """Gaps of 5 at address 2 and of 3 at 9: for 3 bytes first fit uses the former, best fit the latter."""
    walls = [buffer(2, 0, 9), buffer(5, 5), buffer(2, 0, 9), buffer(3, 5), buffer(2, 0, 9)]
    instance = Instance.of(buffers(*walls, buffer(3, 7)), MemorySpace(14, 1))
    index = {each.name: at for at, each in enumerate(instance.buffers)}
    order = [index[f"b{at}"] for at in range(6)]
    assert fit(instance, order, lowest)[index["b5"]] == 2
    assert fit(instance, order, tightest)[index["b5"]] == 9


@pytest.mark.parametrize("name", ["simple_fragmentation", "staircase", "gqattention", "moe_mlp"])
@every_solver
def test_published_patterns_without_eviction(solver, name):
    """These orders place everything, where greedy fails the first two."""
    some, space = pattern(name)
    assert solver().plan(some, space).spilled == {}


def test_largest_first_fails_a_pattern():
    """Largest-first is not better in general: the downward staircase fits by lifetime and not by size."""
    some, space = pattern("downward_staircase")
    assert list(LargestFirstSolver().plan(some, space).spilled) == ["Z"]
    assert FirstFitLayoutSolver().plan(some, space).spilled == {}
    assert BestFitLayoutSolver().plan(some, space).spilled == {}


@pytest.mark.parametrize("name", ["simple_eviction", "eviction_reallocation"])
@every_solver
def test_published_patterns_with_eviction(solver, name):
    """No plan with one address per buffer fits: the load is above the capacity."""
    some, space = pattern(name)
    plan = solver().plan(some, space)
    assert Instance.of(some, space).load > space.capacity
    assert plan.spilled and set(plan.spilled.values()) == {"it lost the competition for the memory"}


@every_solver
def test_random_sets(solver):
    """No two buffers overlap by the definition, and the check of plans agrees."""
    for seed in range(400):
        some, space = random_set(seed, most=25)
        plan = solver().plan(some, space)
        assert not list(conflicts(some, space, plan))
        check_plan(some, space, plan)


@pytest.mark.parametrize("policy", [lowest, tightest, outermost])
def test_nothing_that_is_left_out_would_fit(policy):
    """A buffer without an address overlaps some other one at every address."""
    for seed in range(200):
        some, space = random_set(seed)
        instance = Instance.of(some, space)
        rng = random.Random(seed)
        addresses = fit(instance, rng.sample(range(len(instance)), len(instance)), policy)
        for at in set(range(len(instance))) - set(addresses):
            for address in range(0, space.capacity - int(instance.sizes[at]) + 1, space.alignment):
                assert any(_meet(instance, at, address, each, addresses[each]) for each in addresses)


def _meet(instance: Instance, one: int, begin: int, other: int, start: int) -> bool:
    in_time = instance.starts[one] <= instance.ends[other] and instance.starts[other] <= instance.ends[one]
    in_space = begin < start + instance.sizes[other] and start < begin + instance.sizes[one]
    partners = other in instance.parents[one] or one in instance.parents[other]
    return bool(in_time and in_space) and not (partners and begin == start)


@pytest.mark.parametrize("policy", [lowest, tightest, outermost])
def test_arrays_and_lists_agree(monkeypatch, policy: Callable):
    """The engine has two ways to look up neighbours; both give the same addresses."""
    for seed in range(200):
        some, space = random_set(seed, most=40)
        instance = Instance.of(some, space)
        order = random.Random(seed).sample(range(len(instance)), len(instance))
        monkeypatch.setattr("spyre_mlir.scratchpad.fitting._FEW_NEIGHBOURS", 10**9)
        lists = fit(instance, order, policy)
        monkeypatch.setattr("spyre_mlir.scratchpad.fitting._FEW_NEIGHBOURS", -1)
        assert fit(instance, order, policy) == lists


def test_kept_buffers_stay():
    """An order may go on from addresses that are there already."""
    some, space = random_set(7, most=40)
    fitting = Fitting(Instance.of(some, space))
    order = list(range(len(some)))
    found = fitting.fit(order)
    kept = dict(itertools.islice(found.items(), len(found) // 2))
    assert fitting.fit([at for at in order if at not in kept], placed=kept) == found


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_chains_at_load(count):
    """Largest first packs a chain of operators without a hole at its highest operation."""
    plan = LargestFirstSolver().plan(chain(count), MemorySpace(1 << 40))
    assert len(plan.addresses) == count and plan.peak == plan.load


def test_ten_thousand_long_lives():
    """Thousands are live at a time: all find a place within 5 % of the load (measured: 1 %)."""
    some: list[LifetimeBoundBuffer] = random_lives(10_000)
    plan = LargestFirstSolver().plan(some, MemorySpace(1 << 40, 1))
    check_plan(some, MemorySpace(1 << 40, 1), plan)
    assert len(plan.addresses) == 10_000 and plan.peak < 1.05 * plan.load

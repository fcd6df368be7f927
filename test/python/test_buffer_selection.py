# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selection of buffers to keep when the load is too high, without addresses."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from buffer_sets import buffer, buffers, chain, random_lives, random_set

from spyre_mlir.optimization.bipartite import Child, covers, most_shared
from spyre_mlir.scratchpad.buffer_selection import Group, Rows, multipliers, select
from spyre_mlir.scratchpad.buffers import MemorySpace
from spyre_mlir.scratchpad.instance import Instance


def instance(some, space: MemorySpace) -> Instance:
    """Only the buffers that fit alone and save traffic, as solvers see them."""
    everything = Instance.of(some, space)
    eligible = np.flatnonzero((everything.sizes <= space.capacity) & (everything.savings > 0))
    return everything.subset(eligible.tolist())


def shared(found: Instance, kept: tuple[int, ...], op: int) -> int:
    """Bytes that pairs can share at an op: all ways to give each child a parent or none."""
    children = [at for at in kept if found.starts[at] == op]
    ways = [[None, *(parent for parent in found.parents[at] if parent in kept)] for at in children]
    best = 0
    for way in itertools.product(*ways):
        used = [parent for parent in way if parent is not None]
        if len(set(used)) == len(used):
            best = max(
                best, sum(int(found.sizes[c]) for c, p in zip(children, way, strict=True) if p is not None)
            )
    return best


def fits(found: Instance, kept: tuple[int, ...]) -> bool:
    for op in range(13):
        live = [at for at in kept if found.starts[at] <= op <= found.ends[at]]
        if sum(int(found.sizes[at]) for at in live) - shared(found, kept, op) > found.space.capacity:
            return False
    return True


def least_lost(found: Instance, groups=()) -> int:
    """Over all subsets."""
    losses = []
    for keep in itertools.product((False, True), repeat=len(found)):
        kept = tuple(at for at, stays in enumerate(keep) if stays)
        if fits(found, kept):
            extra = sum(group.extra for group in groups if not all(keep[at] for at in group.members))
            losses.append(sum(int(found.savings[at]) for at, stays in enumerate(keep) if not stays) + extra)
    return min(losses)


@pytest.mark.parametrize("block", range(10))
def test_it_loses_as_little_as_the_best_subset(block):
    """Random sets of up to 7 buffers, every subset of which is looked at."""
    for seed in range(30 * block, 30 * block + 30):
        found = instance(*random_set(seed, 7))
        selected = select(found, found.space.capacity)
        assert selected.selected is not None and selected.exact
        assert fits(found, tuple(np.flatnonzero(selected.selected).tolist()))
        assert selected.lost == int(found.savings[~selected.selected].sum()) == least_lost(found)


def test_a_group_loses_its_extra_once():
    """Random sets with a group of two: the extra counts if one of them is spilled, and not twice."""
    for seed in range(60):
        found = instance(*random_set(seed, 6))
        if len(found) >= 2:
            groups = [Group(tuple(random.Random(seed).sample(range(len(found)), 2)), 50 + seed)]
            assert select(found, found.space.capacity, groups=groups).lost == least_lost(found, groups)


def test_no_core_is_kept_whole():
    """Everything fits, but of a and b one has to go, and of b and c: a and c are cheaper than b."""
    some = buffers(
        *(
            buffer(10, 0, 1, name=name, spilled_traffic=cost)
            for name, cost in zip("abc", (5, 9, 3), strict=True)
        )
    )
    found = instance(some, MemorySpace(30, 1))
    selected = select(found, 30, conflicts=[(0, 1), (1, 2)])
    assert selected.selected is not None and selected.selected.tolist() == [False, True, False]
    assert select(found, 30, conflicts=[(1,)]).lost == 9


def test_nothing_is_found_at_the_loss_that_is_known():
    """With the optimum as ``upper`` there is nothing better, and that is proven."""
    found = Instance.of(chain(100), MemorySpace(1 << 40))
    capacity = found.load // 2
    lost = select(found, capacity).lost
    again = select(found, capacity, upper=lost)
    assert lost > 0 and again.selected is None and again.bound == lost


def test_the_bound_holds_without_search():
    """A single narrow sweep gives a bound that is not above the optimum, and a loss that is not below."""
    found = Instance.of(random_lives(60), MemorySpace(1 << 40, 1))
    capacity = found.load // 2
    optimum, quick = select(found, capacity), select(found, capacity, budget=0)
    assert optimum.exact and quick.bound <= optimum.lost <= quick.lost
    assert quick.bound >= optimum.lost * 0.9


@pytest.mark.parametrize("some", [chain(10_000), random_lives(10_000)], ids=["chain", "lives"])
def test_ten_thousand_buffers_have_a_bound(some):
    """The bound holds at 60 % of the load; the benchmark `packing` measures the time."""
    found = Instance.of(some, MemorySpace(1 << 40, 1))
    selected = select(found, int(found.load * 0.6), budget=0)
    assert 0 < selected.bound <= selected.lost


def test_multipliers_bound_every_choice():
    """Random covering problems: no choice that meets all needs costs less than the bound, and LP duality is met."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        matrix = rng.integers(0, 9, (3, 6))
        matrix[:, 0] = 9
        needs = rng.integers(1, 10, 3)
        matrix = np.minimum(matrix, needs[:, None])
        costs = rng.integers(1, 100, 6)
        rows, items = np.nonzero(matrix)
        found = multipliers(Rows(rows, items, matrix[rows, items], needs, costs))
        choices = np.array(list(itertools.product((0, 1), repeat=6)))
        least = min((choice @ costs) for choice in choices if (matrix @ choice >= needs).all())
        assert 0 < found.bound <= least * found.scale


def test_a_matching_shares_the_heaviest_children():
    """Two children of one parent share once; the heavier child yields if it has another parent."""
    assert most_shared([Child(2, 8, (0,)), Child(3, 5, (0,))]) == 8
    assert most_shared([Child(2, 8, (0, 1)), Child(3, 5, (0,))]) == 13


def test_covers_bound_what_is_shared():
    """In both covers every pair has at least the bytes of its child."""
    children = [Child(3, 8, (0, 1)), Child(4, 5, (0,)), Child(5, 7, (2,)), Child(6, 6, (2,))]
    for cover in covers(children):
        assert all(cover.get(c.item, 0) + cover.get(p, 0) >= c.size for c in children for p in c.parents)
    assert sum(covers(children)[0].values()) == 8 + 5 + 7

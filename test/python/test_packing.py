"""Exact packing against exhaustive search, and on instances that are packed without slack."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from buffer_sets import buffer, buffers
from packings import FOLDER, HARD_CAPACITY, guillotine, hard

from spyre_mlir.scratchpad import packing
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.exact import ExactSolver
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.packing import Packing, pack


def instance(some: list[LifetimeBoundBuffer], alignment: int = 1) -> Instance:
    return Instance.of(some, MemorySpace(1 << 40, alignment))


def is_packing(some: Instance, offsets: np.ndarray, capacity: int) -> bool:
    """By all pairs: inside the capacity, and no two live at a time overlap unless they are a pair at one base."""
    begin, end = offsets, offsets + some.sizes
    meet = (some.starts[:, None] <= some.ends) & (some.starts <= some.ends[:, None])
    overlap = meet & (begin[:, None] < end) & (begin < end[:, None])
    shared = np.eye(len(some), dtype=bool)
    for child, parents in enumerate(some.parents):
        for parent in parents:
            shared[child, parent] = shared[parent, child] = begin[child] == begin[parent]
    return bool((begin >= 0).all() and (end <= capacity).all() and not (overlap & ~shared).any())


def packable(some: Instance, capacity: int) -> bool:
    """By trying every offset of every buffer."""
    order = np.argsort(-some.sizes, kind="stable").tolist()
    offsets = np.zeros(len(some), np.int64)

    def place(count: int) -> bool:
        if count == len(some):
            return True
        at = order[count]
        placed = sorted(order[: count + 1])
        for offset in range(capacity - int(some.sizes[at]) + 1):
            offsets[at] = offset
            if is_packing(some.subset(placed), offsets[placed], capacity) and place(count + 1):
                return True
        return False

    return place(0)


def small(seed: int, with_pairs: bool) -> list[LifetimeBoundBuffer]:
    rng = random.Random(seed)
    ops, found = rng.randint(2, 7), []
    for at in range(rng.randint(2, 6)):
        first = rng.randrange(ops)
        last = min(ops - 1, first + rng.choice((0, 1, 1, 2, 3, 5)))
        dying = [each.name for each in found if with_pairs and each.last == first and rng.random() < 0.7]
        found.append(LifetimeBoundBuffer(f"b{at}", rng.randint(1, 4), (first, last), in_place_parents=tuple(dying)))
    return found


@pytest.mark.parametrize("with_pairs", [False, True])
@pytest.mark.parametrize("first_seed", range(0, 400, 50))
def test_exhaustive_search_agrees(first_seed, with_pairs):
    """At LOAD and one unit above it: packed exactly if that is possible, and else proven."""
    for seed in range(first_seed, first_seed + 50):
        some = instance(small(seed, with_pairs))
        for capacity in (some.load, some.load + 1):
            found = pack(some, capacity, 100_000)
            assert found.proven == (found.offsets is None)
            assert found.proven != packable(some, capacity), seed
            assert found.offsets is None or is_packing(some, found.offsets, capacity), seed


#: Five buffers that do not fit 4 units although their load is 4: found by exhaustive search over random ones.
TIGHT = [(2, 0, 1), (1, 1, 2), (2, 2, 3), (1, 3, 4), (1, 0, 0)]


@pytest.mark.skipif(not FOLDER.exists(), reason="the public instances are not on this machine")
@pytest.mark.parametrize("name", "ABCDEFGH")
def test_public_hard_instances_are_placed(name):
    """All buffers at the capacity that is known to be enough, with few nodes."""
    some = instance(hard(name), 1024)
    found = pack(some, HARD_CAPACITY, 2_000_000)
    assert found.offsets is not None and is_packing(some, found.offsets, HARD_CAPACITY)
    assert (found.offsets % 1024 == 0).all()


@pytest.mark.parametrize("count", [60, 80, 100, 120])
@pytest.mark.parametrize("capacity, time", [(1 << 20, 1000), (1024, 200), (64, 60)])
def test_packings_without_slack_are_found(count, capacity, time):
    for seed in range(12):
        some = instance(guillotine(count, seed, capacity, time))
        assert some.load == capacity
        found = pack(some, capacity, 500_000)
        assert found.offsets is not None and is_packing(some, found.offsets, capacity), seed


def test_the_same_instance_gives_the_same_packing():
    """Also after other searches in the same process."""
    some = instance(guillotine(120, 7, 64, 60))
    first = pack(some, 64, 500_000)
    pack(instance(guillotine(60, 1)), 1 << 20, 1000)
    again = pack(some, 64, 500_000)
    assert first.nodes == again.nodes > 120
    assert first.offsets is not None and np.array_equal(first.offsets, again.offsets)

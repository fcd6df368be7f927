# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exact packing against exhaustive search, and on instances that are packed without slack."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from buffer_sets import buffer, buffers
from foreign_data import needs_instances
from packings import HARD_CAPACITY, guillotine, hard, varied

from spyre_mlir.scratchpad import in_place_packing as packing
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.in_place_packing import Packing, pack
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.portfolio import ExactSolver


def instance(some: list[LifetimeBoundBuffer], alignment: int = 1) -> Instance:
    return Instance.of(some, MemorySpace(1 << 40, alignment))


def is_packing(some: Instance, offsets: np.ndarray, capacity: int) -> bool:
    """Check all pairs: inside the capacity, and two live buffers overlap only if they are a pair at one base."""
    begin, end = offsets, offsets + some.sizes
    meet = (some.starts[:, None] <= some.ends) & (some.starts <= some.ends[:, None])
    overlap = meet & (begin[:, None] < end) & (begin < end[:, None])
    shared = np.eye(len(some), dtype=bool)
    for child, parents in enumerate(some.parents):
        for parent in parents:
            shared[child, parent] = shared[parent, child] = begin[child] == begin[parent]
    return bool((begin >= 0).all() and (end <= capacity).all() and not (overlap & ~shared).any())


def packable(some: Instance, capacity: int) -> bool:
    """Search every offset of every buffer."""
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


#: Size, first and last use: neither fits LOAD, 6 and 7, although each has only 8 buffers.
TIGHT = [
    [(4, 0, 0), (2, 0, 1), (2, 1, 2), (1, 2, 2), (1, 2, 3), (2, 1, 3), (3, 4, 4), (3, 3, 5)],
    [(3, 0, 0), (4, 0, 1), (3, 2, 2), (2, 1, 2), (1, 1, 3), (1, 2, 3), (5, 3, 4), (2, 4, 5)],
]


def nearly_tight(seed: int) -> list[LifetimeBoundBuffer]:
    """A tight set with at most two numbers changed by one: about half of them fit LOAD."""
    rng = random.Random(seed)
    rows = [list(row) for row in TIGHT[seed % 2]]
    for _ in range(rng.randint(0, 2)):
        row, column = rng.choice(rows), rng.randrange(3)
        row[column] += rng.choice((-1, 1))
    return [
        LifetimeBoundBuffer(f"b{at}", max(1, size), (min(uses), max(uses)))
        for at, (size, *uses) in enumerate(rows)
    ]


def with_pairs(seed: int) -> list[LifetimeBoundBuffer]:
    """2 to 6 buffers, many of them in place of an earlier one."""
    rng = random.Random(seed)
    ops, found = rng.randint(2, 7), []
    for at in range(rng.randint(2, 6)):
        first = rng.randrange(ops)
        last = min(ops - 1, first + rng.choice((0, 1, 1, 2, 3, 5)))
        dying = tuple(each.name for each in found if each.last == first and rng.random() < 0.8)
        found.append(LifetimeBoundBuffer(f"b{at}", rng.randint(1, 4), (first, last), in_place_parents=dying))
    return found


@pytest.mark.parametrize(
    "random_set, seeds, least_impossible", [(nearly_tight, 150, 50), (with_pairs, 1000, 8)]
)
def test_exhaustive_search_agrees(random_set, seeds, least_impossible):
    """At LOAD: packed if that is possible, and otherwise proven to be impossible."""
    impossible = 0
    for seed in range(seeds):
        some = instance(random_set(seed))
        found = pack(some, some.load, 100_000)
        assert found.proven != packable(some, some.load), seed
        assert found.proven or (found.offsets is not None and is_packing(some, found.offsets, some.load)), (
            seed
        )
        impossible += found.proven
    assert least_impossible <= impossible < seeds // 2


@pytest.mark.parametrize("seed", range(40))
def test_packings_of_larger_sets_with_pairs_are_legal(seed):
    """All decided sets of 40 buffers at LOAD, most of which can be packed."""
    rng = random.Random(seed)
    found: list[LifetimeBoundBuffer] = []
    for at in range(40):
        first = rng.randrange(16)
        dying = tuple(each.name for each in found if each.last == first and rng.random() < 0.4)
        uses = (first, min(15, first + rng.choice((0, 1, 1, 2, 3, 5, 8))))
        found.append(LifetimeBoundBuffer(f"b{at}", rng.randint(1, 500), uses, in_place_parents=dying))
    some = instance(found, 4)
    for capacity in (some.load, some.load * 5 // 4):
        packed = pack(some, capacity, 20_000)
        assert packed.offsets is None or is_packing(some, packed.offsets, capacity)
    assert packed.offsets is not None


def test_neighbours_of_a_single_use_do_not_meet():
    """b is in place of a and c in place of b, all at op 1; a and c are not a pair, so only one may be at b's base."""
    some = buffers(
        buffer(2, 0, 1, name="a"),
        buffer(2, 1, name="b", parents=["a"]),
        buffer(2, 1, 2, name="c", parents=["b"]),
    )
    assert pack(instance(some), 3, 1000) == Packing(None, True, 0)
    found = pack(instance(some), 4, 1000).offsets
    assert found is not None and is_packing(instance(some), found, 4)


def test_a_gap_may_be_left_below_a_buffer():
    """The buffers fit in LOAD plus one byte, but not at every floor where a buffer can begin."""
    rows = [
        (6, 1, 1), (10, 1, 2), (2, 2, 3), (4, 3, 3), (5, 2, 4),
        (11, 1, 4), (6, 3, 4), (8, 5, 5), (6, 4, 5), (13, 5, 6),
    ]  # fmt: skip
    some = instance([buffer(size, first, last, name=f"b{at}") for at, (size, first, last) in enumerate(rows)])
    assert pack(some, 28, 100_000).proven
    found = pack(some, 29, 100_000).offsets
    assert found is not None and is_packing(some, found, 29)


def test_a_chain_of_pairs_has_one_address():
    """A chain of any length has the size of its largest buffer."""
    some = [
        buffer(1000 - at, at, at + 1, name=f"b{at}", parents=[f"b{at - 1}"] * (at > 0)) for at in range(500)
    ]
    found = pack(instance(some), 1000, 1000).offsets
    assert found is not None and not found.any()


def test_many_pairs_and_no_packing():
    """Too many joinings to try them all; without the pairs' last operations it is impossible too, which proves it."""
    tight = [buffer(size, first, last, name=f"t{at}") for at, (size, first, last) in enumerate(TIGHT[0])]
    pairs = [
        buffer(1, 10 + at, 11 + at, name=f"p{at}", parents=[f"p{at - 1}"] * (at % 2)) for at in range(40)
    ]
    found = pack(instance([*tight, *pairs]), 6, 100_000)
    assert found.offsets is None and found.proven


def test_pairs_that_must_share_prove_nothing_if_they_may(monkeypatch):
    """A proof without the last operations of the parents does not hold for buffers that share their addresses."""
    monkeypatch.setattr(packing, "_FIRST_ROUND", 10)
    parents = [buffer(40, 100 + 2 * at, 101 + 2 * at, name=f"p{at}") for at in range(20)]
    children = [buffer(40, each.last, name=f"c{each.name}", parents=[each.name]) for each in parents]
    some = instance([*guillotine(120, 0, 64, 60), *parents, *children])
    assert pack(some, 64, 100) == Packing(None, False, 100)
    assert pack(some, 64, 100_000).offsets is not None


@needs_instances
@pytest.mark.parametrize("name", "ABCDEFGH")
def test_public_hard_instances_are_placed(name):
    """All buffers at the capacity that is known to be enough, with few nodes."""
    some = instance(hard(name), 1024)
    found = pack(some, HARD_CAPACITY, 50_000)
    assert found.offsets is not None and is_packing(some, found.offsets, HARD_CAPACITY)
    assert (found.offsets % 1024 == 0).all()


@needs_instances
@pytest.mark.parametrize("name", "ABCDEFGH")
def test_variants_of_the_hard_instances_are_placed(name):
    """Variants in the order of buffers, in time and in sizes are placed: the search gives up at most one of six."""
    placed = 0
    for seed in range(6):
        some = instance(varied(name, seed))
        result = pack(some, HARD_CAPACITY, 150_000)
        assert not result.proven
        if result.offsets is not None:
            assert is_packing(some, result.offsets, HARD_CAPACITY), seed
            placed += 1
    assert placed >= 5


@pytest.mark.parametrize("count", [60, 80, 100, 120])
@pytest.mark.parametrize("capacity, time", [(1 << 20, 1000), (1024, 200), (64, 60)])
def test_packings_without_slack_are_found(count, capacity, time):
    for seed in range(12):
        some = instance(guillotine(count, seed, capacity, time))
        assert some.load == capacity
        found = pack(some, capacity, 500_000)
        assert found.offsets is not None and is_packing(some, found.offsets, capacity), seed


def test_the_same_instance_gives_the_same_packing():
    """Other searches in the same process do not change the packing."""
    some = instance(guillotine(120, 0, 64, 60))
    first = pack(some, 64, 500_000)
    pack(instance(guillotine(60, 1)), 1 << 20, 1000)
    again = pack(some, 64, 500_000)
    assert first.nodes == again.nodes > 120
    assert first.offsets is not None and again.offsets is not None
    assert first.offsets.tolist() == again.offsets.tolist()


def test_a_failed_part_is_not_blamed_on_others():
    """100 sets one after the other in time, of which one does not fit, need about the nodes of all of them once."""
    rows = [
        (size, 6 * part + first, 6 * part + last)
        for part in range(100)
        for size, first, last in (TIGHT[0] if part == 50 else TIGHT[0][:6])
    ]
    some = [buffer(size, first, last, name=f"b{at}") for at, (size, first, last) in enumerate(rows)]
    found = pack(instance(some), 6, 5000)
    assert found.proven


def test_the_budget_ends_a_search():
    """The search then claims nothing, and visits no more nodes."""
    some = instance(guillotine(120, 0, 64, 60))
    assert pack(some, 64, 50) == Packing(None, False, 50)


def test_nothing_to_pack_fits():
    found = pack(instance([]), 0, 0)
    assert found.offsets is not None and len(found.offsets) == 0


def test_no_search_begins_if_it_would_need_too_much_memory(monkeypatch):
    monkeypatch.setattr(packing, "_MOST_COVERED", 100)
    assert pack(instance(guillotine(60, 1)), 1 << 20, 1000) == Packing(None, False, 0)


def test_numba_is_imported_by_a_search_only():
    """Most plans need none, and they start faster without it."""
    code = "import sys, spyre_mlir.scratchpad.in_place_packing; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("seed", range(5))
def test_the_solver_places_all_where_heuristics_need_not(seed):
    """A cut rectangle at its capacity: nothing is spilled, the traffic is the least."""
    some, space = guillotine(80, seed), MemorySpace(1 << 20, 1)
    plan = ExactSolver().plan(some, space)
    check_plan(some, space, plan)
    assert not plan.spilled and plan.proven and plan.work >= 80


def test_the_solver_drops_what_saves_least():
    """Of sets that do not fit, drop the buffer with the least saving per byte and time; the bound covers any drop."""
    rows = enumerate(TIGHT[0])
    some = [
        buffer(size, first, last, name=f"b{at}", spilled_traffic=90 + at) for at, (size, first, last) in rows
    ]
    space = MemorySpace(6, 1)
    plan = ExactSolver().plan(some, space)
    check_plan(some, space, plan)
    assert plan.bound == 90 and list(plan.spilled) == ["b7"]

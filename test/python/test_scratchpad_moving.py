"""The bound for plans that move buffers."""

from __future__ import annotations

import itertools

import pytest
from buffer_sets import PATTERNS, buffer, buffers, hands_over, pattern, random_set

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.moving import moving_bound
from spyre_mlir.scratchpad.portfolio import PortfolioSolver

Kept = tuple[bool, ...]


def intervals(each: LifetimeBoundBuffer) -> list[tuple[int, int]]:
    """The gaps between uses; the only use where there is one."""
    return list(itertools.pairwise(each.uses)) or [(each.first, each.last)]


def traffic(each: LifetimeBoundBuffer, kept: Kept) -> int:
    """Read at every use whose gap before is not kept; written out if any gap is not kept."""
    per_use = each.traffic_if_spilled // len(each.uses)
    read = each.traffic_if_spilled - per_use * (sum(kept) if len(each.uses) > 1 else 0)
    return min(each.traffic_if_placed, read) if all(kept) else read


def load(some: list[LifetimeBoundBuffer], kept: list[Kept], space: MemorySpace, op: int) -> int:
    """Bytes at an op; each child that can takes over one parent, a parent has one child."""
    live = [
        each for each, gaps in zip(some, kept, strict=True)
        if any(stays and begin <= op <= end for stays, (begin, end) in zip(gaps, intervals(each), strict=True))
    ]  # fmt: skip
    begun = {each.name for each, gaps in zip(some, kept, strict=True) if gaps[0] and each.first == op}
    ended = {each.name for each, gaps in zip(some, kept, strict=True) if gaps[-1] and each.last == op}
    children = [each for each in live if each.name in begun]
    ways = [
        [None, *(p.name for p in live if p.name in ended and p is not c and hands_over(p, c, space))]
        for c in children
    ]
    shared = 0
    for way in itertools.product(*ways):
        used = [parent for parent in way if parent is not None]
        if len(set(used)) == len(used):
            shared = max(
                shared, sum(space.bytes_of(c) for c, p in zip(children, way, strict=True) if p is not None)
            )
    return sum(space.bytes_of(each) for each in live) - shared


def least(some: list[LifetimeBoundBuffer], space: MemorySpace) -> int:
    """Over all ways to keep gaps."""
    found = []
    for kept in itertools.product(
        *(itertools.product((False, True), repeat=len(intervals(each))) for each in some)
    ):
        if all(load(some, list(kept), space, op) <= space.capacity for op in range(12)):
            found.append(sum(traffic(each, gaps) for each, gaps in zip(some, kept, strict=True)))
    return min(found)


def test_the_bound_is_the_best_way_to_keep_gaps():
    """Random sets of up to 4 buffers, every way looked at: the same traffic, attained, and no plan has less."""
    looked_at = 0
    for seed in range(150):
        some, space = random_set(seed, 4)
        repeated = any(len(set(each.uses)) < len(each.uses) for each in some)
        if repeated or sum(len(intervals(each)) for each in some) > 8:
            continue
        looked_at += 1
        bound = moving_bound(some, space)
        assert bound.attained and bound.traffic == least(some, space)
        assert bound.traffic <= PortfolioSolver().plan(some, space).traffic
    assert looked_at > 40


def test_a_buffer_that_comes_back():
    """a is written out once and read once more; with one address per buffer, b moves 3 times 10 bytes."""
    some = buffers(buffer(10, 0, 1, 5, 6, name="a"), buffer(10, 2, 3, 4, name="b"))
    assert moving_bound(some, MemorySpace(10, 1)).traffic == 20
    assert PortfolioSolver().plan(some, MemorySpace(10, 1)).traffic == 30


def test_a_search_cut_short_still_bounds():
    """With a budget of nothing the bound of a hard set is no higher than with a large one."""
    for seed in range(40):
        some, space = random_set(seed, 10)
        assert moving_bound(some, space, budget=0).traffic <= moving_bound(some, space).traffic


@pytest.mark.skipif(not PATTERNS.exists(), reason="needs the published patterns")
@pytest.mark.parametrize(
    ("name", "moving", "one_address"),
    [("simple_eviction", 2 * 1625344, 3 * 1625344), ("eviction_reallocation", 4 * 541696, 20 * 541696)],
)
def test_the_eviction_patterns(name, moving, one_address):
    """Evicting writes and reads each evicted buffer once; with one address a whole buffer is spilled."""
    some, space = pattern(name)
    plan = PortfolioSolver().plan(some, space)
    assert plan.proven and plan.traffic == one_address
    bound = moving_bound(some, space)
    assert bound.attained and bound.traffic == moving

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that move buffers: their bound, the solver, and the check."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from buffer_sets import buffer, buffers, hands_over, pattern, random_set
from foreign_data import needs_patterns

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.check import check_spill_and_reload_plan
from spyre_mlir.scratchpad.portfolio import PortfolioSolver
from spyre_mlir.scratchpad.solver import Residency, SpillAndReloadPlan
from spyre_mlir.scratchpad.spill_and_reload import SpillAndReloadSolver, spill_and_reload_bound

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
    """Return the bytes at an op; each child takes over at most one parent, and a parent has one child."""
    live = [
        each for each, gaps in zip(some, kept, strict=True)
        if any(stays and begin <= op <= end for stays, (begin, end) in zip(gaps, intervals(each), strict=True))
    ]  # fmt: skip
    begun = {each.name for each, gaps in zip(some, kept, strict=True) if gaps[0] and each.first == op}
    ended = {each.name: each for each, gaps in zip(some, kept, strict=True) if _leaves(each, gaps, op)}
    children = [each for each in live if each.name in begun]
    ways = [
        [None, *(name for name, parent in ended.items() if parent is not c and _replaces(c, parent, space))]
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


def _leaves(each: LifetimeBoundBuffer, kept: Kept, op: int) -> bool:
    """Return whether a buffer is kept up to an op and not after it."""
    inside = [gap for stays, gap in zip(kept, intervals(each), strict=True) if stays]
    after = any(begin == op and end > op for begin, end in inside)
    return any(end == op for _, end in inside) and not after


def _replaces(child: LifetimeBoundBuffer, parent: LifetimeBoundBuffer, space: MemorySpace) -> bool:
    """Return whether a child may have the address of a parent that is spilled at its first use."""
    return hands_over(replace(parent, uses=(child.first,)), child, space)


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
        bound = spill_and_reload_bound(some, space)
        assert bound.attained and bound.traffic == least(some, space)
        assert bound.traffic <= PortfolioSolver().plan(some, space).traffic
    assert looked_at > 40


def test_a_buffer_that_comes_back():
    """a is written out once and read once more; with one address per buffer, b moves 3 times 10 bytes."""
    some = buffers(buffer(10, 0, 1, 5, 6, name="a"), buffer(10, 2, 3, 4, name="b"))
    assert spill_and_reload_bound(some, MemorySpace(10, 1)).traffic == 20
    assert PortfolioSolver().plan(some, MemorySpace(10, 1)).traffic == 30


def test_a_search_cut_short_still_bounds():
    """With a budget of 0 the bound of a hard set is at most the bound with the default budget."""
    for seed in range(40):
        some, space = random_set(seed, 10)
        assert (
            spill_and_reload_bound(some, space, budget=0).traffic
            <= spill_and_reload_bound(some, space).traffic
        )


@needs_patterns
@pytest.mark.parametrize(
    ("name", "moving", "one_address"),
    [("simple_eviction", 2 * 1625344, 3 * 1625344), ("eviction_reallocation", 4 * 541696, 20 * 541696)],
)
def test_the_eviction_patterns(name, moving, one_address):
    """Evicting writes and reads each evicted buffer once; with one address a whole buffer is spilled."""
    some, space = pattern(name)
    plan = PortfolioSolver().plan(some, space)
    assert plan.proven and plan.traffic == one_address
    bound = spill_and_reload_bound(some, space)
    assert bound.attained and bound.traffic == moving


def test_the_place_of_a_buffer_that_is_read_later():
    """b has the address of a, which is spilled and reloaded once."""
    some = buffers(buffer(10, 0, 1, 5, name="a"), buffer(10, 1, 2, 3, name="b", parents=["a"]))
    assert spill_and_reload_bound(some, MemorySpace(10, 1)).traffic == 20
    assert planned(some, MemorySpace(10, 1)).traffic == 20


def planned(some: Sequence[LifetimeBoundBuffer], space: MemorySpace, **options) -> SpillAndReloadPlan:
    """A plan that obeys all rules."""
    plan = SpillAndReloadSolver(**options).plan(some, space)
    check_spill_and_reload_plan(some, space, plan)
    return plan


@needs_patterns
@pytest.mark.parametrize(
    ("name", "moved"), [("simple_eviction", 3250688), ("eviction_reallocation", 2166784)]
)
def test_the_eviction_patterns_reach_the_minimum(name, moved):
    """The patterns of torch-spyre that no plan with one address per buffer holds."""
    plan = planned(*pattern(name))
    assert plan.proven and plan.traffic == moved


@needs_patterns
@pytest.mark.parametrize(
    "name", ["simple_fragmentation", "staircase", "downward_staircase", "gqattention", "moe_mlp"]
)
def test_patterns_that_need_no_moves(name):
    """Buffers keep their addresses, and there is no traffic of device memory."""
    some, space = pattern(name)
    plan = planned(some, space)
    assert plan.traffic == 0 == PortfolioSolver().plan(some, space).traffic
    assert len(plan.residencies) == len(some)


def test_a_buffer_comes_back_elsewhere():
    """c is next to b, so at the first address of a, until the end; a is reloaded to the address of b."""
    some = buffers(
        buffer(4, 0, 1, 8, 9, name="a"), buffer(6, 0, 1, 2, 3, name="b"), buffer(4, 2, 3, 9, 10, spilled_traffic=80)
    )  # fmt: skip
    plan = planned(some, MemorySpace(10, 1))
    first, second = plan.of("a")
    assert plan.traffic == 8 and first.address != second.address


@pytest.mark.parametrize("block", range(4))
def test_never_more_than_with_one_address_per_buffer(block):
    """Random sets with parents, copies and repeated uses: legal, and between the bound and the portfolio's plan."""
    better = 0
    for seed in range(50 * block, 50 * block + 50):
        some, space = random_set(seed)
        plan, stays = planned(some, space, selection_steps=20_000), PortfolioSolver().plan(some, space)
        assert plan.bound <= plan.traffic <= stays.traffic
        better += plan.traffic < stays.traffic
    assert better > 5


def small_set(seed: int) -> tuple[list[LifetimeBoundBuffer], MemorySpace]:
    """3 or 4 buffers of up to 4 bytes with up to 4 uses, mostly too many, with parents and traffic of all kinds."""
    rng = random.Random(seed)
    found: list[LifetimeBoundBuffer] = []
    for at in range(rng.randint(3, 4)):
        uses = tuple(sorted(rng.sample(range(7), rng.randint(2, 4))))
        parents = [each.name for each in found if uses[0] in each.uses[1:] and rng.random() < 0.5]
        moved = tuple(rng.randint(1, 9) for _ in uses) if rng.random() < 0.5 else None
        found.append(buffer(rng.randint(1, 4), *uses, name=f"b{at}", parents=parents, traffic_of_uses=moved))
    return found, MemorySpace(rng.randint(4, 7), 1)


def parts(each: LifetimeBoundBuffer, kept: Kept) -> list[LifetimeBoundBuffer]:
    """A buffer per run of kept gaps."""
    found: list[LifetimeBoundBuffer] = []
    for stays, (begin, end) in zip(kept, intervals(each), strict=True):
        if stays and found and found[-1].last == begin:
            found[-1] = replace(found[-1], uses=(found[-1].first, end), traffic_of_uses=None)
        elif stays:
            parents = each.in_place_parents if begin == each.first else ()
            found.append(replace(each, uses=(begin, end), in_place_parents=parents, traffic_of_uses=None))
    return found


def packs(some: list[LifetimeBoundBuffer], space: MemorySpace, placed: tuple[int, ...] = ()) -> bool:
    """Return whether all buffers can have an address, by trying every address in sequence."""
    if len(placed) == len(some):
        return True
    each = some[len(placed)]
    return any(
        all(_may_be(each, at, some[other], place, space) for other, place in enumerate(placed))
        and packs(some, space, (*placed, at))
        for at in range(space.capacity - each.size + 1)
    )


def _may_be(
    one: LifetimeBoundBuffer, at: int, other: LifetimeBoundBuffer, place: int, space: MemorySpace
) -> bool:
    if one.first > other.last or other.first > one.last or at + one.size <= place or place + other.size <= at:
        return True
    return at == place and (hands_over(one, other, space) or hands_over(other, one, space))


def cost(each: LifetimeBoundBuffer, kept: Kept) -> int:
    """Return the traffic of the first use, unless all gaps are kept, and of the uses after gaps that are not kept."""
    first, *others = each.traffic_of_each_use
    return sum(moved for moved, stays in zip(others, kept, strict=True) if not stays) + first * (
        not all(kept)
    )


@pytest.mark.parametrize("block", range(4))
def test_small_sets_are_optimal(block):
    """Against every way to keep gaps, with every assignment of addresses; moves win often enough to matter."""
    moved = 0
    for seed in range(30 * block, 30 * block + 30):
        some, space = small_set(seed)
        ways = itertools.product(
            *(itertools.product((False, True), repeat=len(each.uses) - 1) for each in some)
        )
        ranked = sorted((sum(map(cost, some, way)), way) for way in ways)
        best = next(
            total for total, way in ranked
            if packs([part for each, kept in zip(some, way, strict=True) for part in parts(each, kept)], space)
        )  # fmt: skip
        plan = planned(some, space)
        assert plan.proven and plan.traffic == best
        moved += best < PortfolioSolver().plan(some, space).traffic
    assert moved > 2


A, B = buffer(256, 0, 1, 4, 5, name="a"), buffer(256, 2, 3, name="b", parents=["a"])
RIGHT = SpillAndReloadPlan(
    (Residency("a", 0, 1, 0), Residency("b", 2, 3, 0), Residency("a", 4, 5, 0)), 512, 512, 256
)


def refused(plan: SpillAndReloadPlan, message: str, some: Sequence[LifetimeBoundBuffer] = (A, B)) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        check_spill_and_reload_plan(some, MemorySpace(512, 128), plan)


def test_a_right_moving_plan():
    """a is written to device memory and read back."""
    check_spill_and_reload_plan([A, B], MemorySpace(512, 128), RIGHT)


def residing(*some: tuple[str, int, int, int]) -> SpillAndReloadPlan:
    return replace(RIGHT, residencies=tuple(Residency(*each) for each in some))


def test_what_a_residency_is():
    """A residency belongs to a buffer and lasts from one of its uses to another."""
    refused(residing(("c", 0, 1, 0)), "The plan has 'c', which is not a buffer.")
    refused(residing(("a", 0, 2, 0)), "'a' is kept from 0 to 2, but used at [0, 1, 4, 5]")
    refused(residing(("a", 1, 1, 0)), "'a' is kept from 1 to 1, which is not a gap between uses")
    refused(residing(("a", 4, 1, 0)), "'a' is kept from 4 to 1, which is not a gap between uses")


def test_residencies_of_one_buffer_are_apart():
    """A residency that begins at the end of another would be a move within LX."""
    refused(
        residing(("a", 0, 4, 0), ("a", 4, 5, 256)),
        "'a' (bytes 0 to 256, operations 0 to 4) overlaps its later residency",
    )


def test_residencies_do_not_overlap():
    """Residencies of different buffers share no byte at the same time."""
    refused(residing(("a", 0, 5, 0), ("b", 2, 3, 0)), "overlap.")
    refused(residing(("b", 2, 3, 384)), "not inside the memory of 512 bytes")


def test_only_a_first_residency_takes_a_place():
    """A reloaded buffer is not written by the last reader of its parent."""
    parent, child = buffer(256, 0, 5, name="p"), buffer(256, 1, 5, 6, name="c", parents=["p"])
    refused(residing(("p", 0, 5, 0), ("c", 5, 6, 0)), "overlap.", (parent, child))


def test_the_numbers_of_a_moving_plan():
    """Traffic and peak are computed from the residencies; the bound is not above the traffic."""
    refused(replace(RIGHT, traffic=256), "claims 256 bytes of traffic; its buffers move 512")
    refused(replace(RIGHT, bound=513), "claims that 513 bytes of traffic are the least")
    refused(replace(RIGHT, peak=512), "a peak of 512 bytes; its highest buffer ends at 256")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The constraint program; all but its absence needs OR-Tools."""

from __future__ import annotations

import sys

import pytest
from buffer_sets import buffer, buffers, conflicts, pattern, random_lives, random_set

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solvers import CpSatSolver


def least_traffic(some: list[LifetimeBoundBuffer], space: MemorySpace) -> int:
    """The best of all placements at all addresses, one buffer after the other."""
    instance = Instance.of(some, space)
    limits = [space.capacity - int(size) for size in instance.sizes]
    best = 0

    def place(at: int, addresses: dict[int, int], saved: int) -> None:
        nonlocal best
        if at == len(instance):
            best = max(best, saved)
            return
        if saved + int(instance.savings[at:].clip(0).sum()) <= best:
            return
        for address in range(0, limits[at] + 1, space.alignment):
            if all(fits(at, address, other, start) for other, start in addresses.items()):
                place(at + 1, {**addresses, at: address}, saved + int(instance.savings[at]))
        place(at + 1, addresses, saved)

    def fits(one: int, begin: int, other: int, start: int) -> bool:
        if instance.starts[one] > instance.ends[other] or instance.starts[other] > instance.ends[one]:
            return True
        if begin == start and (other in instance.parents[one] or one in instance.parents[other]):
            return True
        return begin + instance.sizes[one] <= start or start + instance.sizes[other] <= begin

    place(0, {}, 0)
    return sum(each.traffic_if_spilled for each in some) - best


@pytest.fixture
def ortools() -> None:
    pytest.importorskip("ortools")


def test_least_traffic(ortools):
    """On small sets the plan is proven, and no other placement moves less."""
    checked = 0
    for seed in range(300):
        some, space = random_set(seed, most=6)
        if space.capacity // space.alignment > 60:
            continue
        plan = CpSatSolver().plan(some, space)
        check_plan(some, space, plan)
        assert plan.proven and plan.traffic == least_traffic(some, space)
        checked += bool(plan.spilled)
    assert checked > 30


def test_random_sets(ortools):
    """Larger ones: no two buffers overlap by the definition, and the check of plans agrees."""
    for seed in range(60):
        some, space = random_set(seed, most=15)
        plan = CpSatSolver().plan(some, space)
        check_plan(some, space, plan)
        assert not list(conflicts(some, space, plan))


def test_a_place_is_handed_on_at_one_operation(ortools):
    """a, b and c have one base at operation 3 only if c may take over from both; else a or c stays outside."""
    links = [("a", (0, 3), []), ("b", (3,), ["a"])]
    two = [buffer(9, *uses, name=name, parents=parents) for name, uses, parents in links]
    after_both, after_b = (buffer(9, 3, 4, name="c", parents=parents) for parents in (["a", "b"], ["b"]))
    space = MemorySpace(9, 1)
    assert CpSatSolver().plan([*two, after_both], space).spilled == {}
    plan = CpSatSolver().plan([*two, after_b], space)
    check_plan([*two, after_b], space, plan)
    assert plan.traffic == 18 and plan.proven


def test_the_same_plan_again(ortools):
    """One worker, one seed, no clock; also for a search that does not end."""
    some, space = random_lives(60), MemorySpace(10_000, 1)
    plans = [CpSatSolver(deterministic_time=0.02).plan(some, space) for _ in range(2)]
    assert plans[0] == plans[1] and not plans[0].proven


@pytest.mark.parametrize(
    ("name", "spilled"),
    [
        ("simple_fragmentation", []),
        ("staircase", []),
        ("downward_staircase", []),
        ("simple_eviction", ["B"]),
        ("eviction_reallocation", ["A1", "A2"]),
        ("gqattention", []),
        ("moe_mlp", []),
    ],
)
def test_published_patterns(ortools, name, spilled):
    """All are solved, and proven."""
    some, space = pattern(name)
    plan = CpSatSolver().plan(some, space)
    assert list(plan.spilled) == spilled and plan.proven


def test_without_ortools(monkeypatch):
    """The message names the package to install."""
    for module in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PlanError, match="needs OR-Tools, which is not installed; the extra 'cp-sat'"):
        CpSatSolver().plan(buffers(buffer(1, 0)), MemorySpace(1))

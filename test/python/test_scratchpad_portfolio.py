# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The default solver: proofs, reasons, and never worse than any other."""

from __future__ import annotations

import dataclasses
import itertools
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from buffer_sets import (
    buffer,
    buffers,
    chain,
    conflicts,
    hands_over,
    pattern,
    random_lives,
    random_set,
)
from foreign_data import needs_patterns

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
    GreedyLayoutSolver,
    LargestFirstSolver,
)
from spyre_mlir.scratchpad.portfolio import AnnealingSolver, ExactSolver, PortfolioSolver, infeasible_subset

OTHERS = (
    GreedyLayoutSolver(),
    FirstFitLayoutSolver(),
    BestFitLayoutSolver(),
    LargestFirstSolver(),
    AnnealingSolver(),
    ExactSolver(),
)

HERE = Path(__file__).parent


def small_set(seed: int) -> tuple[list[LifetimeBoundBuffer], MemorySpace]:
    """Up to 7 buffers of up to 5 bytes in a memory of up to 9, mostly too many, with parents."""
    rng = random.Random(seed)
    ops = rng.randint(2, 7)
    found: list[LifetimeBoundBuffer] = []
    for at in range(rng.randint(3, 7)):
        first = rng.randrange(ops)
        uses = sorted({first, min(ops - 1, first + rng.randrange(4))})
        parents = [each.name for each in found if each.last == first and rng.random() < 0.5]
        traffic = rng.choice((None, rng.randint(1, 20)))
        found.append(
            buffer(rng.randint(1, 5), *uses, name=f"b{at}", parents=parents, spilled_traffic=traffic)
        )
    return found, MemorySpace(rng.randint(5, 9), 1)


def packs(some: list[LifetimeBoundBuffer], space: MemorySpace, placed: dict[str, int] | None = None) -> bool:
    """Return whether all buffers can have an address, by trying every address in sequence."""
    placed = placed or {}
    if len(placed) == len(some):
        return True
    each = some[len(placed)]
    return any(
        all(may_be(each, address, other, placed[other.name], space) for other in some[: len(placed)])
        and packs(some, space, {**placed, each.name: address})
        for address in range(space.capacity - each.size + 1)
    )


def may_be(
    one: LifetimeBoundBuffer, at: int, other: LifetimeBoundBuffer, place: int, space: MemorySpace
) -> bool:
    apart = (
        one.first > other.last or other.first > one.last or at + one.size <= place or place + other.size <= at
    )
    return apart or (at == place and (hands_over(one, other, space) or hands_over(other, one, space)))


def least_traffic(some: list[LifetimeBoundBuffer], space: MemorySpace) -> int:
    """Over all subsets, those with little traffic first, until one packs."""

    def traffic(keep: tuple[bool, ...]) -> int:
        pairs = zip(some, keep, strict=True)
        return sum(each.traffic_if_placed if kept else each.traffic_if_spilled for each, kept in pairs)

    choices = sorted(itertools.product((False, True), repeat=len(some)), key=traffic)
    packed = (
        keep
        for keep in choices
        if packs([each for each, kept in zip(some, keep, strict=True) if kept], space)
    )
    return traffic(next(packed))


@pytest.mark.parametrize("block", range(10))
def test_small_sets_are_optimal_and_proven(block):
    """Against every subset with every assignment of addresses."""
    for seed in range(50 * block, 50 * block + 50):
        some, space = small_set(seed)
        plan = PortfolioSolver().plan(some, space)
        check_plan(some, space, plan)
        assert plan.proven and plan.traffic == least_traffic(some, space)


def test_cut_short_it_is_still_right_about_its_bound():
    """Without steps for searches the plan is legal, and the optimum between bound and traffic."""
    hurried = PortfolioSolver(selection_steps=1, packing_work=1)
    for seed in range(100):
        some, space = small_set(seed)
        plan = hurried.plan(some, space)
        check_plan(some, space, plan)
        assert plan.bound <= PortfolioSolver().plan(some, space).traffic <= plan.traffic


@pytest.mark.parametrize("block", range(10))
def test_no_other_solver_moves_less(block):
    """Ten thousand random sets of up to 12 buffers; every plan obeys the definition."""
    unproven = 0
    for seed in range(1000 * block, 1000 * block + 1000):
        some, space = random_set(seed)
        plan = PortfolioSolver().plan(some, space)
        check_plan(some, space, plan)
        assert not list(conflicts(some, space, plan))
        unproven += not plan.proven
        for other in OTHERS[: 4 if plan.proven else None]:
            found = other.plan(some, space)
            assert not list(conflicts(some, space, found))
            assert plan.bound <= plan.traffic <= found.traffic
    assert unproven <= 5


@needs_patterns
@pytest.mark.parametrize(
    "name", ["simple_fragmentation", "staircase", "downward_staircase", "gqattention", "moe_mlp"]
)
def test_the_placeable_patterns_are_placed(name):
    """The plan is legal and proven to have no traffic."""
    some, space = pattern(name)
    plan = PortfolioSolver().plan(some, space)
    check_plan(some, space, plan)
    assert not plan.spilled and plan.proven and plan.traffic == 0


def test_a_reason_names_the_op_and_the_competitors():
    """At op 3 the three need 30 bytes; the buffer with the least traffic is spilled."""
    some = buffers(
        buffer(10, 0, 4, name="a"), buffer(10, 3, 5, name="b"), buffer(10, 1, 3, name="c", spilled_traffic=7)
    )
    plan = PortfolioSolver().plan(some, MemorySpace(20, 1))
    assert plan.spilled == {
        "c": "it lost the competition for the memory: "
        "at op 3 it, 'a' and 'b' need 30 bytes together, but the memory has 20"
    }


def test_a_reason_counts_shared_bytes_once():
    """Child and parent share at op 2, so only op 1, where two others are live, is too much."""
    some = buffers(
        buffer(10, 0, 2, name="parent"),
        buffer(10, 2, 4, name="child", parents=["parent"]),
        buffer(10, 1, 2, name="other"),
        buffer(5, 1, 1, name="small", spilled_traffic=1),
    )
    plan = PortfolioSolver().plan(some, MemorySpace(20, 1))
    assert list(plan.spilled) == ["small"] and plan.proven
    assert "at op 1 it, 'parent' and 'other' need 25 bytes" in plan.spilled["small"]


def unpackable() -> tuple[list[LifetimeBoundBuffer], MemorySpace]:
    """Return the first small set whose plan reports missing addresses rather than missing bytes."""
    for seed in itertools.count():
        some, space = small_set(seed)
        plan = PortfolioSolver().plan(some, space)
        if any("although" in reason for reason in plan.spilled.values()):
            return some, space
    raise AssertionError


def test_where_the_load_fits_but_no_packing_exists_it_is_said_so():
    """The reason blames addresses, and the optimum is proven although the load alone would allow more."""
    some, space = unpackable()
    plan = PortfolioSolver().plan(some, space)
    assert plan.proven and plan.traffic == least_traffic(some, space) > 0
    assert any(reason.endswith("although enough bytes are free") for reason in plan.spilled.values())


def test_a_core_is_what_cannot_be_left_out():
    """Of 20 members 4, 5 and 17 form the core."""
    assert infeasible_subset(list(range(20)), lambda rest: {4, 5, 17} <= set(rest)) == [4, 5, 17]


def test_least_peak_tries_more_orders():
    """If all buffers fit, LX plans stop at once; with ``least_peak`` the peak is LOAD."""
    some = chain(200)
    roomy = MemorySpace(1 << 40)
    lowest = PortfolioSolver(least_peak=True).plan(some, roomy)
    assert lowest.peak == lowest.load
    ragged = random_lives(40)
    peaks = [PortfolioSolver(least_peak=least).plan(ragged, roomy).peak for least in (True, False)]
    assert peaks[0] <= peaks[1]


def test_the_same_buffers_give_the_same_plan():
    """Twice in a row, and in another process."""
    some, space = random_set(14, 30)
    first, second = PortfolioSolver().plan(some, space), PortfolioSolver().plan(some, space)
    assert dataclasses.asdict(first) == dataclasses.asdict(second)
    code = (
        "from buffer_sets import random_set; from spyre_mlir.scratchpad.portfolio import PortfolioSolver;"
        "plan = PortfolioSolver().plan(*random_set(14, 30)); print(plan.traffic, plan.work, dict(plan.addresses))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{first.traffic} {first.work} {dict(first.addresses)}"


def test_small_plans_do_not_load_numba():
    """Plans that fit, or that the bound decides, do not need the exact search."""
    code = (
        "import sys; from buffer_sets import chain; from spyre_mlir.scratchpad.buffers import MemorySpace;"
        "from spyre_mlir.scratchpad.portfolio import PortfolioSolver; some = chain(40);"
        "plans = [PortfolioSolver().plan(some, MemorySpace(room)) for room in (1 << 40, 1 << 19)];"
        "lost = [reason for reason in plans[1].spilled.values() if 'competition' in reason];"
        "print([plan.proven for plan in plans], len(lost) > 0, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, True] True False"


def test_ten_thousand_buffers():
    """A chain at 60 % of its load is planned and proven."""
    some = chain(10_000)
    load = PortfolioSolver().plan(some, MemorySpace(1 << 40)).load
    space = MemorySpace(int(load * 0.6))
    plan = PortfolioSolver().plan(some, space)
    check_plan(some, space, plan)
    assert plan.proven and plan.spilled and np.isclose(plan.load, space.capacity, rtol=0.01)

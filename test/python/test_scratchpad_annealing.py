# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Annealing over the order of placement."""

from __future__ import annotations

import pytest
from buffer_sets import buffer, buffers, conflicts, pattern, random_set

from spyre_mlir.scratchpad.buffers import MemorySpace
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import FirstFitLayoutSolver, LargestFirstSolver
from spyre_mlir.scratchpad.portfolio import AnnealingSolver
from spyre_mlir.scratchpad.solvers import solver


def test_never_worse_than_the_orders_it_begins_with():
    """On random sets, checked; and better on many of them."""
    better = 0
    for seed in range(200):
        some, space = random_set(seed, most=25)
        plan = AnnealingSolver(steps=3000).plan(some, space)
        check_plan(some, space, plan)
        assert not list(conflicts(some, space, plan))
        others = [each().plan(some, space).traffic for each in (FirstFitLayoutSolver, LargestFirstSolver)]
        assert plan.traffic <= min(others)
        better += plan.traffic < min(others)
    assert better > 50


def test_the_same_seed_gives_the_same_plan():
    """Another seed gives another plan for some set, so the seed is used."""
    sets = [random_set(seed, most=25) for seed in range(20)]
    one, two, other = (
        [AnnealingSolver(seed, 3000).plan(some, space).addresses for some, space in sets]
        for seed in (1, 1, 2)
    )
    assert one == two != other


def test_it_ends_where_nothing_can_be_better():
    """Three orders are tried before the first step; they are enough for two buffers."""
    some = buffers(buffer(3, 0, 1), buffer(3, 0, 1))
    assert AnnealingSolver(steps=10_000).plan(some, MemorySpace(6, 1)).work < 200
    assert AnnealingSolver(steps=10_000).plan(some, MemorySpace(5, 1)).work >= 10_000


def test_lower_peak_where_all_fit():
    """Two orders leave a hole below the highest buffer; annealing finds the plan without."""
    some, space = random_set(3, most=40)[0], MemorySpace(1 << 30, 1)
    plan = AnnealingSolver().plan(some, space)
    first = FirstFitLayoutSolver().plan(some, space)
    assert plan.spilled == {} and plan.load <= plan.peak < first.peak


@pytest.mark.parametrize(
    "name", ["simple_fragmentation", "staircase", "downward_staircase", "gqattention", "moe_mlp"]
)
def test_published_patterns_without_eviction(name):
    """Everything is placed and the peak is the load."""
    some, space = pattern(name)
    plan = AnnealingSolver().plan(some, space)
    assert plan.spilled == {} and plan.peak == plan.load


@pytest.mark.parametrize(
    ("name", "spilled"), [("simple_eviction", ["B"]), ("eviction_reallocation", ["A1", "A2"])]
)
def test_published_patterns_with_eviction(name, spilled):
    """The buffers of fewest uses stay outside."""
    some, space = pattern(name)
    assert list(AnnealingSolver().plan(some, space).spilled) == spilled


def test_no_buffers():
    """A problem without buffers has a plan."""
    assert solver("annealing").plan([], MemorySpace(0)).peak == 0

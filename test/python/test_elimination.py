# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Minimal sums of tables: exact against brute force, bounds and beams where the limit splits buckets."""

from __future__ import annotations

import itertools
import math
import random
import sys

import numpy as np
import pytest

from spyre_mlir.optimization import elimination
from spyre_mlir.optimization.elimination import Sum, undominated

SEEDS = range(200)


def _random(seed: int, infinite: float) -> Sum:
    """Up to 7 variables of 1 to 8 states; some scopes of one to three of them; some entries cannot be."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    made = Sum([rng.randint(1, 8 if seed % 2 else 4) for _ in range(rng.randint(1, 5 if seed % 2 else 7))])
    for _ in range(rng.randint(1, 10)):
        scope = tuple(sorted(rng.sample(range(len(made.sizes)), rng.randint(1, min(3, len(made.sizes))))))
        table = numbers.integers(0, 50, [made.sizes[variable] for variable in scope]).astype(float)
        made.add(scope, np.where(numbers.random(table.shape) < infinite, math.inf, table))
    return made


def _brute_force(made: Sum) -> float:
    return min(made.cost(states) for states in itertools.product(*map(range, made.sizes)))


def _chain(length: int, seed: int = 0) -> tuple[Sum, float]:
    """A chain of three states each, and its minimum by walking along it."""
    numbers = np.random.default_rng(seed)
    made, reached = Sum([3] * length), np.zeros(3)
    for at in range(length - 1):
        table = numbers.integers(0, 100, (3, 3)).astype(float)
        made.add((at, at + 1), table)
        reached = (reached[:, None] + table).min(axis=0)
    return made, float(reached.min())


@pytest.mark.parametrize("infinite", [0.0, 0.2, 0.6])
def test_exact_without_a_limit(infinite):
    """The cost is the smallest of all sums, is reached by the states, and is its own bound."""
    for seed in SEEDS:
        made = _random(seed, infinite)
        found, best = made.minimize(), _brute_force(made)
        assert found.cost == found.bound == best, f"seed {seed}"
        assert best == math.inf or made.cost(found.states) == best


@pytest.mark.parametrize("infinite", [0.0, 0.3])
@pytest.mark.parametrize("limit", [1, 8, 64])
def test_a_limit_keeps_the_bound_below_and_the_cost_above(limit, infinite):
    """bound <= smallest sum <= cost, whatever is split; and something is split."""
    unproven = 0
    for seed in SEEDS:
        made = _random(seed, infinite)
        found, best = made.minimize(limit, width=4), _brute_force(made)
        assert found.bound <= best <= found.cost, f"seed {seed}"
        assert found.cost == math.inf or made.cost(found.states) == found.cost
        unproven += not found.proven
    assert unproven > 0 or limit == 64


def test_a_wide_beam_finds_the_smallest_sum():
    """A beam that drops nothing is a search of everything."""
    for seed in SEEDS:
        made = _random(seed, 0.2)
        assert made.minimize(1, width=1 << 20).cost == _brute_force(made), f"seed {seed}"


def test_what_cannot_be_costs_infinitely():
    """A variable without a state that is compatible with its neighbour has no choice."""
    made = Sum([2, 2])
    made.add((0, 1), np.array([[math.inf, math.inf], [math.inf, 1.0]]))
    made.add((1,), np.array([0.0, math.inf]))
    found = made.minimize()
    assert (found.states, found.cost, found.bound) == ((), math.inf, math.inf)


def test_a_beam_may_miss_what_can_be_but_not_its_bound():
    """If a beam finds no solution, the bound still equals the bound of the tables."""
    made = Sum([2, 2, 2])
    for pair in ((0, 1), (1, 2), (0, 2)):
        made.add(pair, np.array([[math.inf, 1.0], [1.0, math.inf]]))
    assert made.minimize().cost == math.inf
    assert made.minimize(2, width=1).bound <= math.inf


def test_variables_of_one_state_cost_what_their_tables_say():
    """Variables of one state have no choice, but their costs count, in the bound too."""
    made = Sum([1, 3, 1])
    made.add((0, 1), np.array([[5.0, 4.0, 6.0]]))
    made.add((0, 2), np.array([[7.0]]))
    made.add((2,), np.array([1.0]))
    found = made.minimize()
    assert (found.states, found.cost, found.bound) == ((0, 1, 0), 12.0, 12.0)


def test_a_variable_without_tables_takes_its_first_state():
    """A variable without tables has no costs, so there is no choice."""
    made = Sum([4, 2])
    made.add((1,), np.array([3.0, 2.0]))
    assert made.minimize().states == (0, 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_chain_is_exact(seed):
    """4000 variables in a row, without recursion over them."""
    made, best = _chain(4000, seed)
    found = made.minimize()
    assert found.cost == found.bound == best


def test_work_grows_with_the_length_of_a_chain():
    """4 times the variables take at most 4 times the calls, of Python and of numpy, and a few."""
    short, long = (_calls(_chain(length)[0]) for length in (1000, 4000))
    assert 4000 < long < 4 * short + 100


def _calls(made: Sum) -> int:
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    profiler = sys.getprofile()
    sys.setprofile(count)
    try:
        made.minimize()
    finally:
        sys.setprofile(profiler)
    return calls


def test_of_equal_sums_always_the_same_states():
    """Ties are broken by position: the same tables give the same states, exact or not."""
    for seed in SEEDS:
        for limit in (1, 1 << 20):
            first = _random(seed, 0.2).minimize(limit, width=3)
            elimination.MINIMA.clear()
            assert _random(seed, 0.2).minimize(limit, width=3) == first, f"seed {seed}"


def test_equal_sums_are_minimized_once(monkeypatch: pytest.MonkeyPatch):
    """Another number, limit or width makes another sum; so does the same number for another variable."""
    runs = 0
    minimized = Sum._minimized

    def counted(self: Sum, *options: int) -> elimination.Minimum:
        nonlocal runs
        runs += 1
        return minimized(self, *options)

    monkeypatch.setattr(Sum, "_minimized", counted)
    elimination.MINIMA.clear()
    table = np.arange(6.0).reshape(2, 3)
    for expected, scope, added, options in (
        (1, (0,), 0.0, {}),
        (1, (0,), 0.0, {}),
        (2, (0,), 1.0, {}),
        (3, (1,), 0.0, {}),
        (4, (0,), 0.0, {"limit_entries": 2}),
        (5, (0,), 0.0, {"width": 2}),
    ):
        made = Sum([2, 3])
        made.add((0, 1), table)
        made.add(scope, np.full(made.sizes[scope[0]], added))
        made.minimize(**options)
        assert runs == expected, (scope, added, options)


def test_tables_over_the_same_variables_are_added():
    """A second table over a scope does not replace the first."""
    made = Sum([2])
    made.add((0,), np.array([1.0, 5.0]))
    made.add((0,), np.array([9.0, 2.0]))
    assert made.minimize().cost == 7.0


def test_states_left_out_never_change_the_minimum():
    """The smallest sum over the states that dominance keeps is that over all."""
    dropped = 0
    for seed in SEEDS:
        made = _random(seed, 0.2)
        kept, tables = undominated(made.sizes, made.tables)
        small = Sum([len(states) for states in kept])
        for scope, table in tables.items():
            small.add(scope, table)
        assert _brute_force(small) == _brute_force(made), f"seed {seed}"
        dropped += sum(made.sizes) - sum(small.sizes)
    assert dropped > 100

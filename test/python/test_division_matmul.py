# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of a matmul's split: the documented rankings, and the cheapest of all legal splits."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from division_spaces import Operand, legal_splits, matmul_of, space_of

from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import even_work, operation_work
from spyre_mlir.division import Division
from spyre_mlir.division.spans import out_of_reach
from spyre_mlir.division_search.work_division import cheapest_split, split_cost
from spyre_mlir.layout.space import Space

OPCODE = "batchmatmul"


def cheapest(space: Space, *options) -> tuple[int, ...]:
    return cheapest_split(OPCODE, space, *options)


def costs(space: Space, *splits: tuple[int, ...]) -> list[float]:
    return split_cost(OPCODE, space, np.array(splits).T).tolist()


def batched(batch: int, rows: int, columns: int, depth: int, shared: bool) -> Space:
    """Dims b, m, n, k; a shared weight lacks b."""
    weight = (3, 2) if shared else (0, 3, 2)
    return space_of((batch, rows, columns, depth), Operand((0, 1, 3)), Operand(weight), Operand((0, 1, 2)))


@pytest.mark.parametrize(("columns", "depth"), [(12800, 4096), (4096, 12800), (4096, 4096)])
def test_prefill_projections_split_both_dims(columns, depth):
    """SwiGLU over 512 rows: M/4 x N/8, which M/32 is about 2.5 times slower than (untraced, docs/sources.md)."""
    space = matmul_of(512, columns, depth)
    assert cheapest(space, 32) == (4, 8, 1)
    good, rows_only = costs(space, (4, 8, 1), (32, 1, 1))
    assert 2 < rows_only / good < 3


@pytest.mark.parametrize("columns", [1024, 4096, 12800])
def test_decode_projections(columns):
    """64 rows: m4 n8 k1 for all three widths, as torch-spyre #2407 divides them."""
    assert cheapest(matmul_of(64, columns, 4096), 32) == (4, 8, 1)


@pytest.mark.parametrize("seed", range(20))
def test_each_split_costs_what_its_division_does(seed):
    """Random products: the costs of many splits at once equal the costs of each operation, in whole picoseconds."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 60, 64, 192, 1280)) for _ in range(4)]
    space = batched(*sizes, shared=rng.random() < 0.5)
    splits = rng.sample(legal := legal_splits(space.units, 32), min(8, len(legal)))
    for each, found in zip(splits, costs(space, *splits), strict=True):
        division = Division.of(each, space.units, space.reduced)
        assert found == round(1000 * operation_cost(operation_work(OPCODE, space, division)).total_ns)


@pytest.mark.parametrize("seed", range(20))
def test_the_work_of_equal_slices_is_that_of_their_division(seed):
    """Slices that divide the units: no owners are needed to count."""
    rng = random.Random(seed)
    space = batched(*(rng.choice((1, 3, 60, 64, 192)) for _ in range(4)), shared=rng.random() < 0.5)
    splits = rng.choice(legal_splits(space.units, 32))
    division = Division.of(splits, space.units, space.reduced)
    assert even_work(OPCODE, space, splits) == operation_work(OPCODE, space, division)


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_of_all_legal_splits(seed):
    """Random products on 1 to 32 cores: none costs less; committed and blocked dims are respected."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 8, 60, 64, 192, 512, 1280)) for _ in range(4)]
    space, cores = batched(*sizes, shared=rng.random() < 0.5), rng.randint(1, 32)
    committed, blocked = [1] * 4, frozenset(dim for dim in range(4) if rng.random() < 0.2)
    dim = rng.randrange(4)
    committed[dim] = 2 if space.units[dim] % 2 == 0 and cores > 1 else 1
    legal = [
        splits
        for splits in legal_splits(space.units, cores)
        if all(n >= least for n, least in zip(splits, committed, strict=True))
        and all(splits[dim] == committed[dim] for dim in blocked)
        and out_of_reach(space, splits) is None
    ]
    if not legal:
        with pytest.raises(ValueError, match="cores and the span limit"):
            cheapest(space, cores, tuple(committed), blocked)
        return
    found = cheapest(space, cores, tuple(committed), blocked)
    assert found in legal
    assert costs(space, found) == [min(costs(space, *legal))]


def test_the_larger_operand_is_cut_into_more_parts():
    """m4 n8 or m8 n4, so that a core loads fewer bytes. With 16 parts of 4096 rows none has more than 256."""
    wide, tall = matmul_of(512, 4096, 4096), matmul_of(4096, 512, 4096)
    for space, best, of_all in ((wide, (4, 8, 1), (4, 8, 1)), (tall, (8, 4, 1), (16, 2, 1))):
        prices = dict(zip(((4, 8, 1), (8, 4, 1)), costs(space, (4, 8, 1), (8, 4, 1)), strict=True))
        assert min(prices, key=prices.__getitem__) == best and cheapest(space, 32) == of_all


def test_dims_may_come_in_any_order():
    """The same product with its dims in another order has the same splits, reordered."""
    found = cheapest(matmul_of(64, 4096, 4096), 32)
    for order in itertools.permutations(range(3)):
        sizes = [0, 0, 0]
        for dim, size in zip(order, (64, 4096, 4096), strict=True):
            sizes[dim] = size
        m, n, k = order
        again = cheapest(space_of(sizes, Operand((m, k)), Operand((k, n)), Operand((m, n))), 32)
        assert tuple(again[dim] for dim in order) == found


def test_no_legal_split():
    """3 committed of 64 columns: their divisors from 3 on are 4 and more, but only three cores are there."""
    space = matmul_of(64, 4096, 4096)
    with pytest.raises(ValueError, match=r"No divisors .* fit 3 cores"):
        cheapest(space, 3, (1, 3, 1))
    assert math.prod(cheapest(space, 3)) <= 3

"""The cost of a matmul's split: the documented rankings and factors, and the cheapest of all legal splits."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from division_spaces import Operand, legal_splits, matmul_of, space_of

from spyre_mlir.division.matmul import Matmul, cheapest_split, split_cost_us

NONE: frozenset[int] = frozenset()


def costs(matmul: Matmul, *splits: tuple[int, ...]) -> list[float]:
    return split_cost_us(matmul, np.array(splits).T).tolist()


def batched(batch: int, rows: int, columns: int, depth: int, shared: bool) -> Matmul:
    """Dims b, m, n, k; a shared weight lacks b."""
    weight = (3, 2) if shared else (0, 3, 2)
    operands = Operand((0, 1, 3)), Operand(weight), Operand((0, 1, 2))
    return Matmul.of(space_of((batch, rows, columns, depth), *operands))


@pytest.mark.parametrize(("columns", "depth"), [(12800, 4096), (4096, 12800), (4096, 4096)])
def test_prefill_projections_split_both_dims(columns, depth):
    """SwiGLU over 512 rows: M/4 x N/8, which M/32 is about 2.5 times slower than (work-division.md)."""
    matmul = Matmul.of(matmul_of(512, columns, depth))
    assert cheapest_split(matmul, 32) == (4, 8, 1)
    good, rows_only = costs(matmul, (4, 8, 1), (32, 1, 1))
    assert 2 < rows_only / good < 3


@pytest.mark.parametrize("columns", [1024, 4096, 12800])
def test_decode_projections(columns):
    """64 rows: m4 n8 k1 for all three widths (work-division.md)."""
    assert cheapest_split(Matmul.of(matmul_of(64, columns, 4096)), 32) == (4, 8, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "splits", "measured_us"),
    [
        (512, 4096, 4096, (8, 4, 1), 331),
        (512, 12800, 4096, (4, 8, 1), 1038),
        (512, 4096, 12800, (4, 8, 1), 927),
        (64, 4096, 4096, (4, 8, 1), 232),
    ],
)
def test_costs_are_near_what_was_measured(rows, columns, depth, splits, measured_us):
    """Within 30 % of the four times in hardware.md."""
    assert costs(Matmul.of(matmul_of(rows, columns, depth)), splits) == pytest.approx([measured_us], rel=0.3)


def test_the_parts_of_the_formula():
    """64 x 4096 x 1024 with m = 4, n = 2, k = 2, by hand: half rate, 16 rows per core, one hop."""
    compute = 2 * (40 / 16) ** 0.25 * 64 * 4096 * 1024 / 16 / 1.536e6
    memory = 2 * (64 * 1024 + 1024 * 4096 + 64 * 4096) / 204.8e3
    partial = 1 * (64 * 4096 / 8) * 1e-3
    matmul = Matmul.of(matmul_of(64, 4096, 1024))
    assert costs(matmul, (4, 2, 2)) == pytest.approx([compute + memory + partial])


def test_rows_from_40_on_fill_the_array_and_below_8_it_gets_no_worse():
    """M/m of 40 and more count alike, and so do 8 and fewer: the compute time is that of the cores alone."""
    matmul = Matmul.of(matmul_of(320, 64, 64))
    one, eight, forty, eighty = costs(matmul, (1, 1, 1), (8, 1, 1), (40, 1, 1), (80, 1, 1))
    memory = 2 * (320 * 64 + 64 * 64 + 320 * 64) / 204.8e3
    assert one - memory == pytest.approx(8 * (eight - memory))
    assert forty - memory * (40 / 8) ** 0.75 == pytest.approx(2 * (eighty - memory * 10**0.75))


def test_readers_of_one_operand_wait_beyond_eight():
    """A shared weight: the larger of m and n; a weight of each batch: n alone."""
    shared, own = (batched(1 if shared else 4, 1024, 1024, 64, shared) for shared in (True, False))
    assert (shared.shared_weight, own.shared_weight) == (True, False)
    by_rows, by_columns = costs(shared, (1, 16, 1, 1), (1, 1, 16, 1))
    assert by_rows == pytest.approx(by_columns)
    by_rows, by_columns = costs(own, (1, 16, 1, 1), (1, 1, 16, 1))
    memory = sum(map(own.operand_bytes, range(3))) / 204.8e3
    assert by_columns - by_rows == pytest.approx(memory * (2**0.75 - 1))


def test_partial_sums_of_batches_are_ten_times_cheaper():
    """(k - 1) * outputs per core: 1e-3 us each with a shared weight, 1e-4 us where each batch has its own."""
    prices = []
    for shared in (True, False):
        matmul = batched(4, 512, 64, 512, shared)
        two, four = costs(matmul, (1, 4, 1, 2), (1, 4, 1, 4))
        compute = 2 * 4 * 512 * 64 * 512 / 1.536e6
        prices.append(two - four - compute * (1 / 8 - 1 / 16))
    outputs = 4 * 512 * 64 / 4
    assert prices == pytest.approx([-2 * outputs * 1e-3, -2 * outputs * 1e-4])


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_of_all_legal_splits(seed):
    """Random products on 1 to 32 cores: none costs less; committed and blocked dims are respected."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 8, 60, 64, 192, 512, 1280)) for _ in range(4)]
    matmul, cores = batched(*sizes, shared=rng.random() < 0.5), rng.randint(1, 32)
    committed, blocked = [1] * 4, frozenset(dim for dim in range(4) if rng.random() < 0.2)
    dim = rng.randrange(4)
    committed[dim] = 2 if matmul.units[dim] % 2 == 0 and cores > 1 else 1
    found = cheapest_split(matmul, cores, tuple(committed), blocked)
    legal = [
        splits
        for splits in legal_splits(matmul.units, cores)
        if all(n >= least for n, least in zip(splits, committed, strict=True))
        and all(splits[dim] == committed[dim] for dim in blocked)
    ]
    assert found in legal
    assert costs(matmul, found) == [min(costs(matmul, *legal))]


def test_of_equal_costs_the_cores_read_the_fewest_bytes():
    """m4 n8 and m8 n4 cost the same where rows fill the array; the larger operand is cut into more parts."""
    wide, tall = Matmul.of(matmul_of(512, 4096, 4096)), Matmul.of(matmul_of(4096, 512, 4096))
    for matmul, best in ((wide, (4, 8, 1)), (tall, (8, 4, 1))):
        one, other = costs(matmul, (4, 8, 1), (8, 4, 1))
        assert one == other and cheapest_split(matmul, 32) == best


def test_dims_may_come_in_any_order():
    """The same product with its dims in another order has the same splits, reordered."""
    found = cheapest_split(Matmul.of(matmul_of(64, 4096, 4096)), 32)
    for order in itertools.permutations(range(3)):
        sizes = [0, 0, 0]
        for dim, size in zip(order, (64, 4096, 4096), strict=True):
            sizes[dim] = size
        m, n, k = order
        space = space_of(sizes, Operand((m, k)), Operand((k, n)), Operand((m, n)))
        again = cheapest_split(Matmul.of(space), 32)
        assert tuple(again[dim] for dim in order) == found


def test_no_legal_split():
    """3 committed of 64 columns: their divisors from 3 on are 4 and more, but only three cores are there."""
    matmul = Matmul.of(matmul_of(64, 4096, 4096))
    with pytest.raises(ValueError, match=r"No divisors .* fit 3 cores"):
        cheapest_split(matmul, 3, (1, 3, 1))
    assert math.prod(cheapest_split(matmul, 3)) <= 3

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work of an operation, computed from its space: small cases by hand, totals against the planner's traffic."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from division_spaces import Operand, matmul_of, random_space, space_of

from spyre_mlir.cost.of_space import hbm_bytes, operation_work
from spyre_mlir.cost.work import OperandWork
from spyre_mlir.division import Division, work_distribution
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.view import from_order
from spyre_mlir.target.target import default_target


def divided(opcode, space, *splits, in_lx=frozenset()):
    return operation_work(opcode, space, Division.of(splits, space.units, space.reduced), in_lx)


def test_a_broadcast_over_four_slices_of_rows():
    """512 x 1024 minus a vector of columns: 16 sticks for each of 128 rows, and every core loads the vector."""
    space = space_of((512, 1024), Operand((0, 1)), Operand((1,)), Operand((0, 1)))
    work = divided("sub", space, 4, 1)
    assert (work.cores, work.sticks_per_core, work.parts, work.broadcast) == (4, 2048, 1, True)
    assert (work.outputs_per_core, work.results, work.multiply_adds_per_core) == (131_072, 524_288, 0)
    matrix = OperandWork(False, 1 << 20, 1 << 18, 1, 128 * 128, batch_run_bytes=128 * 128)
    vector = OperandWork(False, 2048, 2048, 4, 2048, batch_run_bytes=2048)
    assert work.operands == (matrix, vector, replace(matrix, writes=True))


def test_slices_of_columns_are_contiguous():
    """The default layout has columns of sticks one after the other: a slice of 4 columns is one run."""
    space = space_of((512, 1024), Operand((0, 1)), Operand((0, 1)))
    assert [each.run_bytes for each in divided("exp", space, 1, 4).operands] == [4 * 512 * 128] * 2


def test_parts_of_a_sum_leave_one_result():
    """Two slices of rows and four of columns: two partial sums per column, written once."""
    space = space_of((512, 1024), Operand((0, 1)), Operand((1,)))
    work = divided("sumnonstick", space, 2, 4)
    assert (work.parts, work.outputs_per_core, work.results, work.sticks_per_core) == (2, 256, 1024, 1024)
    assert [each.bytes for each in work.operands] == [1 << 20, 2048]


def test_a_product_by_hand():
    """64 x 4096 x 4096 in 4 x 8: 16 rows and 512 columns per core; 8 cores share A, 4 share W."""
    work = divided("batchmatmul", matmul_of(64, 4096, 4096), 4, 8, 1)
    assert (work.multiply_adds_per_core, work.rows_per_core, work.outputs_per_core) == (
        16 * 512 * 4096,
        16,
        8192,
    )
    assert (work.sticks_per_core, work.broadcast) == (0, False)
    assert [each.fan_out for each in work.operands] == [8, 4, 1]
    assert [each.core_bytes for each in work.operands] == [16 * 8192, 4096 * 1024, 16 * 1024]
    assert [each.bytes for each in work.operands] == [64 * 8192, 4096 * 8192, 64 * 8192]


def test_the_array_takes_rows_of_one_stick():
    """If sticks of adjacent rows are adjacent, 16 rows are a run; row by row each stick is a separate run."""
    good = matmul_of(64, 4096, 4096)
    layout = from_order(default_target(), (64, 4096), "f16", 1, (0, 1))
    bad = replace(good, views=(BufferView.of(layout).rename((0, 2), 3, good.sizes), *good.views[1:]))
    runs = [divided("batchmatmul", each, 4, 8, 1).operands[0].run_bytes for each in (good, bad)]
    assert runs == [16 * 128, 128]


def test_operands_in_lx_are_marked():
    space = space_of((64, 64), Operand((0, 1)), Operand((0, 1)))
    work = divided("exp", space, 1, 1, in_lx=frozenset({1}))
    assert [each.in_lx for each in work.operands] == [False, True]
    assert (work.read_bytes, work.written_bytes) == (64 * 128, 0)


def test_an_unknown_operation_has_no_work():
    with pytest.raises(KeyError):
        divided("frobnicate", space_of((64, 64), Operand((0, 1)), Operand((0, 1))), 1, 1)


@pytest.mark.parametrize("seed", range(40))
def test_bytes_are_those_of_the_planner(seed: int):
    """Random spaces: bytes of all cores, and of the loads that they share, as the planner counts them."""
    rng = random.Random(seed)
    space = random_space(rng, [rng.choice((1, 3, 64, 130)) for _ in range(3)])
    splits = work_distribution(space.units, space.reduced, 32)
    division = Division.of(splits, space.units, space.reduced)
    work = operation_work("add", space, division)
    for number, operand in enumerate(work.operands):
        once, all_cores = hbm_bytes(space, number, division)
        assert operand.bytes == once and operand.bytes <= operand.core_bytes * division.cores
        if not operand.writes:
            assert operand.bytes * operand.fan_out == all_cores

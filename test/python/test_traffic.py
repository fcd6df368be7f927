# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes that operands move in device memory: by hand, and against counts of the simulator."""

from __future__ import annotations

import pytest
from division_spaces import Operand, matmul_of, space_of
from programs import PROGRAMS
from test_programs import imported

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_in_lx
from spyre_mlir.analysis.core_ownership import Divided, divided_ops
from spyre_mlir.cost.of_space import hbm_bytes
from spyre_mlir.dialects import context
from spyre_mlir.division import Division
from spyre_mlir.layout.space import Space
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.simulator import run

#: Cores, and whether slices may be uneven.
DIVISIONS = ((1, False), (7, True), (32, False))
KIB = 1024


def divided(space: Space, *splits: int) -> Division:
    return Division.of(splits, space.units, space.reduced)


def test_slices_together_are_the_whole():
    """512 x 1024 numbers of 2 bytes on 32 cores: each byte is loaded once."""
    space = space_of((512, 1024), Operand((0, 1)), Operand((0, 1)))
    assert hbm_bytes(space, 0, divided(space, 32, 1)) == (1024 * KIB, 1024 * KIB)
    assert hbm_bytes(space, 1, divided(space, 4, 8)) == (1024 * KIB, 1024 * KIB)


def test_a_load_that_cores_share_counts_once():
    """A row of 1024 numbers under 32 slices of rows; a weight under 4 slices of the rows of the other matrix."""
    space = space_of((512, 1024), Operand((1,)), Operand((0, 1)))
    assert hbm_bytes(space, 0, divided(space, 32, 1)) == (2 * KIB, 32 * 2 * KIB)
    product = matmul_of(64, 4096, 512)
    assert hbm_bytes(product, 1, divided(product, 4, 8, 1)) == (4096 * KIB, 4 * 4096 * KIB)


def test_whole_sticks_are_moved():
    """65 columns are 2 sticks of 128 bytes, a sum over them is one stick per row."""
    space = space_of((10, 65), Operand((0, 1)), Operand((0,), (0, -1)))
    assert hbm_bytes(space, 0, divided(space, 3, 1)) == (10 * 256, 10 * 256)
    assert hbm_bytes(space, 1, divided(space, 3, 1)) == (10 * 128, 10 * 128)


def test_the_finished_value_of_a_shared_sum_is_written_once():
    """4 cores share each sum, 8 have the finished ones: 512 x 64 numbers; the inputs are read whole."""
    space = matmul_of(512, 64, 512)
    division = divided(space, 8, 1, 4)
    assert hbm_bytes(space, 2, division) == (64 * KIB, 64 * KIB)
    assert hbm_bytes(space, 0, division) == (512 * KIB, 512 * KIB)
    assert hbm_bytes(space, 1, division) == (64 * KIB, 8 * 64 * KIB)


def planned(module: ir.Module) -> list[tuple[int, ...]]:
    """Return for every operation of a placed program, over all runs: bytes read, read by all cores, written."""
    (func,) = functions(module.operation)
    memory = AliasAnalysis(func)
    return [_moved(memory, op) for op in divided_ops(memory, all_ops(func))]


def _moved(memory: AliasAnalysis, op: Divided) -> tuple[int, ...]:
    *reads, (written, _) = (
        (0, 0) if is_in_lx(memory.place(value).buffer) else hbm_bytes(op.space, at, op.division)
        for at, value in enumerate(op.values)
    )
    once = (sum(once for once, _ in reads), sum(each for _, each in reads), written)
    return tuple(op.executions * bytes_ for bytes_ in once)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("cores", "uneven"), DIVISIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_simulator_counts_the_same(name, cores, uneven):
    """Bytes read, bytes read by all cores, bytes written of every operation. All buffers are in device memory."""
    _, inputs, program = imported(name)
    module = ir.Module.parse(str(program.module), context())
    options = f"sencores={cores} uneven-splits={str(uneven).lower()} lx-planning=false"
    run_pipeline(module, SpyrePipeline.parse(options).pipeline("divided"))
    run_pipeline(module, "place-in-hbm")
    expected = planned(module)
    run_pipeline(module, "convert-sdsc-to-sdscbundle")
    bundle, arrays = export(module)
    operands = zip(program.arguments, program.operands(*inputs), strict=True)
    executes = run(bundle, {**arrays, **{each.name: array for each, array in operands}}).statistics.executes
    found = [(each.read_bytes, each.core_read_bytes, each.write_bytes) for each in executes.values()]
    assert found == expected

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of designs: against counts of the simulator, and against the work that the cost model reads from IR."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from programs import PROGRAMS
from simulator_programs import Program
from test_programs import compiled, imported, on_all_cores, ran

import spyre_mlir
from spyre_mlir.analysis.aliasing import functions, is_in_lx
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.bundle.context import Context
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring_traffic import LinkLoads, relayout_traffic
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.dialects import context
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.target.target import compiling_for
from spyre_mlir.timeline.of_design import DesignWork, core_groups

#: Programs with loads that cores share, sums that they share, smaller last slices, padding and restickifies.
CHOSEN = (
    "softmax_dim_0_512x1024", "softmax_dim_last_63x65", "layernorm_odd", "gelu_mlp", "sdpa_grouped", "matmul_4d",
    "matmul_1x4096x11", "sum_0_2_of_3", "mul_outer", "transpose_3", "cat_columns", "cast_float_sum",
    "llama_block_small",
)  # fmt: skip
#: Cores, and whether slices may be uneven.
DIVISIONS = ((1, False), (7, True), (32, False))


def check_traffic(program: spyre_mlir.Program) -> None:
    assert program.last_run is not None
    counted = program.last_run.statistics.executes.values()
    executions = program.timeline().executions
    found = [(each.opcode, each.work.read_bytes, each.work.written_bytes) for each in executions]
    assert found == [(each.opcode, each.read_bytes, each.write_bytes) for each in counted]


@pytest.mark.parametrize("name", PROGRAMS)
def test_traffic_is_what_the_simulator_counts(name):
    """The bytes of every execute are equal, on all cores and with LX."""
    ran(name)
    check_traffic(on_all_cores(name))


@pytest.mark.parametrize(("cores", "uneven"), DIVISIONS[:2])
@pytest.mark.parametrize("name", CHOSEN)
def test_traffic_on_fewer_cores(name, cores, uneven):
    program = compiled(name, sencores=cores, uneven_splits=uneven)
    _, inputs, module = imported(name)
    operands = zip(module.arguments, module.operands(*inputs), strict=True)
    program(*(array for argument, array in operands if argument.kind == "input"))
    check_traffic(program)


@functools.cache
def both(name: str, cores: int, uneven: bool) -> list[tuple[OperationWork, OperationWork]]:
    """The work of each operation, from its space and from its design."""
    module = ir.Module.parse(str(imported(name)[2].module), context())
    run_pipeline(module, SpyrePipeline(sencores=cores, uneven_splits=uneven).pipeline("placed"))
    (func,) = functions(module.operation)
    spaces = []
    with compiling_for(target_of(module)):
        usage = Usage(func)
        for each in usage.ops:
            in_lx = frozenset(at for at, value in enumerate(each.values) if is_in_lx(usage.root(value)))
            spaces.append(operation_work(each.opcode, each.space, each.division, in_lx, usage.relayout(each)))
    run_pipeline(module, "convert-sdsc-to-sdscbundle")
    steps = Context(export(module)[0]).steps
    return [(one, DesignWork(step.design).work) for one, step in zip(spaces, steps, strict=True)]


@pytest.mark.parametrize(("cores", "uneven"), DIVISIONS)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_design_has_the_work_of_its_space(name, cores, uneven):
    """All facts but runs in LX, where nothing moves, and those over padded rows, which a design knows to be there.

    Of a relayout the traffic: a design has its own numbers for dims.
    """
    for of_space, of_design in both(name, cores, uneven):
        pairs = zip(of_space.operands, of_design.operands, strict=True)
        assert all(one.run_bytes <= other.run_bytes for one, other in pairs if not one.in_lx)
        assert _without_runs(of_design) == _without_runs(of_space)
        relayouts = [each.relayout for each in (of_space, of_design) if each.relayout is not None]
        assert len({relayout_traffic(each) for each in relayouts}) == bool(relayouts)
        assert len(relayouts) == 2 * (of_space.opcode == "shuffle")


def test_runs_are_those_of_the_space():
    """Whole tensors of whole sticks: nothing is padded."""
    pairs = both("softmax_dim_0_512x1024", 32, False)
    operands = [pair for one, other in pairs for pair in zip(one.operands, other.operands, strict=True)]
    runs = [(one.run_bytes, other.run_bytes) for one, other in operands if not one.in_lx]
    assert runs and all(one == other for one, other in runs)


def _without_runs(work: OperationWork) -> OperationWork:
    operands = tuple(dataclasses.replace(each, run_bytes=0, batch_run_bytes=0) for each in work.operands)
    return dataclasses.replace(work, operands=operands, relayout=None)


def divided(opcode: str, *sizes: dict[str, int], **splits: int) -> DesignWork:
    """An operation on tensors of these sizes, all in device memory."""
    program, names = Program(), [f"t{number}" for number in range(len(sizes))]
    for name, each in zip(names, sizes, strict=True):
        program.tensor(name, each)
    return DesignWork(program.op(opcode, *names, splits=splits))


def test_a_broadcast_by_hand():
    """512 x 1024 minus a row of columns, in 4 slices of rows: 128 rows of 16 sticks, and all load the row."""
    matrix = {"mb": 512, "out": 1024}
    work = divided("sub", matrix, {"out": 1024}, matrix, mb=4)
    found = work.work
    assert (found.cores, found.sticks_per_core, found.broadcast, work.lanes) == (4, 128 * 16, True, 64)
    assert work.operations == 512 * 1024
    assert found.operands[1] == OperandWork(False, 2048, 2048, 4, 2048, batch_run_bytes=2048)
    assert (found.operands[2].bytes, found.operands[2].core_bytes) == (1 << 20, 1 << 18)


def test_a_smaller_last_slice_has_less_work():
    """10 rows on 4 cores are 3, 3, 3 and 1."""
    matrix = {"mb": 10, "out": 64}
    work = divided("abs", matrix, matrix, mb=4)
    assert [work.work_of_core(core).sticks_per_core for core in range(4)] == [3, 3, 3, 1]
    assert work.work.sticks_per_core == 3 and work.operations == 640


def test_cores_with_equal_work_are_one_group():
    """8 rows on 4 cores: all have 2; 10 rows: the last has fewer; 2 cores: two have none; 3 sticks: two have one."""
    even, uneven, half, mixed = (
        divided("abs", sizes, sizes, **splits)
        for sizes, splits in (
            ({"mb": 8, "out": 64}, {"mb": 4}),
            ({"mb": 10, "out": 64}, {"mb": 4}),
            ({"mb": 8, "out": 64}, {"mb": 2}),
            ({"out": 192, "mb": 8}, {"out": 2, "mb": 2}),
        )
    )
    assert core_groups([even]) == ((0, 1, 2, 3),)
    assert core_groups([even, uneven]) == ((0, 1, 2), (3,))
    assert core_groups([even, uneven, half]) == ((0, 1), (2,), (3,))
    assert core_groups([mixed]) == ((0, 2), (1, 3))
    assert core_groups([]) == ()


def test_partial_sums_go_the_shorter_way():
    """2 parts of 4 sticks of columns: on neighbours, 4 cores apart, and in the other order."""
    near, far = (
        divided("sumnonstick", sizes, {"out": 256}, mb=2, out=4)
        for sizes in ({"mb": 64, "out": 256}, {"out": 256, "mb": 64})
    )
    sums, idle = 64 * 2, [0] * 32  # bytes of one part
    assert near.work.parts == 2 and near.links == LinkLoads((*[sums, 0] * 4, *idle[8:]), tuple(idle))
    assert far.links == LinkLoads(
        (sums, *[2 * sums, 3 * sums, 4 * sums], 3 * sums, 2 * sums, sums, *idle[7:]), tuple(idle)
    )
    design = near.design
    turned = dataclasses.replace(design, core_slices=tuple(reversed(design.core_slices)))
    assert DesignWork(turned).links == LinkLoads(tuple(idle), near.links.clockwise)
    assert divided("abs", {"mb": 8, "out": 64}, {"mb": 8, "out": 64}, mb=4).links is None

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Synchronisation of cores: barriers, and sums over groups of cores."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.dialects import ktdp
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir


def barrier(build: TensorBuilder, cores: int) -> None:
    """Build a barrier of all cores: each core offers one number, and waits for the numbers of the others."""
    everybody = f"(i)[g] : (i - g >= 0, -i + g + {cores - 1} >= 0)"
    _exchanged(
        build,
        build.filled([1], "i32", 0),
        build.filled([1], "i32", 0),
        "arith.addi",
        everybody,
        "(g) : (g == 0)",
    )


def combined(
    build: TensorBuilder,
    partial: ir.Value,
    identity: ir.Value,
    combine: str,
    groups: Sequence[Sequence[int]],
    cores: int,
) -> ir.Value:
    """Build the combination of the partial results of the cores of each group."""
    step, count = _steps_of(groups)
    members = (
        f"(i)[g] : (i - ((i floordiv {step}) mod {count}) * {step} - g == 0, i >= 0, -i + {cores - 1} >= 0)"
    )
    leaders = f"(g) : ((g floordiv {step}) mod {count} == 0, g >= 0, -g + {cores - 1} >= 0)"
    return _exchanged(build, partial, identity, combine, members, leaders)


def _steps_of(groups: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the distance between neighbours in a group and the size of a group; ``CompileError`` if groups differ."""
    step, count = groups[0][1] - groups[0][0], len(groups[0])
    expected = all(
        list(group) == list(range(group[0], group[0] + step * count, step)) and group[0] // step % count == 0
        for group in groups
        if step > 0
    )
    if step < 1 or not expected:
        raise CompileError(
            "KTIR combines the sums of cores whose numbers are equally far apart, and these are not."
        )
    return step, count


def _exchanged(
    build: TensorBuilder, partial: ir.Value, identity: ir.Value, combine: str, producers: str, groups: str
) -> ir.Value:
    type_, text = partial.type, {"producers": ir.StringAttr.get(producers)}
    future_type = ktdp.TileFutureType.get(ir.TypeAttr.get(type_), ir.StringAttr.get(groups))
    future = ir.Operation.create("ktdp.inter_tile_produce", results=[future_type], attributes=text, regions=1)
    with ir.InsertionPoint(ir.Block.create_at_start(future.regions[0], [build.index])):
        ir.Operation.create("ktdp.yield_partial", operands=[partial])
    reduce = ir.Operation.create(
        "ktdp.inter_tile_reduce",
        results=[type_],
        operands=[future.result, identity],
        attributes=text,
        regions=1,
    )
    block = ir.Block.create_at_start(reduce.regions[0], [type_, type_])
    with ir.InsertionPoint(block):
        ir.Operation.create("ktdp.yield_reduced", operands=[build.op(combine, type_, *block.arguments)])
    return reduce.result

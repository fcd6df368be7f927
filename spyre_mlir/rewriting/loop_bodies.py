# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loop bodies: outline the bodies of loops as functions, and inline them again, for passes without loop support."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loops import LOOP, body_block, induction, trip_count
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.outlining import (
    replace_operands,
)
from spyre_mlir.rewriting.tensor_builders import index_constant

CALL = "func.call"


def loops_in(block: ir.Block) -> Iterator[ir.Operation]:
    """Yield the loops of a block, inner loops before the loops around them."""
    for op in [op.operation for op in block.operations]:
        if op.name == LOOP:
            yield from loops_in(body_block(op))
            yield op


def callee_of(call: ir.Operation) -> ir.Operation | None:
    """Return the function of a call; None if it has no body."""
    name, module = ir.FlatSymbolRefAttr(call.attributes["callee"]).value, call
    while module.name != "builtin.module":
        module = module.parent.operation
    found = (func for func in functions(module) if ir.StringAttr(func.attributes["sym_name"]).value == name)
    return next(found, None)


def blocks_of(func: ir.Operation) -> list[ir.Block]:
    """Return the block of a function, and the blocks of its loops."""
    block = func.regions[0].blocks[0]
    return [block, *map(body_block, loops_in(block))]


def unroll(loop: ir.Operation) -> list[ir.Operation]:
    """Unroll a loop with a known trip count; return the operations of all iterations."""
    numbers = induction(loop)
    block = body_block(loop)
    *body, end = [op.operation for op in block.operations]
    carried, copies = list(loop.operands)[3:], []
    for trip in range(numbers.count):
        with ir.InsertionPoint(loop), loop.location:
            variable = index_constant(numbers.first + trip * numbers.step)
            values = dict(zip(block.arguments, [variable, *carried], strict=True))
            for op in body:
                copies.append(op.clone().operation)
                replace_operands(copies[-1], values)
                values.update(zip(op.results, copies[-1].results, strict=True))
            carried = [values.get(value, value) for value in end.operands]
    for old, new in zip(loop.results, carried, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
    return copies


def unroll_loops(func: ir.Operation, most: int) -> None:
    """Unroll the loops of a function that run at most ``most`` operations."""
    for loop in list(loops_in(func.regions[0].blocks[0])):
        if operations_run(loop) <= most:
            unroll(loop)


def operations_run(loop: ir.Operation) -> int:
    """Return the number of operations that a loop with known trip counts runs, over all iterations."""
    inner = (
        operations_run(op.operation) if op.operation.name == LOOP else 1 for op in body_block(loop).operations
    )
    return trip_count(loop) * sum(inner)

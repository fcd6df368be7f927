# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loop bodies: outline the bodies of loops as functions, and inline them again, for passes without loop support."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loops import LOOP, body_block, induction, terminator, trip_count
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.outlining import (
    Outlined,
    dim_sizes_of,
    is_free,
    producers,
    read_by,
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


class BodyOutliner:
    """Outlining of the loops of one function: their bodies become private functions before this function.

    Operations that read a run-time index, such as slices and inner loops that use the loop variable, stay in the loop.
    """

    def __init__(self, func: ir.Operation, first: int) -> None:
        self.func = func
        self.count = first

    def run(self) -> int:
        """Outline all bodies; return the number of functions created so far."""
        for loop in list(loops_in(self.func.regions[0].blocks[0])):
            self._outline(loop)
        return self.count

    def _outline(self, loop: ir.Operation) -> None:
        """Replace runs of operations of a body by calls.

        A run ends before an operation that reads a slice, at a run-time index, of a result of the run.
        """
        group: list[ir.Operation] = []
        behind: list[ir.Operation] = []
        for op in [op.operation for op in body_block(loop).operations][:-1]:
            if is_free(op):
                continue
            reads = list(producers(op))
            if _is_addressed(op):
                if any(producer in group or producer in behind for producer in reads):
                    behind.append(op)
                continue
            if any(producer in behind for producer in reads):
                self._call(group, behind, op)
                group, behind = [], []
            group.append(op)
        self._call(group, behind, terminator(body_block(loop)))

    def _call(self, group: list[ir.Operation], behind: list[ir.Operation], before: ir.Operation) -> None:
        """Outline a group as a function; move its call and then the ops of ``behind`` before operation ``before``."""
        if not group:
            return
        outlined = Outlined(group)
        name = f"loop_body_{self.count}"
        self.count += 1
        with ir.InsertionPoint(self.func), self.func.location:
            callee = outlined.build(name, [ir.DictAttr.get({})] * len(outlined.arguments))
        callee.attributes["sym_visibility"] = ir.StringAttr.get("private")
        for key, value in dim_sizes_of(self.func).items():
            callee.attributes[key] = value
        with ir.InsertionPoint(before), group[0].location:
            call = ir.Operation.create(
                CALL,
                results=[value.type for value in outlined.results],
                operands=outlined.arguments,
                attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
            )
        for old, new in zip(outlined.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        for op in behind:
            op.move_before(before)
        for op in reversed(group):
            op.erase()


def _is_addressed(op: ir.Operation) -> bool:
    """Return whether an operation reads an index that is not a constant."""
    return any(
        isinstance(value.type, ir.IndexType)
        and ((producer := defining_op(value)) is None or producer.name != "arith.constant")
        for value in read_by(op)
    )


def callee_of(call: ir.Operation) -> ir.Operation | None:
    """Return the function of a call; None if it has no body."""
    name, module = ir.FlatSymbolRefAttr(call.attributes["callee"]).value, call
    while module.name != "builtin.module":
        module = module.parent.operation
    found = (func for func in functions(module) if ir.StringAttr(func.attributes["sym_name"]).value == name)
    return next(found, None)


def inline_bodies(module: ir.Operation) -> None:
    """Replace the calls of private functions by the operations of these functions, and erase the functions."""
    bodies = [func for func in functions(module) if "sym_visibility" in func.attributes]
    # In module order: a body comes after the bodies that it calls.
    for func in functions(module) if bodies else ():
        for block in blocks_of(func):
            for op in [op.operation for op in block.operations]:
                if op.name == CALL and (callee := callee_of(op)) is not None:
                    _inline(op, callee)
    for func in bodies:
        func.erase()


def blocks_of(func: ir.Operation) -> list[ir.Block]:
    """Return the block of a function, and the blocks of its loops."""
    block = func.regions[0].blocks[0]
    return [block, *map(body_block, loops_in(block))]


def _inline(call: ir.Operation, callee: ir.Operation) -> None:
    block = callee.regions[0].blocks[0]
    values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, call.operands, strict=True))
    with ir.InsertionPoint(call):
        for op in [op.operation for op in block.operations][:-1]:
            copy = op.clone().operation
            replace_operands(copy, values)
            values.update(zip(op.results, copy.results, strict=True))
    for old, new in zip(call.results, terminator(block).operands, strict=True):
        old.replace_all_uses_with(values[new])
    call.erase()


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

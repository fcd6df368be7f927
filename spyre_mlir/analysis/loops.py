# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of a function: trip counts, iter_args, and the offsets that follow from loop variables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import field

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.indices import INDEX_ARGUMENT, bounds_of_index
from spyre_mlir.layout.view_transforms import Offsets
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

LOOP = "scf.for"


@dataclass(frozen=True)
class Index:
    """An index in loops: its possible values, and its stride per iteration of each loop.

    ``moves`` maps each loop to a stride that is not 0; None if the index does not advance in equal steps.
    """

    offsets: Offsets
    moves: Mapping[Hashable, int] | None = field(default_factory=dict)

    def __add__(self, other: Index) -> Index:
        if self.moves is None or other.moves is None:
            return Index(self.offsets + other.offsets, None)
        total = {
            loop: self.moves.get(loop, 0) + other.moves.get(loop, 0) for loop in {**self.moves, **other.moves}
        }
        return Index(self.offsets + other.offsets, {loop: step for loop, step in total.items() if step})

    def __mul__(self, factor: int) -> Index:
        if self.moves is None:
            return Index(self.offsets * factor, None)
        moves = {loop: step * factor for loop, step in self.moves.items() if factor}
        return Index(self.offsets * factor, moves)

    # The quotient of an index that advances may stay the same for some iterations: its steps may differ.

    def __floordiv__(self, divisor: int) -> Index:
        return Index(self.offsets // divisor, None if self.moves else self.moves)

    def __mod__(self, modulus: int) -> Index:
        return Index(self.offsets % modulus, None if self.moves else self.moves)


@dataclass(frozen=True)
class CarriedValue:
    """The four values of a tensor iter_arg of a loop; ``operand`` is the operand number of ``initial``."""

    operand: int
    initial: ir.Value
    argument: ir.Value
    yielded: ir.Value
    result: ir.Value


def body_block(loop: ir.Operation) -> ir.Block:
    """Return the block of a loop's body."""
    return loop.regions[0].blocks[0]


def terminator(block: ir.Block) -> ir.Operation:
    """Return the last op of a block."""
    return block.operations[len(block.operations) - 1].operation


def nested_ops(block: ir.Block) -> list[ir.Operation]:
    """Return the ops of a block in program order, each loop before the ops in it; regions of other ops are skipped."""
    ops = []
    for op in (item.operation for item in block.operations):
        ops.append(op)
        if op.name == LOOP:
            ops += nested_ops(body_block(op))
    return ops


def repeated_ops(block: ir.Block) -> list[ir.Operation]:
    """Return the ops of a block in execution order, the body of each loop twice.

    Two iterations show every order of two operations in time: within an iteration, and in successive iterations.
    """
    ops = []
    for op in block.operations:
        ops.append(op.operation)
        if op.operation.name == LOOP:
            ops += 2 * repeated_ops(body_block(op.operation))
    return ops


def executions(op: ir.Operation) -> int:
    """Return the number of executions of an op: the product of the trip counts of the loops around it."""
    return math.prod(map(trip_count, enclosing_loops(op)))


def carried_values(loop: ir.Operation) -> list[CarriedValue]:
    """Return the iter_args of a loop that are tensors."""
    body = body_block(loop)
    yielded = terminator(body).operands
    return [
        # The operands of scf.for begin with bounds and step (3 values), its block arguments with the loop variable.
        CarriedValue(index + 3, loop.operands[index + 3], body.arguments[index + 1], yielded[index], result)
        for index, result in enumerate(loop.results)
        if isinstance(result.type, ir.RankedTensorType)
    ]


def initial_of(value: ir.Value) -> ir.Value | None:
    """Return the initial value of an iter_arg or of a result of a loop; None for another value."""
    # Operands 0 to 2 of scf.for are the bounds and the step, argument 0 of its body is the loop variable.
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return owner.operands[ir.OpResult(value).result_number + 3] if owner.name == LOOP else None
    loop = owner.owner.operation
    return loop.operands[ir.BlockArgument(value).arg_number + 2] if loop.name == LOOP else None


def carried_by(value: ir.Value) -> ir.Value | None:
    """Return the iter_arg for which a loop yields a value; None for a value that no loop yields."""
    for use in value.uses:
        user = use.owner.operation
        if user.name == "scf.yield" and user.parent.operation.name == LOOP:
            return body_block(user.parent.operation).arguments[use.operand_number + 1]
    return None


def enclosing_loops(op: ir.Operation) -> list[ir.Operation]:
    """Return the loops around an op, the outermost first."""
    loops = []
    while (op := op.parent.operation).name == LOOP:
        loops.append(op)
    return loops[::-1]


def block_of(value: ir.Value) -> ir.Block:
    """Return the block in which a value is defined."""
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block


def ancestor_in(block: ir.Block, op: ir.Operation) -> ir.Operation:
    """Return the op of ``block`` that is or contains ``op``."""
    while op.block != block:
        op = op.parent.operation
    return op


def trip_count(loop: ir.Operation) -> int:
    """Return the trip count of a loop; ``CompileError`` if its bounds are not constants."""
    return induction(loop).count


def induction(loop: ir.Operation) -> Offsets:
    """Return the values of the variable of a loop; ``CompileError`` if its bounds are not constants."""
    variable = _induction(loop)
    if variable is None:
        raise error_at(loop, "a loop around device operations needs constant bounds and a constant step")
    return variable


def offsets_of(value: ir.Value) -> Offsets | None:
    """Return all possible values of an index, from the bounds of loops; None if they are unknown."""
    index = index_of(value)
    return None if index is None else index.offsets


def index_of(value: ir.Value) -> Index | None:
    """Return an index in terms of loop variables and run-time indices; None if it depends on another value."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        loop = owner.owner.operation
        numbers = _induction(loop) if loop.name == LOOP and value == body_block(loop).arguments[0] else None
        if numbers is None:
            return None
        return Index(numbers, {body_block(loop).arguments[0]: numbers.step} if numbers.count > 1 else {})
    op = owner.operation
    if op.name == INDEX_ARGUMENT:
        return Index(Offsets(0, 1, bounds_of_index(op)[1]), {value: 1})
    if op.name == "arith.constant":
        return Index(Offsets(ir.IntegerAttr(op.attributes["value"]).value))
    operands = [index_of(operand) for operand in op.operands]
    if op.name == "affine.apply":
        map_ = ir.AffineMapAttr(op.attributes["map"]).value
        return _evaluate(map_.results[0], operands, map_.n_dims)
    lhs, rhs = operands if len(operands) == 2 else (None, None)
    if lhs is None or rhs is None:
        return None
    if op.name == "arith.addi":
        return lhs + rhs
    if op.name == "arith.subi":
        return lhs + rhs * -1
    return _product(lhs, rhs) if op.name == "arith.muli" else None


def _induction(loop: ir.Operation) -> Offsets | None:
    bounds = [offsets_of(loop.operands[operand]) for operand in range(3)]
    known = [bound.first for bound in bounds if bound is not None and bound.count == 1]
    if len(known) != 3 or known[2] < 1:
        return None
    numbers = range(*known)
    return Offsets(numbers.start, numbers.step, len(numbers))


def _product(lhs: Index, rhs: Index) -> Index | None:
    # A product of two loop variables is not a linear index.
    if rhs.offsets.count == 1:
        return lhs * rhs.offsets.first
    return rhs * lhs.offsets.first if lhs.offsets.count == 1 else None


def _evaluate(expression: ir.AffineExpr, operands: list[Index | None], dims: int) -> Index | None:
    """Return the value of an affine expression; the operands of symbols come after the ``dims`` operands of dims."""
    if isinstance(expression, ir.AffineConstantExpr):
        return Index(Offsets(expression.value))
    if isinstance(expression, ir.AffineDimExpr):
        return operands[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return operands[dims + expression.position]
    lhs, rhs = (_evaluate(side, operands, dims) for side in (expression.lhs, expression.rhs))
    if lhs is None or rhs is None:
        return None
    if isinstance(expression, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expression, ir.AffineMulExpr):
        return _product(lhs, rhs)
    # Only a positive constant divisor gives a range of equal steps.
    divisor = rhs.offsets
    if divisor.count != 1 or divisor.first <= 0:
        return None
    if isinstance(expression, ir.AffineModExpr):
        return lhs % divisor.first
    return lhs // divisor.first if isinstance(expression, ir.AffineFloorDivExpr) else None


def bundle_number(op: ir.Operation) -> int | None:
    """Return the number that ``cut-bundles`` assigned to an operation, or to the loop around it; None without one."""
    # A loop nest runs within one bundle, so its outermost loop has the number.
    while op.parent is not None and op.parent.operation.name == LOOP:
        op = op.parent.operation
    if sdsc.BUNDLE not in op.attributes:
        return None
    number = op.attributes[sdsc.BUNDLE]
    if not isinstance(number, ir.IntegerAttr):
        raise error_at(op, f"'{sdsc.BUNDLE}' must be an integer")
    return number.value


def put_in_bundle(op: ir.Operation, number: int) -> None:
    """Set the bundle number of an operation or a loop of a function."""
    op.attributes[sdsc.BUNDLE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, op.context), number)


def put_beside(op: ir.Operation, other: ir.Operation) -> None:
    """Put a new operation ``op`` into the bundle of ``other``, if ``other`` has a bundle number."""
    number = bundle_number(other)
    if number is not None:
        put_in_bundle(op, number)

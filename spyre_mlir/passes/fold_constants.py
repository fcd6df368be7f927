# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes values that do not depend on arguments at compile time: masks, positions, tables."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis
from spyre_mlir.dialects.indices import SYMBOLIC, symbolic_attr
from spyre_mlir.dialects.structured import shape_of, structured, use_empty
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import copied, read_by, user_in_block

_FOLDED = ("linalg.generic", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.concat",
           "tensor.pad", "tensor.insert_slice")  # fmt: skip

#: Maximum number of scalar operations to evaluate at compile time; larger computations are not folded.
_LARGEST_WORK = 1 << 30


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace computations that depend only on constants by their values, computed on the host.

    A fill is not folded, because it is a single number. Only values that are read by an op that depends on arguments
    are computed. An operation that is an error at run time, such as a division by 0 or an index out of bounds, is not
    folded, so that the run reports it. ``largest`` is the maximum number of elements of a folded value.
    """

    name: ClassVar[str] = "fold-constants"
    largest: int = 1 << 24

    def run_on(self, func: ir.Operation) -> None:
        """Evaluate the ops of a function whose operands are all constant on the host, and replace their results."""
        block, symbolic = func.regions[0].blocks[0], SymbolicAnalysis(func)
        constant: set[ir.Value] = set()
        folded: list[ir.Operation] = []
        for op in [op.operation for op in block.operations]:
            if op.name in ("arith.constant", "tensor.empty"):
                constant.update(op.results)
            elif (
                op.name in _FOLDED
                and constant.issuperset(read_by(op))
                and not _combines_symbolic(op, symbolic)
            ):
                constant.update(op.results)
                folded.append(op)
        # The values that an op outside the constant part reads, unless they are numbers or large.
        values = []
        for op in folded:
            for value in op.results:
                users = (user_in_block(use, op) for use in value.uses)
                leaves = any(not user.results or user.results[0] not in constant for user in users)
                # A bundle contains constants as a whole: large ones and fills are cheaper to compute at run time.
                if leaves and math.prod(shape_of(value)) <= self.largest and not _is_fill(op):
                    values.append(value)
        if not values:
            return
        for value, array in _evaluated(block, values, constant):
            self.remark(value.owner, "fold", f"a value of type {value.type} depends on no argument")
            with ir.InsertionPoint(value.owner), value.owner.location:
                attributes: dict[str, ir.Attribute] = {
                    "value": ir.DenseElementsAttr.get(np.array(array, order="C"), type=value.type)
                }
                if dims := symbolic.of(value):
                    attributes[SYMBOLIC] = symbolic_attr(dims)
                new = ir.Operation.create("arith.constant", [value.type], attributes=attributes)
            value.replace_all_uses_with(new.result)
        for op in reversed(folded):
            if op.results and all(map(use_empty, op.results)):
                op.erase()


def _is_fill(op: ir.Operation) -> bool:
    """Return whether an op fills a tensor with one number; ``linalg.fill`` is generalised before this pass."""
    if op.name != "linalg.generic" or isinstance(op.operands[0].type, ir.RankedTensorType):
        return False
    return [inner.operation.name for inner in op.regions[0].blocks[0].operations] == ["linalg.yield"]


def _combines_symbolic(op: ir.Operation, symbolic: SymbolicAnalysis) -> bool:
    """Return whether an op reduces dims with a run-time size, so that its value depends on the size."""
    if symbolic.is_empty or op.name != "linalg.generic":
        return False
    generic = structured(op)
    if generic is None:
        return True
    return not symbolic.iteration(generic).keys().isdisjoint(generic.reduced)


def _evaluated(
    block: ir.Block, values: list[ir.Value], constant: set[ir.Value]
) -> list[tuple[ir.Value, np.ndarray]]:
    """Return the arrays of all values that can be computed."""
    try:
        return list(zip(values, _arrays(block, values, constant), strict=True))
    except CompileError:
        # The values are computed together for speed; if one fails, the others are computed one by one.
        if len(values) == 1:
            return []
    return [pair for value in values for pair in _evaluated(block, [value], constant)]


def _arrays(block: ir.Block, values: list[ir.Value], constant: set[ir.Value]) -> list[np.ndarray]:
    """Clone the constant ops that values depend on into a separate function, and run the function."""
    with ir.Location.unknown(block.owner.context):
        scratch = ir.Module.create()
        with ir.InsertionPoint(scratch.body):
            type_ = ir.FunctionType.get([], [value.type for value in values])
            attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(type_)}
            func = ir.Operation.create("func.func", regions=1, attributes=attributes)
        entry = ir.Block.create_at_start(func.regions[0], [])
        needed, ops = set(values), []
        for op in reversed([op.operation for op in block.operations]):
            if op.results and op.results[0] in constant and not needed.isdisjoint(op.results):
                needed.update(read_by(op))
                ops.append(op)
        copies: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(entry):
            for op in reversed(ops):
                copied(op, copies)
            ir.Operation.create("func.return", operands=[copies[value] for value in values])
        # Imported on use: few programs compute on constants alone.
        from spyre_mlir.host import HostEvaluator

        evaluator = HostEvaluator(scratch)
        # The work is checked before the run, because the run could take minutes.
        if evaluator.work > _LARGEST_WORK:
            raise CompileError(f"Values of {evaluator.work} scalar operations are not folded.")
        return evaluator()

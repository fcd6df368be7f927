# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes values that do not depend on arguments at compile time: masks, positions, tables."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis
from spyre_mlir.dialects.structured import structured
from spyre_mlir.dialects.symbolic_sizes import SYMBOLIC, symbolic_attr
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass

_FOLDED = ("linalg.generic", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.concat",
           "tensor.pad", "tensor.insert_slice")  # fmt: skip

#: The most scalar operations to evaluate at compile time; larger computations are left to the run.
_LARGEST_WORK = 1 << 30


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace computations that depend only on constants by their values, computed on the host.

    A fill is not folded, because it is a single number. Only values that are read by an op that depends on arguments
    are computed. An operation that is an error at run time, such as a division by 0 or an index out of bounds, is not
    folded, so that the run reports it. ``largest`` is the most elements of a value that is folded.
    """

    name: ClassVar[str] = "fold-constants"
    largest: int = 1 << 24

    def run(self, module: ir.Operation) -> None:
        for func in list(module.regions[0].blocks[0].operations):
            if func.operation.name == "func.func" and func.operation.regions[0].blocks:
                self._function(func.operation)

    def _function(self, func: ir.Operation) -> None:
        block, symbolic = func.regions[0].blocks[0], SymbolicAnalysis(func)
        constant: set[ir.Value] = set()
        for op in [op.operation for op in block.operations]:
            if op.name in ("arith.constant", "tensor.empty") or (
                op.name in _FOLDED and _reads_only(op, constant) and not _combines_symbolic(op, symbolic)
            ):
                constant.update(op.results)
        values = [value for op in block.operations for value in _leaving(op.operation, constant)]
        # The bundle contains constants as a whole; large constants and fills are cheaper to compute at run time.
        values = [value for value in values if self._worth_folding(value)]
        if not values:
            return
        for value, array in _evaluated(block, values, constant):
            self.remark(value.owner, "fold", f"a value of type {value.type} depends on no argument")
            with value.context:
                marks = {SYMBOLIC: symbolic_attr(dims)} if (dims := symbolic.of(value)) else {}
            _replace(value, array, marks)
        for op in reversed([op.operation for op in block.operations]):
            unread = not any(True for result in op.results for _ in result.uses)
            if op.name in _FOLDED and op.results and op.results[0] in constant and unread:
                op.erase()

    def _worth_folding(self, value: ir.Value) -> bool:
        """Return whether a value is small enough and not a single number, as a fill or a broadcast scalar is."""
        type_ = ir.RankedTensorType(value.type)
        op = value.owner.operation
        return int(np.prod(list(type_.shape))) <= self.largest and not _is_fill(op)


def _combines_symbolic(op: ir.Operation, symbolic: SymbolicAnalysis) -> bool:
    """Return whether an op reduces dims with a run-time size, so that its value depends on the size."""
    if symbolic.is_empty or op.name != "linalg.generic":
        return False
    generic = structured(op)
    if generic is None:
        return True
    return not symbolic.iteration(generic).keys().isdisjoint(generic.reduced)


def _is_fill(op: ir.Operation) -> bool:
    # linalg.fill is generalised before this pass.
    if op.name != "linalg.generic":
        return False
    body = [op_view.operation.name for op_view in op.regions[0].blocks[0].operations]
    return body == ["linalg.yield"] and not isinstance(op.operands[0].type, ir.RankedTensorType)


def _reads_only(op: ir.Operation, constant: set[ir.Value]) -> bool:
    """Return whether an op, including its body, reads only constants."""
    defined: set[ir.Value] = set()
    for inner in (op, *_inner(op)):
        defined.update(inner.results)
        defined.update(
            argument for region in inner.regions for block in region.blocks for argument in block.arguments
        )
    return all(value in constant or value in defined for value in _read_by(op))


def _inner(op: ir.Operation) -> list[ir.Operation]:
    """Return the ops nested in an op, at any depth."""
    direct = [
        op_view.operation for region in op.regions for block in region.blocks for op_view in block.operations
    ]
    return [inner for child in direct for inner in (child, *_inner(child))]


def _read_by(op: ir.Operation) -> list[ir.Value]:
    """Return the operands of an op and of its body."""
    return [*op.operands, *(value for inner in _inner(op) for value in inner.operands)]


def _leaving(op: ir.Operation, constant: set[ir.Value]) -> list[ir.Value]:
    """Return the results of a folded op that an op outside the constant part reads."""
    if op.name not in _FOLDED or not op.results or op.results[0] not in constant:
        return []
    return [
        value for value in op.results if any(not _inside(use.owner.operation, constant) for use in value.uses)
    ]


def _inside(user: ir.Operation, constant: set[ir.Value]) -> bool:
    while user.parent is not None and user.parent.name != "func.func":
        user = user.parent.operation
    return bool(user.results) and user.results[0] in constant


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
        copies: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(entry):
            for op in _slice(block, values, constant):
                _copy(op, copies)
            ir.Operation.create("func.return", operands=[copies[value] for value in values])
        # Imported on use: few programs compute on constants alone.
        from spyre_mlir.host import HostEvaluator

        evaluator = HostEvaluator(scratch)
        # The work is checked before the run, because the run could take minutes.
        if evaluator.work > _LARGEST_WORK:
            raise CompileError(f"Values of {evaluator.work} scalar operations are not folded.")
        return evaluator()


def _slice(block: ir.Block, values: list[ir.Value], constant: set[ir.Value]) -> list[ir.Operation]:
    """Return the constant ops that values depend on, in order."""
    needed, ops = set(values), []
    for op in reversed([op.operation for op in block.operations]):
        if op.results and op.results[0] in constant and not needed.isdisjoint(op.results):
            needed.update(_read_by(op))
            ops.append(op)
    return ops[::-1]


def _copy(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> None:
    """Clone an op, with its operands and the values that its body captures replaced according to ``values``."""
    copy = op.clone().operation
    for inner in (copy, *_inner(copy)):
        for index, operand in enumerate(inner.operands):
            if operand in values:
                inner.operands[index] = values[operand]
    values.update(zip(op.results, copy.results, strict=True))


def _replace(value: ir.Value, array: np.ndarray, attributes: dict[str, ir.Attribute]) -> None:
    """Replace a value by a dense constant with the given attributes."""
    type_ = ir.RankedTensorType(value.type)
    with ir.InsertionPoint(value.owner), value.owner.location:
        attr = ir.DenseElementsAttr.get(np.array(array, order="C"), type=type_)
        constant = ir.Operation.create(
            "arith.constant", results=[type_], attributes={"value": attr, **attributes}
        )
    value.replace_all_uses_with(constant.result)

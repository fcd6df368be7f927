"""Computes at compile time what no argument reaches: masks, positions, tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass

_FOLDED = ("linalg.generic", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.concat",
           "tensor.pad", "tensor.insert_slice")  # fmt: skip


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace computations on constants alone by their value, computed by upstream's CPU lowering.

    A fill stays as it is: it is one number. Only values that an op with arguments reads are computed.
    ``largest`` is the number of elements up to which a value is folded.
    """

    name: ClassVar[str] = "fold-constants"
    largest: int = 1 << 24

    def run(self, module: ir.Operation) -> None:
        for func in list(module.regions[0].blocks[0].operations):
            if func.operation.name == "func.func" and func.operation.regions[0].blocks:
                self._function(func.operation)

    def _function(self, func: ir.Operation) -> None:
        block = func.regions[0].blocks[0]
        constant: set[ir.Value] = set()
        for op in [op.operation for op in block.operations]:
            if op.name in ("arith.constant", "tensor.empty") or (
                op.name in _FOLDED and _reads_only(op, constant)
            ):
                constant.update(op.results)
        wanted = [value for op in block.operations for value in _leaving(op.operation, constant)]
        wanted = [value for value in wanted if self._worth_folding(value)]
        if not wanted:
            return
        arrays = _evaluate(block, wanted, constant)
        for value, array in zip(wanted, arrays, strict=True):
            self.remark(value.owner, "fold", f"a value of type {value.type} depends on no argument")
            _replace(value, array)
        for op in reversed([op.operation for op in block.operations]):
            unread = not any(True for result in op.results for _ in result.uses)
            if op.name in _FOLDED and op.results[0] in constant and unread:
                op.erase()

    def _worth_folding(self, value: ir.Value) -> bool:
        """A fill, or a broadcast of a scalar, is one number already."""
        type_ = ir.RankedTensorType(value.type)
        op = value.owner.operation
        return int(np.prod(list(type_.shape))) <= self.largest and not _is_fill(op)


def _is_fill(op: ir.Operation) -> bool:
    if op.name != "linalg.generic":
        return False
    body = [each.operation.name for each in op.regions[0].blocks[0].operations]
    return body == ["linalg.yield"] and not isinstance(op.operands[0].type, ir.RankedTensorType)


def _reads_only(op: ir.Operation, constant: set[ir.Value]) -> bool:
    """Whether an op, its body included, reads nothing but constants."""
    inner = [each.operation for region in op.regions for block in region.blocks for each in block.operations]
    own = {value for each in inner for value in each.results}
    own |= {argument for region in op.regions for block in region.blocks for argument in block.arguments}
    reads = [*op.operands, *(value for each in inner for value in each.operands)]
    return all(value in constant or value in own for value in reads)


def _leaving(op: ir.Operation, constant: set[ir.Value]) -> list[ir.Value]:
    """The results of a folded op that an op outside the constant part reads."""
    if op.name not in _FOLDED or op.results[0] not in constant:
        return []
    return [
        value for value in op.results if any(not _inside(use.owner.operation, constant) for use in value.uses)
    ]


def _inside(user: ir.Operation, constant: set[ir.Value]) -> bool:
    while user.parent is not None and user.parent.name != "func.func":
        user = user.parent.operation
    return bool(user.results) and user.results[0] in constant


def _evaluate(block: ir.Block, wanted: list[ir.Value], constant: set[ir.Value]) -> list[np.ndarray]:
    """Clones the constant ops into a function of their own and runs it."""
    from spyre_mlir.reference import evaluate

    with ir.Location.unknown(block.owner.context):
        scratch = ir.Module.create()
        with ir.InsertionPoint(scratch.body):
            type_ = ir.FunctionType.get([], [value.type for value in wanted])
            attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(type_)}
            made = ir.Operation.create("func.func", regions=1, attributes=attributes)
        entry = ir.Block.create_at_start(made.regions[0], [])
        values: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(entry):
            for op in [op.operation for op in block.operations]:
                if op.results and op.results[0] in constant:
                    _copy(op, values)
            ir.Operation.create("func.return", operands=[values[value] for value in wanted])
        return evaluate(scratch)


def _copy(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> None:
    """Clones an op with its operands, and those that its body captures, renamed."""
    copy = op.clone().operation
    inner = [
        each.operation for region in copy.regions for block in region.blocks for each in block.operations
    ]
    for each in (copy, *inner):
        for index, operand in enumerate(each.operands):
            if operand in values:
                each.operands[index] = values[operand]
    values.update(zip(op.results, copy.results, strict=True))


def _replace(value: ir.Value, array: np.ndarray) -> None:
    """Puts a dense constant in the place of a value."""
    type_ = ir.RankedTensorType(value.type)
    with ir.InsertionPoint(value.owner), value.owner.location:
        attr = ir.DenseElementsAttr.get(np.array(array, order="C"), type=type_)
        made = ir.Operation.create("arith.constant", results=[type_], attributes={"value": attr})
    value.replace_all_uses_with(made.result)

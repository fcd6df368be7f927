# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the indices that a program reads from its arguments into run-time arguments."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import attributes_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.indices import READ_INDEX, bounds_of_index, element_of_index, index_argument
from spyre_mlir.dialects.structured import defining_op, use_empty
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import index_constant

#: Views that keep the order of the elements.
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


@dataclass(frozen=True)
class DeclareIndexArguments(Pass):
    """Let the host read the indices at which the device accesses slices.

    Each distinct index becomes an ``sdsc.index_argument`` at the beginning of the function, and later a parameter of
    the bundle. The array remains an argument, but the device does not read it.

    Before:
        func.func @main(%pos: tensor<1xi64> {spyre.name = "pos"}, ..) { %i = "sdsc.read_index"(%pos) {element = 0}
    After:
        func.func @main(%pos: ..) { %i = "sdsc.index_argument"() {array = "pos", element = 0}

    ``CompileError`` for an index in a tensor that the program computes: a host function must compute the tensor, whose
    result is an argument of the part that reads it.
    """

    name: ClassVar[str] = "declare-index-arguments"

    def run_on(self, func: ir.Operation) -> None:
        reads: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            if op.name == READ_INDEX:
                reads.append(op)
            return ir.WalkResult.ADVANCE

        func.walk(visit)
        declared: dict[tuple, ir.Value] = {}
        for op in reads:
            if not use_empty(op.results[0]):
                self._declare(func, op, declared)
            op.erase()

    def _declare(self, func: ir.Operation, op: ir.Operation, declared: dict[tuple, ir.Value]) -> None:
        """Replace the result of a read by a known constant, or by an argument, which may already be declared."""
        source, element = op.operands[0], element_of_index(op)
        while (producer := defining_op(source)) is not None and producer.name in _RESHAPES:
            source = producer.operands[0]
        index = _known_element(source, element)
        if index is not None:
            lower, upper, operation = bounds_of_index(op)
            if not lower <= index < upper:
                raise error_at(op, f"{index} is an index of {operation}, which takes {lower} to {upper - 1}")
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(index_constant(index + upper if index < 0 else index))
            return
        if source not in list(func.regions[0].blocks[0].arguments):
            raise error_at(op, "an index that the program computes is for the host")
        argument = ir.BlockArgument(source)
        names, name = attributes_of(argument), f"arg{argument.arg_number}"
        name = ir.StringAttr(names["spyre.name"]).value if "spyre.name" in names else name
        key = name, element, op.attributes[sdsc.INDEX_BOUNDS]
        if key not in declared:
            with ir.InsertionPoint.at_block_begin(func.regions[0].blocks[0]), op.location:
                declared[key] = index_argument(*key)
            self.remark(op, "index", f"the host reads the index in '{name}'")
        op.results[0].replace_all_uses_with(declared[key])


def _known_element(source: ir.Value, element: int) -> int | None:
    """Return an element of a constant tensor; None if the tensor is not constant."""
    op = defining_op(source)
    if op is not None and op.name == "linalg.fill":
        number = defining_op(op.operands[0])
        if number is None or number.name != "arith.constant":
            return None
        return ir.IntegerAttr(number.attributes["value"]).value
    value = op.attributes["value"] if op is not None and op.name == "arith.constant" else None
    return int(np.array(value).flat[element]) if isinstance(value, ir.DenseElementsAttr) else None

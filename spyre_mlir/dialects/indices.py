# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indices that are only known at run time: ops of the ``sdsc`` dialect that pass a host integer to the device.

``sdsc.read_index`` reads an element of a tensor of integers. If the tensor is an argument of the function, the host
reads the element before a call: ``declare-index-arguments`` replaces the op by an ``sdsc.index_argument``, whose value
is a parameter of the bundle. Both have ``sdsc.index_bounds`` (``dialects/sdsc.py``): an index out of its range is an
error, and a negative index counts from the end. Slices use the result as an offset; it is constant during a run.
"""

# Annotations must not be postponed: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

import math
from collections.abc import Mapping

from spyre_mlir.dialects.attributes import i64_attr, to_attribute
from spyre_mlir.dialects.sdsc import INDEX_BOUNDS, Sdsc, index_bounds_of
from spyre_mlir.dialects.verification import attribute_of, required
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ext, ir

READ_INDEX, INDEX_ARGUMENT = "sdsc.read_index", "sdsc.index_argument"


class ReadIndexOp(Sdsc.Operation, name="read_index"):
    """Read element ``element`` of a tensor, counted row by row, as an index.

    ``%i = "sdsc.read_index"(%t) {element = 0 : i64, sdsc.index_bounds = {lower = -8 : i64, upper = 8 : i64,
    operation = "index_put"}} : (tensor<1xi64>) -> index``
    """

    source: ext.Operand[ir.RankedTensorType]
    index: ext.Result[ir.IndexType]
    element: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        """Require bounds, and the index of an existing element."""
        if not _has_bounds(self.operation):
            return False
        operands, element = list(self.operation.operands), attribute_of(self.operation, "element")
        if len(operands) != 1 or not isinstance(operands[0].type, ir.RankedTensorType):
            return True
        type_ = ir.RankedTensorType(operands[0].type)
        is_element = isinstance(element, ir.IntegerAttr) and 0 <= element.value < math.prod(type_.shape)
        return required(
            self,
            str(type_.element_type) in ("i32", "i64") and is_element,
            "read_index takes one of the elements of a tensor of i32 or i64",
        )


class IndexArgumentOp(Sdsc.Operation, name="index_argument"):
    """Index that the host reads in the array of the argument ``array``.

    ``%i = "sdsc.index_argument"() {array = "pos", element = 0 : i64, sdsc.index_bounds = ..} : () -> index``
    """

    index: ext.Result[ir.IndexType]
    array: ir.StringAttr
    element: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        """Require bounds."""
        return _has_bounds(self.operation)


def _has_bounds(op: ir.Operation) -> bool:
    """Return whether an op has valid bounds; emit an error if it does not."""
    try:
        bounds = index_bounds_of(_attributes(op))
    except CompileError:
        bounds = None
    is_range = bounds is not None and bounds[1] > 0 and bounds[0] in (0, -bounds[1])
    return required(
        op, is_range, f"an index has '{INDEX_BOUNDS}' from 0, or from -size, to the size of its dim"
    )


def _attributes(op: ir.Operation) -> ir.DictAttr:
    return ir.DictAttr.get({name: op.attributes[name] for name in op.attributes}, op.context)


def bounds_of_index(op: ir.Operation) -> tuple[int, int, str]:
    """Return the lower bound, the excluded upper bound and the operation of either op."""
    bounds = index_bounds_of(_attributes(op))
    assert bounds is not None, "the verifier requires them"
    return bounds


def element_of_index(op: ir.Operation) -> int:
    """Return the index of the element that either op reads."""
    return ir.IntegerAttr(op.attributes["element"]).value


def array_of_index(op: ir.Operation) -> str:
    """Return the name of the argument that an ``sdsc.index_argument`` reads."""
    return ir.StringAttr(op.attributes["array"]).value


def read_index(source: ir.Value, element: int, bounds: Mapping[str, int | str]) -> ir.Value:
    """Build an ``sdsc.read_index`` at the current insertion point."""
    attributes = {"element": i64_attr(element), INDEX_BOUNDS: to_attribute(dict(bounds))}
    return ir.Operation.create(READ_INDEX, [ir.IndexType.get()], [source], attributes).result


def index_argument(array: str, element: int, bounds: ir.Attribute) -> ir.Value:
    """Build an ``sdsc.index_argument`` at the current insertion point."""
    attributes = {"array": ir.StringAttr.get(array), "element": i64_attr(element), INDEX_BOUNDS: bounds}
    return ir.Operation.create(INDEX_ARGUMENT, [ir.IndexType.get()], [], attributes).result

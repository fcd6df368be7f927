# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indices that are only known at run time: ops of the ``sdsc`` dialect that pass a host integer to the device.

``sdsc.read_index`` reads an element of a tensor of integers. If the tensor is an argument of the function, the host
reads the element before a call: ``declare-index-arguments`` replaces the op by an ``sdsc.index_argument``, whose value
is a parameter of the bundle. Both have ``sdsc.index_bounds`` (``dialects/sdsc.py``): an index out of its range is an
error, and a negative index counts from the end. Slices use the result as an offset; it is constant during a run.
"""

import math
import re
from collections.abc import Mapping

from spyre_mlir.dialects.attributes import attribute_of, from_attribute, i64_attr, required, to_attribute
from spyre_mlir.dialects.sdsc import INDEX_BOUNDS, Sdsc, index_bounds_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.space import SymbolicDim, SymbolicDims
from spyre_mlir.mlir import ext, ir, location_of

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


# Run-time sizes in the IR: the sizes of a function, and the dims of arguments and constants that follow them.
#
# func.func @main(%x: tensor<1x1024x64xf16> {sdsc.symbolic = {d1 = ["S", 1 : i64]}}, ..)
# attributes {sdsc.sizes = {S = array<i64: 64, 1024>}}
#
# ``sdsc.sizes`` has the granularity and the largest value of each size. ``sdsc.symbolic`` has, by dim, its size and the
# number of elements per unit of the size. Types have the largest sizes. A function without ``sdsc.sizes`` is static.

SIZES, SYMBOLIC = "sdsc.sizes", "sdsc.symbolic"

#: On an argument that is a view of its host array: the symbolic dims of the host array.
SYMBOLIC_HOST = "sdsc.symbolic_host"


def sizes_attr(sizes: Mapping[str, tuple[int, int]]) -> ir.Attribute:
    """Build ``sdsc.sizes`` from granularity and largest value by name. Needs a current context."""
    return to_attribute({name: list(pair) for name, pair in sizes.items()})


def symbolic_attr(dims: SymbolicDims) -> ir.Attribute:
    """Build ``sdsc.symbolic``. Needs a current context."""
    return to_attribute({f"d{dim}": [symbolic.name, symbolic.factor] for dim, symbolic in dims.items()})


def sizes_of(func: ir.Operation) -> dict[str, tuple[int, int]]:
    """Return the granularity and largest value of the run-time sizes of a function by name; empty if it has none."""
    if SIZES not in func.attributes:
        return {}
    value = from_attribute(func.attributes[SIZES])
    is_sound = isinstance(value, dict)
    for entry in value.values() if is_sound else ():
        match entry:
            # Not ``int(..)`` alone: bool is also an int in Python.
            case [int(granularity), int(most)] if bool not in map(type, entry):
                is_sound = is_sound and 0 < granularity <= most and most % granularity == 0
            case _:
                is_sound = False
    if not is_sound:
        message = f"'{SIZES}' must have a granularity and a largest value, a multiple of it, by name"
        raise CompileError(message, location_of(func.location))
    return {name: (granularity, most) for name, (granularity, most) in value.items()}


def symbolic_of(
    attribute: ir.Attribute,
    sizes: Mapping[str, tuple[int, int]],
    shape: tuple[int, ...],
    location: ir.Location,
) -> SymbolicDims:
    """Return the dims of ``sdsc.symbolic``, by the sizes of the function; ``CompileError`` for an unfit shape."""
    value = from_attribute(attribute)
    dims: SymbolicDims = {}
    for key, entry in value.items() if isinstance(value, dict) else [(str(attribute), [])]:
        match entry:
            case [name, int(factor)] if (
                re.fullmatch(r"d\d+", key) and name in sizes and type(factor) is int and factor > 0
            ):
                dim, symbolic = int(key[1:]), SymbolicDim(name, *sizes[name], factor)
            case _:
                message = f"'{SYMBOLIC}' must have a size of '{SIZES}' and a factor by dim, not {attribute}"
                raise CompileError(message, location_of(location))
        if dim >= len(shape) or shape[dim] != symbolic.extent:
            what = f"{factor} times the largest '{name}'"
            message = f"{key} of a tensor of shape {list(shape)} is not {symbolic.extent}, {what}"
            raise CompileError(message, location_of(location))
        dims[dim] = symbolic
    return dims

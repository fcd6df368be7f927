# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of upstream ops on tensors of static shape, at the current insertion point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from spyre_mlir.dialects.structured import (
    Map,
    affine_map,
    device_op,
    generic_without_body,
    iterators,
    shape_of,
)
from spyre_mlir.mlir import ir

#: MLIR's ``ShapedType::kDynamic``: a number that is an operand.
DYNAMIC = -(1 << 63)

#: A function that builds the body of an op from its block arguments and returns the value to yield.
Body = Callable[[Sequence[ir.Value]], ir.Value]


def element_type(value: ir.Value) -> ir.Type:
    """Return the element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def empty(shape: Sequence[int], element: ir.Type) -> ir.Value:
    """Build an empty tensor."""
    return ir.Operation.create("tensor.empty", [ir.RankedTensorType.get(list(shape), element)]).result


def empty_like(value: ir.Value) -> ir.Value:
    """Build an empty tensor of the type of ``value``."""
    return ir.Operation.create("tensor.empty", [value.type]).result


def constant(attr: ir.Attribute) -> ir.Value:
    """Build an ``arith.constant``, scalar or tensor."""
    return ir.Operation.create("arith.constant", [attr.type], attributes={"value": attr}).result


def index_constant(number: int) -> ir.Value:
    """Build an ``arith.constant`` of type ``index``."""
    return constant(ir.IntegerAttr.get(ir.IndexType.get(), number))


def retyped(attr: ir.Attribute, type_: ir.Type) -> ir.Attribute:
    """Return the value of a constant tensor with another type, which differs in the layout."""
    if attr.is_splat:
        return ir.DenseElementsAttr.get_splat(type_, attr.get_splat_value())
    # The bindings cannot cast dense elements. Masks have millions of elements, for which text would take much longer
    # than the rest of a pass; but numpy lacks some element types.
    try:
        return ir.DenseElementsAttr.get(np.array(attr), type=type_)
    except TypeError:
        text = str(attr)
        return ir.Attribute.parse(text[: text.rindex(" : ")] + f" : {type_}")


def affine_apply(map_: ir.AffineMap, operands: Sequence[ir.Value]) -> ir.Value:
    """Build the index that a map with one result computes."""
    attributes = {"map": ir.AffineMapAttr.get(map_)}
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], list(operands), attributes).result


def elementwise(
    opcode: str,
    value: ir.Value,
    element: str,
    location: ir.Location,
    constants: dict[str, float] | None = None,
) -> ir.Value:
    """Build a device operation on one tensor, whose result has the same dims in the same order."""
    shape = shape_of(value)
    dims = tuple(range(len(shape)))
    return device_op(opcode, [value], [dims], shape, element, location=location, constants=constants)


def generic_op(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[Map], rank: int, reduced: int
) -> ir.Operation:
    """Build a ``linalg.generic`` without a body, whose last ``reduced`` dims are reduced."""
    all_maps = [ir.AffineMapAttr.get(affine_map(dims, rank)) for dims in maps]
    kinds = iterators(rank, frozenset(range(rank - reduced, rank)))
    return generic_without_body([*inputs, output], [output.type], all_maps, kinds)


def with_body(op: ir.Operation, build: Body) -> ir.Value:
    """Build the body of a ``linalg`` op, which yields ``build(arguments)``, and return the op's result."""
    block = ir.Block.create_at_start(op.regions[0], [element_type(operand) for operand in op.operands])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[build(list(block.arguments))])
    return op.results[0]


def scalar_op(name: str, operands: Sequence[ir.Value], element: ir.Type | None = None) -> ir.Value:
    """Build an op on scalars; its result has the type of its operands, or ``element``."""
    return ir.Operation.create(name, [element or operands[0].type], list(operands)).result


# -- views and data movement ----------------------------------------------------------------------------


def transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Build a transpose: dim ``k`` of the result is dim ``order[k]`` of the value."""
    if list(order) == list(range(len(order))):
        return value
    output = empty([shape_of(value)[dim] for dim in order], element_type(value))
    attributes = {"permutation": ir.DenseI64ArrayAttr.get(list(order))}
    op = ir.Operation.create("linalg.transpose", [output.type], [value, output], attributes, regions=1)
    return with_body(op, lambda arguments: arguments[0])


def constant_pad(
    value: ir.Value, number: ir.Operation, low: Sequence[int], high: Sequence[int], shape: Sequence[int]
) -> ir.Value:
    """Build a pad with a constant.

    The constant is outside the region: ``linalg-fold-unit-extent-dims`` would use the wrong value from inside.
    """
    padding = number.clone().operation.results[0]
    attributes = {
        "static_low": ir.DenseI64ArrayAttr.get(list(low)),
        "static_high": ir.DenseI64ArrayAttr.get(list(high)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
    }
    type_ = ir.RankedTensorType.get(list(shape), element_type(value))
    pad = ir.Operation.create("tensor.pad", [type_], [value], attributes, regions=1)
    with ir.InsertionPoint(ir.Block.create_at_start(pad.regions[0], [ir.IndexType.get()] * len(low))):
        ir.Operation.create("tensor.yield", operands=[padding])
    return pad.result


def sliced(
    operands: Sequence[ir.Value],
    offsets: Sequence[int | ir.Value],
    sizes: Sequence[int],
    strides: Sequence[int],
    type_: ir.Type,
) -> ir.Value:
    """Build an extraction from one tensor, or an insertion of the first of two tensors into the second."""
    dynamic = [offset for offset in offsets if not isinstance(offset, int)]
    static = [offset if isinstance(offset, int) else DYNAMIC for offset in offsets]
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(static),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
        "static_strides": ir.DenseI64ArrayAttr.get(list(strides)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*(1 for _ in operands), len(dynamic), 0, 0]),
    }
    name = "tensor.extract_slice" if len(operands) == 1 else "tensor.insert_slice"
    return ir.Operation.create(name, [type_], [*operands, *dynamic], attributes).result


def extracted(
    value: ir.Value,
    offsets: Sequence[int | ir.Value],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    reduced_shape: Sequence[int] | None = None,
) -> ir.Value:
    """Build a slice, or return ``value`` if the slice is all of it.

    ``strides`` are 1 by default; ``reduced_shape`` is the shape of the slice without some dims of size 1.
    """
    if list(sizes) == list(shape_of(value)) and reduced_shape is None:
        return value
    shape = sizes if reduced_shape is None else reduced_shape
    type_ = ir.RankedTensorType.get(list(shape), element_type(value))
    return sliced([value], offsets, sizes, strides or [1] * len(sizes), type_)


def inserted(
    part: ir.Value, whole: ir.Value, offsets: Sequence[int | ir.Value], sizes: Sequence[int] | None = None
) -> ir.Value:
    """Build an insertion of a part into ``whole`` at ``offsets``; ``sizes`` are by default the sizes of the part."""
    return sliced([part, whole], offsets, sizes or shape_of(part), [1] * len(offsets), whole.type)


def concatenated(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    """Build a concatenation of tensors along a dim."""
    shape = list(shape_of(parts[0]))
    shape[dim] = sum(shape_of(part)[dim] for part in parts)
    type_ = ir.RankedTensorType.get(shape, element_type(parts[0]))
    attributes = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)}
    return ir.Operation.create("tensor.concat", [type_], list(parts), attributes).result


def collapsed(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Build a collapse of a value that merges the dims of each group."""
    shape = [math.prod(shape_of(value)[dim] for dim in group) for group in groups]
    return _regrouped("tensor.collapse_shape", value, groups, shape, {})


def expanded(value: ir.Value, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> ir.Value:
    """Build an expand of a value that splits each dim into the dims of a group."""
    attributes: dict[str, ir.Attribute] = {"static_output_shape": ir.DenseI64ArrayAttr.get(list(shape))}
    return _regrouped("tensor.expand_shape", value, groups, shape, attributes)


def consecutive(counts: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return groups of successive numbers; ``counts`` are the sizes of the groups."""
    numbers = itertools.count()
    return tuple(tuple(itertools.islice(numbers, count)) for count in counts)


def _regrouped(
    name: str,
    value: ir.Value,
    groups: Sequence[Sequence[int]],
    shape: Sequence[int],
    attributes: dict[str, ir.Attribute],
) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    arrays = [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, dim) for dim in group]) for group in groups]
    type_ = ir.RankedTensorType.get(list(shape), element_type(value))
    attributes = {"reassociation": ir.ArrayAttr.get(arrays), **attributes}
    return ir.Operation.create(name, [type_], [value], attributes).result

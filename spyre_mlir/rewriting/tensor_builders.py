# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of upstream ops on tensors of static shape, at the current insertion point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.dialects.structured import Map, affine_map, iterators, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.linalg_values import transpose


def transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Build a transpose: dim ``k`` of the result is dim ``order[k]`` of the value."""
    if list(order) == list(range(len(order))):
        return value
    return transpose(value, tuple(order.index(dim) for dim in range(len(order))))


def constant_pad(
    value: ir.Value, number: ir.Operation, low: Sequence[int], high: Sequence[int], shape: Sequence[int]
) -> ir.Value:
    """Build a pad with a constant.

    The constant is outside the region: ``linalg-fold-unit-extent-dims`` would use the wrong value from inside.
    """
    constant = number.clone().operation.results[0]
    element = ir.RankedTensorType(value.type).element_type
    attributes = {
        "static_low": ir.DenseI64ArrayAttr.get(list(low)),
        "static_high": ir.DenseI64ArrayAttr.get(list(high)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
    }
    type_ = ir.RankedTensorType.get(list(shape), element)
    pad = ir.Operation.create(
        "tensor.pad", results=[type_], operands=[value], attributes=attributes, regions=1
    )
    block = ir.Block.create_at_start(pad.regions[0], [ir.IndexType.get()] * len(low))
    with ir.InsertionPoint(block):
        ir.Operation.create("tensor.yield", operands=[constant])
    return pad.result


def extracted(
    value: ir.Value,
    offsets: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    reduced_shape: Sequence[int] | None = None,
) -> ir.Value:
    """Build a slice; ``reduced_shape`` is its shape without some dims of size 1. Return ``value`` if it is whole."""
    if list(sizes) == list(shape_of(value)) and reduced_shape is None:
        return value
    element = ir.RankedTensorType(value.type).element_type
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(list(offsets)),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
        "static_strides": ir.DenseI64ArrayAttr.get(list(strides)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    type_ = ir.RankedTensorType.get(list(sizes) if reduced_shape is None else list(reduced_shape), element)
    return ir.Operation.create(
        "tensor.extract_slice", results=[type_], operands=[value], attributes=attributes
    ).result


def inserted(
    part: ir.Value, whole: ir.Value, offsets: Sequence[int], sizes: Sequence[int] | None = None
) -> ir.Value:
    """Build an insertion of a part into ``whole`` at ``offsets``; ``sizes`` are by default the sizes of the part."""
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(list(offsets)),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes or shape_of(part))),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(offsets)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]),
    }
    return ir.Operation.create(
        "tensor.insert_slice", results=[whole.type], operands=[part, whole], attributes=attributes
    ).result


def concatenated(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    """Build a concatenation of tensors along a dim."""
    shape = list(shape_of(parts[0]))
    shape[dim] = sum(shape_of(part)[dim] for part in parts)
    type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(parts[0].type).element_type)
    i64 = ir.IntegerType.get_signless(64)
    return ir.Operation.create(
        "tensor.concat",
        results=[type_],
        operands=list(parts),
        attributes={"dim": ir.IntegerAttr.get(i64, dim)},
    ).result


def constant(value: ir.Attribute) -> ir.Value:
    """Build a constant of a typed attribute."""
    return ir.Operation.create("arith.constant", results=[value.type], attributes={"value": value}).result


def index_constant(value: int) -> ir.Value:
    """Build a constant of type ``index``."""
    return constant(ir.IntegerAttr.get(ir.IndexType.get(), value))


def collapsed(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Build a collapse of a value that merges the dims of each group."""
    shape, element = shape_of(value), ir.RankedTensorType(value.type).element_type
    type_ = ir.RankedTensorType.get([math.prod(shape[dim] for dim in group) for group in groups], element)
    attributes = {"reassociation": _reassociation(groups)}
    return ir.Operation.create(
        "tensor.collapse_shape", results=[type_], operands=[value], attributes=attributes
    ).result


def expanded(value: ir.Value, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> ir.Value:
    """Build an expand of a value that splits each dim into the dims of a group."""
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
    attributes = {
        "reassociation": _reassociation(groups),
        "static_output_shape": ir.DenseI64ArrayAttr.get(list(shape)),
    }
    return ir.Operation.create(
        "tensor.expand_shape", results=[type_], operands=[value], attributes=attributes
    ).result


def _reassociation(groups: Sequence[Sequence[int]]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get(
        [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, dim) for dim in group]) for group in groups]
    )


def generic_op(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[Map], rank: int, reduced: int
) -> ir.Operation:
    """Build a ``linalg.generic`` without a body, whose last ``reduced`` dims are reduced."""
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(affine_map(dims, rank)) for dims in maps]),
        "iterator_types": iterators(rank, frozenset(range(rank - reduced, rank))),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
    }
    return ir.Operation.create(
        "linalg.generic",
        results=[output.type],
        operands=[*inputs, output],
        attributes=attributes,
        regions=1,
    )


def empty_like(value: ir.Value) -> ir.Value:
    """Build an empty tensor of the type of ``value``."""
    return ir.Operation.create("tensor.empty", results=[value.type]).result

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules for the ops of ``tensor``: every computed index, offset and size is checked against its bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.indices import READ_INDEX, bounds_of_index, element_of_index
from spyre_mlir.host.block import BlockScope, Frame, Kernel, check_indices, failure, integer, only_block
from spyre_mlir.host.number_types import number_type, tensor_shape
from spyre_mlir.mlir import ir

#: Mark of a dynamic number in an attribute: MLIR's ShapedType::kDynamic.
_DYNAMIC = -(1 << 63)


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tensor_shape(value.type)


def _segments(op: ir.Operation) -> list[int]:
    return list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))


def _mixed(op: ir.Operation, name: str, dynamic: Sequence[NDArray[Any]]) -> list[int]:
    """Return the numbers of an attribute, with operands for the dynamic ones."""
    numbers = list(ir.DenseI64ArrayAttr(op.attributes[name]))
    if numbers.count(_DYNAMIC) != len(dynamic):
        raise failure(op, f"has {len(dynamic)} operands for the unknown numbers of {name}")
    rest = iter(dynamic)
    return [integer(next(rest)) if number == _DYNAMIC else number for number in numbers]


def _split(op: ir.Operation, operands: Sequence[NDArray[Any]]) -> list[list[NDArray[Any]]]:
    """Return the operands by their segments."""
    parts, start = [], 0
    for count in _segments(op):
        parts.append(list(operands[start : start + count]))
        start += count
    return parts


def empty_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.empty``: zeros, so that unwritten elements are the same in every run."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    return lambda frame: (np.zeros(shape, number.storage),)


def extract_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.extract``: one element, or in a body one element at each point of the loops."""
    shape, number = _shape(op.operands[0]), number_type(op.operands[0].type)

    def kernel(frame: Frame, source: NDArray[Any], *indices: NDArray[Any]) -> tuple[NDArray[Any]]:
        """Elements at the indices."""
        for dim, (index, size) in enumerate(zip(indices, shape, strict=True)):
            check_indices(op, index, size, dim, "reads at")
        return (number.widened(np.asarray(source[tuple(indices)])),)

    return kernel


def read_index_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``sdsc.read_index``: an index, checked against its range and normalised to count from the front."""
    element, (lower, upper, operation) = element_of_index(op), bounds_of_index(op)

    def kernel(frame: Frame, source: NDArray[Any]) -> tuple[NDArray[Any]]:
        """The element."""
        index = int(source.flat[element])
        if not lower <= index < upper:
            raise failure(op, f"reads {index}, an index of {operation}, which takes {lower} to {upper - 1}")
        return (np.array(index + upper if index < 0 else index),)

    return kernel


def insert_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.insert``."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    scope.charge(op, math.prod(shape))

    def kernel(
        frame: Frame, scalar: NDArray[Any], target: NDArray[Any], *indices: NDArray[Any]
    ) -> tuple[NDArray[Any]]:
        """Copy of the target with one element replaced."""
        for dim, (index, size) in enumerate(zip(indices, shape, strict=True)):
            check_indices(op, index, size, dim, "writes at")
        result = np.array(target)
        # Tensors are values: the target may have other users.
        result[tuple(map(integer, indices))] = number.rounded(np.reshape(scalar, ()))
        return (result,)

    return kernel


def _slices(op: ir.Operation, shape: Sequence[int], numbers: Sequence[Sequence[int]]) -> tuple[slice, ...]:
    """Return the slices of offsets, sizes and strides; ``CompileError`` if they leave the shape."""
    slices = []
    for dim, (offset, size, stride, extent) in enumerate(zip(*numbers, shape, strict=True)):
        if stride < 1 or size < 0:
            raise failure(op, f"has the size {size} and the stride {stride} in dim {dim}")
        last = offset + max(size - 1, 0) * stride
        if offset < 0 or (size and last >= extent) or offset > extent:
            raise failure(op, f"reaches from {offset} to {last} in dim {dim}, which has {extent} indices")
        slices.append(slice(offset, last + 1 if size else offset, stride))
    return tuple(slices)


def _slice_numbers(op: ir.Operation, segments: Sequence[Sequence[NDArray[Any]]]) -> list[list[int]]:
    """Offsets, sizes and strides of an op."""
    names = ("static_offsets", "static_sizes", "static_strides")
    return [_mixed(op, name, values) for name, values in zip(names, segments, strict=True)]


def extract_slice_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.extract_slice``."""
    shape, result = _shape(op.operands[0]), _shape(op.results[0])

    def kernel(frame: Frame, *operands: NDArray[Any]) -> tuple[NDArray[Any]]:
        """View of the slice."""
        (source,), *dynamic = _split(op, operands)
        part = source[_slices(op, shape, _slice_numbers(op, dynamic))]
        return (_with_shape(op, part, result),)

    return kernel


def insert_slice_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.insert_slice``."""
    shape = _shape(op.results[0])
    scope.charge(op, math.prod(shape))

    def kernel(frame: Frame, *operands: NDArray[Any]) -> tuple[NDArray[Any]]:
        """Copy of the target with the slice replaced."""
        (source,), (target,), *dynamic = _split(op, operands)
        numbers = _slice_numbers(op, dynamic)
        result = np.array(target)
        result[_slices(op, shape, numbers)] = _with_shape(op, source, tuple(numbers[1]))
        return (result,)

    return kernel


def _with_shape(op: ir.Operation, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array in another shape; ``CompileError`` if the number of elements differs."""
    if array.size != math.prod(shape):
        raise failure(op, f"makes a tensor of {shape} from one of {array.shape}")
    return array.reshape(shape)


def pad_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.pad`` by one value: the body must not depend on the index."""
    block = only_block(op)
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    if any(True for argument in block.arguments for _ in argument.uses):
        raise failure(op, "pads by a value that depends on the place, which has no rule")
    body = scope.block(block, "tensor.yield", op)
    # The body's arguments are indices, which the body does not read.
    zeros = [np.zeros((), np.int64)] * len(shape)

    def kernel(frame: Frame, source: NDArray[Any], *dynamic: NDArray[Any]) -> tuple[NDArray[Any]]:
        """Padded copy of the source."""
        _, low, high = _split(op, (source, *dynamic))
        low, high = _mixed(op, "static_low", low), _mixed(op, "static_high", high)
        if min((*low, *high), default=0) < 0:
            raise failure(op, f"pads by {low} and {high}, which must not be negative")
        sizes = tuple(a + b + c for a, b, c in zip(low, source.shape, high, strict=True))
        if sizes != shape:
            raise failure(op, f"pads to {sizes}, not to {shape}")
        (value,) = body.run(frame, zeros)
        result = np.full(shape, number.stored(np.reshape(value, ())), number.storage)
        result[tuple(slice(a, a + b) for a, b in zip(low, source.shape, strict=True))] = source
        return (result,)

    return kernel


def concat_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.concat``."""
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    result = _shape(op.results[0])
    return lambda frame, *parts: (_with_shape(op, np.concatenate(parts, axis=dim), result),)


def reshape_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for expand_shape, collapse_shape and reshape: row-major elements in the shape of the result."""
    result = _shape(op.results[0])
    return lambda frame, source, *sizes: (_with_shape(op, source, result),)


def identity_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for tensor.cast, and for ops that only set a layout on the device."""
    source, result = op.operands[0].type, op.results[0].type
    if tensor_shape(source) != tensor_shape(result) or number_type(source) != number_type(result):
        raise failure(op, f"makes {result} from {source}")
    return lambda frame, source: (source,)


def splat_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.splat``."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    scope.charge(op, math.prod(shape))
    return lambda frame, scalar: (np.full(shape, number.stored(np.reshape(scalar, ())), number.storage),)


def from_elements_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.from_elements``."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)

    def kernel(frame: Frame, *scalars: NDArray[Any]) -> tuple[NDArray[Any]]:
        """Tensor of these scalars."""
        elements = np.array([np.reshape(scalar, ()) for scalar in scalars])
        return (number.stored(elements.astype(number.computed)).reshape(shape),)

    return kernel


def generate_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.generate``: one run of the body per element."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    body = scope.block(only_block(op), "tensor.yield", op)

    def kernel(frame: Frame) -> tuple[NDArray[Any]]:
        """Tensor of the yielded scalars."""
        result = np.zeros(shape, number.storage)
        for place in np.ndindex(shape):
            frame.charge(op, body)
            (value,) = body.run(frame, [np.array(index) for index in place])
            result[place] = number.rounded(np.reshape(value, ()))
        return (result,)

    return kernel


def dim_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.dim``."""
    shape = _shape(op.operands[0])

    def kernel(frame: Frame, source: NDArray[Any], dim: NDArray[Any]) -> tuple[NDArray[Any]]:
        """Size of the dim."""
        if not 0 <= integer(dim) < len(shape):
            raise failure(op, f"asks for dim {integer(dim)} of a tensor of rank {len(shape)}")
        return (np.array(shape[integer(dim)]),)

    return kernel


def rank_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.rank``."""
    rank = np.array(len(_shape(op.operands[0])))
    return lambda frame, source: (rank,)


RULES = {
    "tensor.empty": empty_rule,
    "tensor.extract": extract_rule,
    "tensor.insert": insert_rule,
    "tensor.extract_slice": extract_slice_rule,
    "tensor.insert_slice": insert_slice_rule,
    "tensor.pad": pad_rule,
    "tensor.concat": concat_rule,
    "tensor.expand_shape": reshape_rule,
    "tensor.collapse_shape": reshape_rule,
    "tensor.reshape": reshape_rule,
    "tensor.cast": identity_rule,
    "stick.pin": identity_rule,
    "stick.restickify": identity_rule,
    "tensor.splat": splat_rule,
    "tensor.from_elements": from_elements_rule,
    "tensor.generate": generate_rule,
    "tensor.dim": dim_rule,
    "tensor.rank": rank_rule,
    READ_INDEX: read_index_rule,
}

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
from spyre_mlir.host.reductions import COMBINERS, Combiner
from spyre_mlir.mlir import ir

#: Mark of a dynamic number in an attribute: MLIR's ShapedType::kDynamic.
_DYNAMIC = -(1 << 63)


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tensor_shape(value.type)


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
    for count in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]):
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
        for dim, (index, size) in enumerate(zip(indices, shape, strict=True)):
            check_indices(op, index, size, dim, "reads at")
        return (number.widened(np.asarray(source[tuple(indices)])),)

    return kernel


def read_index_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``sdsc.read_index``: an index, checked against its range and normalised to count from the front."""
    element, (lower, upper, operation) = element_of_index(op), bounds_of_index(op)

    def kernel(frame: Frame, source: NDArray[Any]) -> tuple[NDArray[Any]]:
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
        (source,), *dynamic = _split(op, operands)
        part = source[_slices(op, shape, _slice_numbers(op, dynamic))]
        return (_with_shape(op, part, result),)

    return kernel


def insert_slice_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.insert_slice``."""
    shape = _shape(op.results[0])
    scope.charge(op, math.prod(shape))

    def kernel(frame: Frame, *operands: NDArray[Any]) -> tuple[NDArray[Any]]:
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
        elements = np.array([np.reshape(scalar, ()) for scalar in scalars])
        return (number.stored(elements.astype(number.computed)).reshape(shape),)

    return kernel


def generate_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.generate``: one run of the body per element."""
    shape, number = _shape(op.results[0]), number_type(op.results[0].type)
    body = scope.block(only_block(op), "tensor.yield", op)

    def kernel(frame: Frame) -> tuple[NDArray[Any]]:
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
        if not 0 <= integer(dim) < len(shape):
            raise failure(op, f"has the dim {integer(dim)} of a tensor of rank {len(shape)}")
        return (np.array(shape[integer(dim)]),)

    return kernel


def rank_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``tensor.rank``."""
    rank = np.array(len(_shape(op.operands[0])))
    return lambda frame, source: (rank,)


# Rules for torch-mlir's ``tm_tensor``: scans, scatters and sorts, with the bodies that torch-mlir writes.


def _combiner(block: ir.Block) -> Combiner | None:
    """Return the combiner of a body that yields a function of its two arguments; None for another body."""
    ops = [entry.operation for entry in block.operations]
    if len(ops) != 2 or ops[0].name not in COMBINERS or set(ops[0].operands) != set(block.arguments):
        return None
    return COMBINERS[ops[0].name] if ops[1].operands[0] == ops[0].results[0] else None


def _dimension(op: ir.Operation, rank: int) -> int:
    """Return the dim of a scan or sort; ``CompileError`` if the tensor does not have it."""
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    if not 0 <= dim < rank:
        raise failure(op, f"has the dimension {dim} for a tensor of rank {rank}")
    return dim


def scan_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for scans: ``out[i] = f(out[i - 1], in[i])``; exclusive scans take in[i - 1], the accumulator first."""
    shape, block = tensor_shape(op.operands[0].type), only_block(op)
    dim, number = _dimension(op, len(shape)), number_type(op.operands[0].type)
    inclusive = ir.BoolAttr(op.attributes["inclusive"]).value
    body, combiner = scope.block(block, "tm_tensor.yield", op), _combiner(block)
    scope.charge(op, math.prod(shape) * len(body.calls))

    def kernel(
        frame: Frame, source: NDArray[Any], out: NDArray[Any], last: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        if not source.size:
            return np.array(out), np.array(last)
        values = np.moveaxis(source.astype(number.accumulated), dim, -1)
        if not inclusive:
            first = last.astype(number.accumulated)[..., None]
            values = np.concatenate([first, values[..., :-1]], axis=-1)
        scanned = _scan(frame, values)
        whole = last if values.shape[-1] == 1 else number.stored(scanned[..., -1])
        return number.stored(np.moveaxis(scanned, -1, dim)), np.array(whole)

    def _scan(frame: Frame, values: NDArray[Any]) -> NDArray[Any]:
        if combiner is not None:
            return combiner.ufunc(values.dtype).accumulate(values, axis=-1)
        scanned = np.array(values)
        for index in range(1, values.shape[-1]):
            frame.charge(op, body)
            (scanned[..., index],) = body.run(frame, [scanned[..., index - 1], values[..., index]])
        return scanned

    return kernel


def scatter_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``out[indices[n] + slice] = f(updates[n, slice], out[..])``; a slice has the last dims of ``out``."""
    updates, indices, shape = (tensor_shape(value.type) for value in op.operands)
    number, block = number_type(op.results[0].type), only_block(op)
    dims = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    # The first dim of out in a slice.
    first = len(shape) - (len(updates) - 1)
    known = first >= 0 and len(indices) == 2 and indices[0] == updates[0] and indices[1] == len(dims)
    if not known or len(set(dims)) != len(dims) or not {*range(first)} <= {*dims} <= {*range(len(shape))}:
        raise failure(op, f"has a scatter of {updates} by {indices} into {shape}, which has no rule")
    rank = len(shape)
    while rank > first and rank - 1 not in dims and updates[rank - first] == shape[rank - 1]:
        # All later dims are whole rows.
        rank -= 1
    body, combiner = scope.block(block, "tm_tensor.yield", op), _combiner(block)
    is_replacement = block.operations[len(block.operations) - 1].operation.operands[0] == block.arguments[0]
    scope.charge(op, math.prod(updates) + math.prod(shape))
    places_shape = updates[: rank - first + 1]

    def kernel(
        frame: Frame, values: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]
    ) -> tuple[NDArray[Any]]:
        flat = np.zeros(places_shape, np.int64)
        for dim in range(rank):
            place = _axis(0, len(places_shape), np.zeros(1, np.int64))
            if dim >= first:
                place = place + _axis(dim - first + 1, len(places_shape), np.arange(updates[dim - first + 1]))
            if dim in dims:
                column = indices[:, dims.index(dim)].astype(np.int64)
                place = place + _axis(0, len(places_shape), column)
            check_indices(op, place, shape[dim], dim, "writes at")
            flat = flat * shape[dim] + place
        target = out.astype(number.accumulated).reshape(math.prod(shape[:rank]), math.prod(shape[rank:]))
        wide = values.astype(number.accumulated).reshape(flat.size, math.prod(shape[rank:]))
        rows = flat.reshape(-1)
        if is_replacement:
            # The last update of a row is kept: np.unique returns its first index in reverse order.
            unique, latest = np.unique(rows[::-1], return_index=True)
            target[unique] = wide[::-1][latest]
        elif combiner is not None:
            # Unlike an indexed assignment, ufunc.at combines every update of a repeated row.
            combiner.ufunc(target.dtype).at(target, rows, wide)
        else:
            for row, update in zip(rows, wide, strict=True):
                frame.charge(op, body)
                (target[row],) = body.run(frame, [update, target[row]])
        return (number.stored(target.reshape(shape)),)

    return kernel


def _axis(axis: int, rank: int, values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that varies along one of several axes."""
    return values.reshape([-1 if dim == axis else 1 for dim in range(rank)])


#: True if the smaller value comes first, by the predicate of arith.cmpf and arith.cmpi.
_ASCENDS_FLOAT = {2: False, 3: False, 4: True, 5: True, 9: False, 10: False, 11: True, 12: True}
_ASCENDS_INTEGER = {2: True, 3: True, 4: False, 5: False}


def sort_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for sorts of the first operand along a dim, and the others with it. Sorts are stable, and NaN is largest."""
    shape, block = tensor_shape(op.operands[0].type), only_block(op)
    dim = _dimension(op, len(shape))
    scope.block(block, "tm_tensor.yield", op)
    compare, end = block.operations[0].operation, block.operations[len(block.operations) - 1].operation
    is_compared = len(block.operations) == 2 and compare.name in ("arith.cmpf", "arith.cmpi")
    ascends, first, second = None, -1, -1
    if is_compared and end.operands[0] == compare.results[0]:
        predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
        ascends = (_ASCENDS_FLOAT if compare.name == "arith.cmpf" else _ASCENDS_INTEGER).get(predicate)
        arguments = list(block.arguments)
        first, second = (arguments.index(value) if value in arguments else -1 for value in compare.operands)
    # A body has two arguments per operand, of which it compares two of one operand.
    if ascends is None or min(first, second) < 0 or first // 2 != second // 2 or first == second:
        raise failure(op, "sorts by a comparison that has no rule")
    key, ascending = first // 2, ascends if first < second else not ascends
    scope.charge(op, math.prod(shape) * max(1, len(op.operands)))

    def kernel(frame: Frame, *operands: NDArray[Any]) -> list[NDArray[Any]]:
        # A stable descending sort: reversed, sorted ascending, and reversed again.
        keys = operands[key] if ascending else np.flip(operands[key], dim)
        order = np.argsort(keys, axis=dim, kind="stable")
        if not ascending:
            order = np.flip(shape[dim] - 1 - order, dim)
        return [np.take_along_axis(operand, order, axis=dim) for operand in operands]

    return kernel


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
    "tm_tensor.scan": scan_rule,
    "tm_tensor.scatter": scatter_rule,
    "tm_tensor.sort": sort_rule,
}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluation of linalg functions on numpy arrays: host functions, constants, and the reference of ``--check``.

A function is a list of numpy kernels, built by a rule per op. Only ops in the tables of rules can run: an op without a
rule, another symbol or a type without a bound is a ``CompileError`` when the evaluator is built, so a file from an
untrusted source can only compute. Indices, divisors and loops are checked during the run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.indices import READ_INDEX, bounds_of_index, element_of_index
from spyre_mlir.errors import CompileError, FailedAssertionError
from spyre_mlir.host import scalar_ops, structured_ops, torch_kernels
from spyre_mlir.host.block import BlockScope, Frame, Kernel, check_indices, failure, integer, only_block
from spyre_mlir.host.number_types import is_tensor, number_type, tensor_shape
from spyre_mlir.host.reductions import COMBINERS, Combiner
from spyre_mlir.mlir import ir, location_of, source_note

# Rules for the ops of ``tensor``: every computed index, offset and size is checked against its bound.

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


TENSOR_RULES = {
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


# Rules for control flow of ``scf``, and for assertions.


def for_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.for``: the body runs for each index from the lower to the upper bound, on its iter_args."""
    body = scope.block(only_block(op), "scf.yield", op)

    def kernel(
        frame: Frame, lower: NDArray[Any], upper: NDArray[Any], step: NDArray[Any], *iter_args: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Run the loop; return the yielded values of its last iteration."""
        bounds = [integer(bound) for bound in (lower, upper, step)]
        if bounds[2] < 1:
            raise failure(op, f"has the step {bounds[2]}")
        values = list(iter_args)
        for index in range(*bounds):
            # Bounds are data, so a loop can be stopped only while it runs.
            frame.charge(op, body)
            values = body.run(frame, [np.array(index, dtype=np.asarray(lower).dtype), *values])
        return values

    return kernel


def if_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.if``, whose else region may be missing if it has no results."""
    chosen = scope.block(only_block(op, 0), "scf.yield", op)
    has_other = len(list(op.regions[1].blocks)) > 0
    if not has_other and len(op.results):
        raise failure(op, "has results but no else")
    other = scope.block(only_block(op, 1), "scf.yield", op) if has_other else None

    def kernel(frame: Frame, condition: NDArray[Any]) -> list[NDArray[Any]]:
        branch = chosen if integer(condition) else other
        return [] if branch is None else branch.run(frame)

    return kernel


def while_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.while``: while the first region's condition holds, the second computes new iter_args."""
    before = scope.block(only_block(op, 0), "scf.condition", op)
    after = scope.block(only_block(op, 1), "scf.yield", op)

    def kernel(frame: Frame, *iter_args: NDArray[Any]) -> list[NDArray[Any]]:
        """Run the loop; return the values that the first region passes on when its condition fails."""
        values = list(iter_args)
        while True:
            frame.charge(op, before)
            condition, *passed = before.run(frame, values)
            if not integer(condition):
                return passed
            frame.charge(op, after)
            values = after.run(frame, passed)

    return kernel


def assert_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``cf.assert``: ``FailedAssertionError`` with its message if the condition fails."""
    message = ir.StringAttr(op.attributes["msg"]).value

    def kernel(frame: Frame, condition: NDArray[Any]) -> tuple[()]:
        if not np.all(condition):
            place = location_of(op.location), "", source_note(op.location, "module")
            raise FailedAssertionError(f"An assertion does not hold: {message.rstrip('.')}.", *place)
        return ()

    return kernel


RULES = {
    **scalar_ops.RULES,
    **TENSOR_RULES,
    **structured_ops.RULES,
    "scf.for": for_rule,
    "scf.if": if_rule,
    "scf.while": while_rule,
    "cf.assert": assert_rule,
    **torch_kernels.RULES,
}


class HostEvaluator:
    """``HostEvaluator(module)(x, w) -> [y]``: the one function of a module, on arrays of the signature's shapes.

    Sums are accumulated in float64; powers and roots of 16-bit floats in float32, and rounded at an op's result.
    bfloat16 is passed as bits in uint16. Raises ``CompileError`` for an op without a rule, and on a call for arrays of
    other shapes, an index out of bounds, an integer division by 0, a failed assertion, or an endless loop.
    """

    def __init__(self, module: ir.Module | ir.OpView | ir.Operation) -> None:
        # The ops live as long as the module does.
        self._module = module
        ops = [entry.operation for entry in module.operation.regions[0].blocks[0].operations]
        other = next((op for op in ops if op.name != "func.func"), None)
        if other is not None:
            raise failure(other, "is not allowed in the module of a host function, which is one func.func")
        if len(ops) != 1 or not ops[0].regions[0].blocks:
            where = location_of(module.operation.location)
            raise CompileError("The module of a host function is one function with a body.", where)
        (self._func,) = ops
        signature = ir.FunctionType(ir.TypeAttr(self._func.attributes["function_type"]).value)
        self._inputs = [_tensor(type_, self._func) for type_ in signature.inputs]
        self._results = [_tensor(type_, self._func) for type_ in signature.results]
        scope = BlockScope(RULES)
        self._body = scope.block(only_block(self._func), "func.return", self._func)
        self._slots = len(scope.slots)

    @property
    def work(self) -> int:
        """The scalar operations of a call; each loop counts once."""
        return self._body.work

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        self._check(arrays)
        numbers = [number_type(type_) for type_ in self._inputs]
        operands = [number.from_host(array) for number, array in zip(numbers, arrays, strict=True)]
        # Infinities and NaN are results and not warnings, as in PyTorch.
        with np.errstate(all="ignore"):
            try:
                results = self._body.run(Frame([None] * self._slots), operands)
            except MemoryError as error:
                raise failure(self._func, "needs more memory than there is") from error
        return [
            number_type(type_).to_host(array) for type_, array in zip(self._results, results, strict=True)
        ]

    def _check(self, arrays: Sequence[NDArray[Any]]) -> None:
        name = ir.StringAttr(self._func.attributes["sym_name"]).value
        if len(arrays) != len(self._inputs):
            raise CompileError(f"@{name} takes {len(self._inputs)} arrays, not {len(arrays)}.")
        for index, (array, type_) in enumerate(zip(arrays, self._inputs, strict=True)):
            shape, dtype = tensor_shape(type_), number_type(type_).host
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                actual = (
                    f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                )
                raise CompileError(f"Argument {index} of @{name} is {dtype} {shape}, not {actual}.")


def evaluate(module: ir.Module) -> list[NDArray[Any]]:
    """Return the results of a function without arguments."""
    return HostEvaluator(module)()


def _tensor(type_: ir.Type, func: ir.Operation) -> ir.Type:
    """Return a type of the signature, which must be a tensor of static shape and of a number type of the host."""
    if not is_tensor(type_):
        raise failure(func, f"takes and returns tensors, not {type_}")
    try:
        tensor_shape(type_)
        number_type(type_)
    except CompileError as error:
        raise CompileError(error.message, location_of(func.location)) from error
    return type_


_UNCOUNTED = {"arith.constant", "tensor.empty", "linalg.fill", "func.return"}


class HostFunction(HostEvaluator):
    """``HostFunction(module)(x, indices) -> [y]``: the function @main of a module.

    Arrays have the types of the simulator: bfloat16 is given as float32 numbers or bits in uint16, and returned as
    bits. Raises ``CompileError`` for an unsupported host function, and for a call that fails.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        super().__init__(module)

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        dtypes = [number_type(type_).host for type_ in self._inputs]
        return super().__call__(*(as_bits(array, type_) for array, type_ in zip(arrays, dtypes, strict=True)))

    @property
    def counts(self) -> tuple[int, int]:
        """The number of arguments and the number of results."""
        return len(self._inputs), len(self._results)

    @property
    def operations(self) -> int:
        """The number of ops that compute or move tensors, without constants and empty tensors."""
        body = self.module.body.operations[0].regions[0].blocks[0].operations
        return sum(op.operation.name not in _UNCOUNTED for op in body)

    @functools.cached_property
    def bytes(self) -> int:
        """The bytes that one execution of each of these ops reads and writes."""
        body = self.module.body.operations[0].regions[0].blocks[0].operations
        ops = (op.operation for op in body if op.operation.name not in _UNCOUNTED)
        types = (value.type for op in ops for value in (*op.operands, *op.results))
        shaped = [ir.RankedTensorType(type_) for type_ in types if isinstance(type_, ir.RankedTensorType)]
        return sum(math.prod(type_.shape) * number_type(type_).host.itemsize for type_ in shaped)

    def text(self) -> str:
        """The text of the module, with its locations."""
        return str(self.module.operation.get_asm(enable_debug_info=True)) + "\n"


def as_bits(array: NDArray[Any], dtype: np.dtype) -> NDArray[Any]:
    """Return a float32 array as bfloat16 bits if ``dtype`` is uint16; the simulator only returns exact numbers."""
    if dtype == np.uint16 and array.dtype == np.float32:
        return np.asarray(np.asarray(array).view(np.uint32) >> np.uint32(16), dtype=np.uint16)
    return np.asarray(array)

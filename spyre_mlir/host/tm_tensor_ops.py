# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules for torch-mlir's ``tm_tensor``: scans, scatters and sorts, with the bodies that torch-mlir writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.host.block import Block, BlockScope, Frame, Kernel, check_indices, failure, only_block
from spyre_mlir.host.number_types import number_type, tensor_shape
from spyre_mlir.host.reductions import COMBINERS, Combiner
from spyre_mlir.mlir import ir


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
        """Scanned tensor, and its last row."""
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
    write = _writer(op, scope.block(block, "tm_tensor.yield", op), block)
    scope.charge(op, math.prod(updates) + math.prod(shape))
    places_shape = updates[: rank - first + 1]

    def kernel(
        frame: Frame, values: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]
    ) -> tuple[NDArray[Any]]:
        """Copy of ``out`` with the updates written."""
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
        write(frame, target, flat.reshape(-1), wide)
        return (number.stored(target.reshape(shape)),)

    return kernel


def _axis(axis: int, rank: int, values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that varies along one of several axes."""
    return values.reshape([-1 if dim == axis else 1 for dim in range(rank)])


def _writer(
    op: ir.Operation, body: Block, block: ir.Block
) -> Callable[[Frame, NDArray[Any], NDArray[Any], NDArray[Any]], None]:
    """Return a function that writes updates into rows of a target, in the order of the updates."""
    (end,) = list(block.operations)[-1:]
    combiner = _combiner(block)

    def replace(frame: Frame, target: NDArray[Any], rows: NDArray[Any], updates: NDArray[Any]) -> None:
        # np.unique returns the first index of a row: in reverse order, the index of the last update.
        """Write rows; of several updates of one row the last one is kept."""
        unique, first = np.unique(rows[::-1], return_index=True)
        target[unique] = updates[::-1][first]

    def combine(frame: Frame, target: NDArray[Any], rows: NDArray[Any], updates: NDArray[Any]) -> None:
        """Combine rows with the updates."""
        assert combiner is not None
        # Unlike an indexed assignment, ufunc.at combines every update of a repeated row.
        combiner.ufunc(target.dtype).at(target, rows, updates)

    def one_by_one(frame: Frame, target: NDArray[Any], rows: NDArray[Any], updates: NDArray[Any]) -> None:
        """Run the body for each update."""
        for row, update in zip(rows, updates, strict=True):
            frame.charge(op, body)
            (target[row],) = body.run(frame, [update, target[row]])

    if end.operation.operands[0] == block.arguments[0]:
        return replace
    return combine if combiner is not None else one_by_one


#: True if the smaller value comes first, by the predicate of arith.cmpf and arith.cmpi.
_ASCENDS_FLOAT = {2: False, 3: False, 4: True, 5: True, 9: False, 10: False, 11: True, 12: True}
_ASCENDS_INTEGER = {2: True, 3: True, 4: False, 5: False}


def sort_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for sorts of the first operand along a dim, and the others with it. Sorts are stable, and NaN is largest."""
    shape = tensor_shape(op.operands[0].type)
    dim = _dimension(op, len(shape))
    scope.block(only_block(op), "tm_tensor.yield", op)
    key, ascending = _sort_key(op)
    scope.charge(op, math.prod(shape) * max(1, len(op.operands)))

    def kernel(frame: Frame, *operands: NDArray[Any]) -> list[NDArray[Any]]:
        """Operands in the order of the keys."""
        # A stable descending sort: reversed, sorted ascending, and reversed again.
        keys = operands[key] if ascending else np.flip(operands[key], dim)
        order = np.argsort(keys, axis=dim, kind="stable")
        if not ascending:
            order = np.flip(shape[dim] - 1 - order, dim)
        return [np.take_along_axis(operand, order, axis=dim) for operand in operands]

    return kernel


def _sort_key(op: ir.Operation) -> tuple[int, bool]:
    """Return the index of the compared operand, and True for ascending order; a body has two arguments per operand."""
    block = only_block(op)
    ops = [entry.operation for entry in block.operations]
    arguments = list(block.arguments)
    if (
        len(ops) == 2
        and ops[0].name in ("arith.cmpf", "arith.cmpi")
        and ops[1].operands[0] == ops[0].results[0]
    ):
        predicate = ir.IntegerAttr(ops[0].attributes["predicate"]).value
        ascends = (_ASCENDS_FLOAT if ops[0].name == "arith.cmpf" else _ASCENDS_INTEGER).get(predicate)
        first, second = (arguments.index(value) if value in arguments else -1 for value in ops[0].operands)
        if ascends is not None and min(first, second) >= 0 and first // 2 == second // 2 and first != second:
            return first // 2, ascends if first < second else not ascends
    raise failure(op, "sorts by a comparison that has no rule")


RULES = {"tm_tensor.scan": scan_rule, "tm_tensor.scatter": scatter_rule, "tm_tensor.sort": sort_rule}

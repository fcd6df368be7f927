# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Window unrolling: unroll an op with sliding windows into a chain of ops without windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Map, defining_op, filled, shape_of, use_empty
from spyre_mlir.layout.rules import RULES, Role
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.im2col import Im2Col
from spyre_mlir.rewriting.linalg_values import device_element
from spyre_mlir.rewriting.tensor_builders import (
    collapsed,
    constant_pad,
    empty_like,
    expanded,
    extracted,
    generic_op,
    transposed,
)
from spyre_mlir.target.ops import Kind

#: Maximum number of row dims that a matmul of the device accepts.
MOST_ROWS = next(limit.maximum or 0 for limit in RULES[Kind.MATMUL].dim_counts if limit.role is Role.ROW)


class Unrolling:
    """The chain of one op, such as a convolution or a pooling.

    A *tap* is one position of the kernel, and ``tap_dims`` are its iteration dims. ``merged`` are the iteration dims
    that become one row dim, ``order`` the dims of the source in the order of its transpose.
    """

    def __init__(self, windowed: Windowed) -> None:
        self.windowed = windowed
        self.body = windowed.op.regions[0].blocks[0]
        self.combine = _combining_op(windowed)
        self.merged = self._merged()
        self.order = self._order()
        self.tap_dims = self._tap_dims()

    def run(self) -> ir.Value:
        source = self._source()
        neutral = self._neutral([self._extent(dim) for dim in self.tap_dims if dim in self.windowed.result])
        result = None
        for row in self.windowed.rows():
            partial = neutral
            for number, tap in enumerate(row):
                partial = self._tap(source, tap, partial, is_first=number == 0)
            result = partial if result is None else self._combined(result, partial)
        assert result is not None
        return self._finished(self._restored(result))

    def as_matmul(self, form: Im2Col) -> ir.Value:
        """Build one matmul instead of a chain."""
        source, weight = form.source(), form.weight()
        rows = len(form.rows)
        neutral = self._neutral([*shape_of(source)[:rows], shape_of(weight)[0]])
        operands = {True: (source, (*range(rows), rows + 1)), False: (weight, (rows, rows + 1))}
        read = [operands[dims is None] for dims in self.windowed.others]
        maps = [*(dims for _, dims in read), tuple(range(rows + 1))]
        matmul = generic_op([value for value, _ in read], neutral, maps, rows + 2, 1)
        self._write(matmul, list(self.body.arguments), alone=False)
        return self._finished(form.restored(matmul.results[0]))

    def _finished(self, result: ir.Value) -> ir.Value:
        """Return the result of all taps, combined with the initial value of the destination."""
        *_, destination = self.windowed.op.operands
        if _is_neutral(destination, self.combine):
            return result
        return self._combined(result, *_spread(destination))

    # -- the op ---------------------------------------------------------------------------------------

    def _merged(self) -> tuple[int, ...]:
        """Return the output dims that become one row dim: of all windows but the last, and the images; or ()."""
        windowed, extents = self.windowed, self.windowed.extents
        outputs = [window.output for window in windowed.windows]
        rows = [dim for dim in (*outputs, *windowed.images) if extents[dim] > 1]
        # Only a matmul limits the number of row dims; a pooling may have any number.
        contracts = any(extents[dim] > 1 for dim in windowed.reduced)
        return (*outputs[:-1], *windowed.images) if contracts and len(rows) > MOST_ROWS else ()

    def _order(self) -> tuple[int, ...]:
        """Return the dims of the source in the order of its transpose: windows and images first, channels last."""
        indices = self.windowed.indices
        windows = [dim for dim, index in enumerate(indices) if isinstance(index, Window)]
        images = [indices.index(dim) for dim in self.merged if dim in self.windowed.images]
        first = [*windows[:-1], *images, *windows[-1:]]
        return (*first, *(dim for dim in range(len(indices)) if dim not in first))

    def _tap_dims(self) -> tuple[int, ...]:
        """Return the iteration dims of a tap, result dims first; the first merged dim stands for the merged dim."""
        windowed = self.windowed
        sliding = [iterated_by(windowed.indices[dim]) for dim in self.order]
        outputs = [dim for dim in sliding if dim in windowed.result]
        outputs += [dim for dim in windowed.result if dim not in outputs and dim is not None]
        return tuple(dim for dim in (*outputs, *windowed.reduced) if dim not in self.merged[1:])

    def _dims(self, iterated: Sequence[int | None]) -> Map:
        """Return the map of a tap's operand, given the iteration dims of the op that index the operand."""
        unmerged = (dim for dim in iterated if dim not in self.merged[1:])
        return tuple(None if dim is None else self.tap_dims.index(dim) for dim in unmerged)

    def _extent(self, dim: int) -> int:
        """Return the size of an iteration dim of a tap."""
        merged = self.merged if dim in self.merged else (dim,)
        return math.prod(self.windowed.extents[iteration_dim] for iteration_dim in merged)

    # -- the source -----------------------------------------------------------------------------------

    def _source(self) -> ir.Value:
        """Return the transposed source; a pad becomes a pad of the transpose, so that the transpose stays a view."""
        value = self.windowed.inputs[self.windowed.source]
        pad = padded(value)
        if pad is None:
            return transposed(value, self.order)
        inner, number, amounts = pad
        low, high = ([amount[dim] for dim in self.order] for amount in amounts)
        shape = [shape_of(value)[dim] for dim in self.order]
        for position, dim in enumerate(self.order):
            # Pad to whole steps; otherwise each strided slice would need a copy.
            rest = -shape[position] % self._stride(dim)
            high[position] += rest
            shape[position] += rest
        return constant_pad(transposed(inner, self.order), number, low, high, shape)

    def _stride(self, dim: int) -> int:
        """Return the stride of a tap in a dim of the source, in elements."""
        index = self.windowed.indices[dim]
        return index.stride if isinstance(index, Window) and self.windowed.extents[index.output] > 1 else 1

    def _slice(self, source: ir.Value, tap: dict[int, int]) -> ir.Value:
        """Return the slice of the source that one tap reads, with rows and images as one dim if they are merged."""
        offsets, sizes, strides = [], [], []
        for dim in self.order:
            index = self.windowed.indices[dim]
            sliding = isinstance(index, Window)
            offsets.append(index.dilation * tap[index.kernel] if sliding else 0)
            sizes.append(self.windowed.extents[iterated_by(index)])
            strides.append(self._stride(dim))
        part = extracted(source, offsets, sizes, strides)
        if not self.merged:
            return part
        if strides[0] > 1 or len(self.windowed.windows) > 2:
            # The rows of the slice are not contiguous in the source.
            part = sdsc.clone(part, self.windowed.op.location)
        groups = [list(range(len(self.merged))), *([dim] for dim in range(len(self.merged), len(sizes)))]
        return collapsed(part, groups)

    def _other(self, value: ir.Value, dims: Map, tap: dict[int, int]) -> ir.Value:
        """Return the part of another input, such as a weight, that belongs to a tap."""
        if not any(dim in tap for dim in dims):
            return value
        shape = shape_of(value)
        offsets = [tap.get(dim, 0) if dim is not None else 0 for dim in dims]
        sizes = [1 if dim in tap else size for dim, size in zip(dims, shape, strict=True)]
        tap_shape = [size for dim, size in zip(dims, shape, strict=True) if dim not in tap]
        return extracted(value, offsets, sizes, [1] * len(shape), tap_shape)

    # -- taps -----------------------------------------------------------------------------------------

    def _tap(self, source: ir.Value, tap: dict[int, int], before: ir.Value, is_first: bool) -> ir.Value:
        """Build one tap, combined with the previous taps."""
        windowed, arguments = self.windowed, list(self.body.arguments)
        inputs, maps, read = [], [], []
        for operand, (value, dims) in enumerate(zip(windowed.inputs, windowed.others, strict=True)):
            if use_empty(arguments[operand]):
                continue
            read.append(arguments[operand])
            if dims is None:
                inputs.append(self._slice(source, tap))
                maps.append(self._dims([iterated_by(windowed.indices[dim]) for dim in self.order]))
            else:
                inputs.append(self._other(value, dims, tap))
                maps.append(self._dims([dim for dim in dims if dim not in tap]))
        rank, reduced = len(self.tap_dims), len(windowed.reduced)
        maps.append(tuple(range(rank - reduced)))
        tap_op = generic_op(inputs, before, maps, rank, reduced)
        self._write(tap_op, [*read, arguments[-1]], alone=is_first and not reduced)
        return tap_op.results[0]

    def _write(self, tap_op: ir.Operation, arguments: list[ir.Value], alone: bool) -> None:
        """Write the body of a tap; if the tap is ``alone``, without the combination with a neutral element."""
        block = ir.Block.create_at_start(tap_op.regions[0], [argument.type for argument in arguments])
        values = dict(zip(arguments, block.arguments, strict=True))
        accumulator = arguments[-1]
        with ir.InsertionPoint(block):
            for op in [op.operation for op in self.body.operations]:
                if alone and op == self.combine:
                    operand = next(operand for operand in op.operands if operand != accumulator)
                    values[op.results[0]] = values.get(operand, operand)
                    continue
                copy = op.clone().operation
                for index, operand in enumerate(op.operands):
                    copy.operands[index] = values.get(operand, operand)
                values.update(zip(op.results, copy.results, strict=True))

    # -- the result -----------------------------------------------------------------------------------

    def _neutral(self, shape: Sequence[int]) -> ir.Value:
        """Build a tensor of the neutral element, for the first tap of a row."""
        element = ir.RankedTensorType(self.windowed.op.results[0].type).element_type
        combination = scalar.combination(self.combine.name)
        assert combination is not None
        value = ir.FloatAttr.get(element, combination.neutral)
        constant = ir.Operation.create(
            "arith.constant", results=[element], attributes={"value": value}
        ).result
        empty = ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get(list(shape), element)]
        ).result
        return filled(constant, empty)

    def _restored(self, result: ir.Value) -> ir.Value:
        """Return the result in the dims and order of the op."""
        outputs = [dim for dim in self.tap_dims if dim in self.windowed.result]
        if self.merged:
            position = outputs.index(self.merged[0])
            outputs[position : position + 1] = self.merged
            groups = [[dim] for dim in range(len(outputs) - len(self.merged) + 1)]
            groups[position] = list(range(position, position + len(self.merged)))
            groups[position + 1 :] = [[dim + len(self.merged) - 1] for (dim,) in groups[position + 1 :]]
            result = expanded(result, groups, [self.windowed.extents[dim] for dim in outputs])
        return transposed(result, [outputs.index(dim) for dim in self.windowed.result if dim is not None])

    def _combined(self, result: ir.Value, other: ir.Value, dims: Map | None = None) -> ir.Value:
        """Combine two partial results, or the result of all taps with an initial value that has only ``dims``."""
        every = tuple(range(len(shape_of(result))))
        maps = [every, every if dims is None else dims, every]
        combined = generic_op([result, other], empty_like(result), maps, len(every), 0)
        element = ir.RankedTensorType(result.type).element_type
        block = ir.Block.create_at_start(combined.regions[0], [element] * 3)
        with ir.InsertionPoint(block):
            operands = list(block.arguments)[:2]
            value = ir.Operation.create(self.combine.name, results=[element], operands=operands).result
            ir.Operation.create("linalg.yield", operands=[value])
        return combined.results[0]


def _combining_op(windowed: Windowed) -> ir.Operation:
    """Return the scalar op that combines positions of the kernel."""
    body = windowed.op.regions[0].blocks[0]
    *ops, terminator = [op.operation for op in body.operations]
    yielded, accumulator = terminator.operands[0], list(body.arguments)[-1]
    uses = [use.owner.operation for use in accumulator.uses]
    combine = next((op for op in ops if op.results[0] == yielded), None)
    # Another use of the accumulator would depend on the order of taps.
    if combine is None or uses != [combine] or scalar.combination(combine.name) is None:
        _refuse(windowed.op, "sums, products, minima and maxima")
    if not isinstance(accumulator.type, ir.FloatType):
        _refuse(windowed.op, "those of floating-point numbers")
    return combine


def _refuse(op: ir.Operation, what: str) -> NoReturn:
    raise error_at(op, f"the windows of this '{op.name}' have no device operation; {what} have")


def iterated_by(index: int | Window | None) -> int:
    """Return the iteration dim of an index: the output dim of a window, or the dim itself."""
    assert index is not None
    return index.output if isinstance(index, Window) else index


def _is_neutral(destination: ir.Value, combine: ir.Operation) -> bool:
    """Return whether the initial value of an op is the neutral element of its combination."""
    fill = defining_op(destination)
    if fill is None or fill.name != "linalg.fill":
        return False
    source = defining_op(fill.operands[0])
    number = scalar.scalar_constant(source) if source is not None else None
    element = device_element(str(combine.results[0].type), combine.location)
    return number is not None and scalar.is_neutral(combine.name, number, element)


def _spread(destination: ir.Value) -> tuple[ir.Value, Map]:
    """Return the source of a broadcast destination, and the dims of the destination that the source has."""
    every = tuple(range(len(shape_of(destination))))
    op = defining_op(destination)
    if op is None or op.name != "linalg.broadcast":
        return destination, every
    added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    return op.operands[0], tuple(dim for dim in every if dim not in added)


def padded(value: ir.Value) -> tuple[ir.Value, ir.Operation, tuple[list[int], list[int]]] | None:
    """Return the source of a pad, its constant, and the low and high amounts; None for another value.

    The pad may be followed by an ``expand_shape`` that splits dims without padding, such as channels into groups.
    """
    op = defining_op(value)
    groups = None
    if op is not None and op.name == "tensor.expand_shape":
        groups = [[ir.IntegerAttr(dim).value for dim in group] for group in op.attributes["reassociation"]]
        op = defining_op(op.operands[0])
    number = _number_of(op) if op is not None and op.name == "tensor.pad" and len(op.operands) == 1 else None
    if op is None or number is None:
        return None
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_low", "static_high"))
    if groups is None:
        return op.operands[0], number, (low, high)
    if any(len(group) > 1 and (low[position] or high[position]) for position, group in enumerate(groups)):
        return None
    shape = list(shape_of(value))
    for position, group in enumerate(groups):
        shape[group[0]] = shape_of(op.operands[0])[position] if len(group) == 1 else shape[group[0]]
    low, high = (
        [amount[position] for position, group in enumerate(groups) for _ in group] for amount in (low, high)
    )
    return expanded(op.operands[0], groups, shape), number, (low, high)


def _number_of(pad: ir.Operation) -> ir.Operation | None:
    """Return the constant that a ``tensor.pad`` pads with; None if the padding value is computed."""
    terminator = list(pad.regions[0].blocks[0].operations)[-1].operation
    op = defining_op(terminator.operands[0])
    return op if op is not None and op.name == "arith.constant" else None

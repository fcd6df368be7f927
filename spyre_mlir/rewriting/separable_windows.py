# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Poolings whose windows are reduced dim by dim: an op per position of each dim, not of the whole kernel."""

from __future__ import annotations

import math

from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import extracted, generic_op
from spyre_mlir.rewriting.window_unrolling import Unrolling, iterated_by


class Separable(Unrolling):
    """The chains of a pooling, one chain per dim that it slides over, last dim first.

        y[i, j] = sum over p of (sum over q of x[s*i + d*p, s*j + d*q])
    ->  r[h, j] = sum over q of x[h, s*j + d*q],  y[i, j] = sum over p of r[s*i + d*p, j]

    Maxima and minima are exact in any order. Sums of two dims are the same ones in the same order as tap by tap.
    """

    def run(self) -> ir.Value:
        value = self._source()
        for window in reversed(self.windowed.windows):
            value = self._reduced_along(window, value, maps_elements=window is self.windowed.windows[-1])
        return self._finished(self._restored(value))

    def _reduced_along(self, window: Window, source: ir.Value, maps_elements: bool) -> ir.Value:
        """Reduce one dim; the first reduction also computes the pooling's function of each element."""
        axis = self.order.index(self.windowed.indices.index(window))
        sizes = list(shape_of(source))
        offsets, strides = [0] * len(sizes), [1] * len(sizes)
        sizes[axis], strides[axis] = self.windowed.extents[window.output], self._stride(self.order[axis])
        every, result = tuple(range(len(sizes))), self._neutral(sizes)
        for position in range(self.windowed.extents[window.kernel]):
            offsets[axis] = window.dilation * position
            part = extracted(source, offsets, sizes, strides)
            tap = generic_op([part], result, [every, every], len(sizes), 0)
            if maps_elements:
                self._write(tap, self._arguments(), alone=position == 0)
            else:
                self._combine(tap, alone=position == 0)
            result = tap.results[0]
        return result

    def _arguments(self) -> list[ir.Value]:
        """The arguments of the body that a tap has: the element and the accumulator."""
        arguments = list(self.body.arguments)
        return [arguments[self.windowed.source], arguments[-1]]

    def _combine(self, tap: ir.Operation, alone: bool) -> None:
        """The body of a tap of partial results."""
        types = [ir.RankedTensorType(operand.type).element_type for operand in tap.operands]
        block = ir.Block.create_at_start(tap.regions[0], types)
        with ir.InsertionPoint(block):
            value, accumulator = block.arguments
            if not alone:
                operands = [accumulator, value]
                value = ir.Operation.create(self.combine.name, results=types[1:], operands=operands).result
            ir.Operation.create("linalg.yield", operands=[value])


def is_separable(windowed: Windowed) -> bool:
    """Return whether an op is a pooling that computes fewer elements dim by dim than tap by tap."""
    arguments = list(windowed.op.regions[0].blocks[0].arguments)
    others = [argument for index, argument in enumerate(arguments[:-1]) if index != windowed.source]
    if len(windowed.windows) < 2 or windowed.reduced or any(True for other in others for _ in other.uses):
        return False
    return _elements_by_dim(windowed) < math.prod(windowed.extents)


def _elements_by_dim(windowed: Windowed) -> int:
    """Elements that all taps compute, dim by dim, last dim first."""
    sizes = {index: _input_extent(windowed, index) for index in windowed.indices if index is not None}
    count = 0
    for window in reversed(windowed.windows):
        sizes[window] = windowed.extents[window.output]
        count += windowed.extents[window.kernel] * math.prod(sizes.values())
    return count


def _input_extent(windowed: Windowed, index: int | Window) -> int:
    """Elements of a dim of the source from the first that a window reads to the last."""
    steps = windowed.extents[iterated_by(index)] - 1
    if not isinstance(index, Window):
        return steps + 1
    return index.stride * steps + index.dilation * (windowed.extents[index.kernel] - 1) + 1

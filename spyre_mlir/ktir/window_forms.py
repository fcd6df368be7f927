# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and poolings in KTIR: a loop over the window positions, each a view of the padded operand in LX.

Padding is not in memory, so it is made explicit: every core copies its part of the operand into a buffer of neutral
numbers. A window position is then a view of that buffer with another first element, strided by the window strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from spyre_mlir.bundle.model import WindowDim
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.compute_forms import ProductDigits, computed, store_product
from spyre_mlir.ktir.counted_loops import counted_loop
from spyre_mlir.ktir.operand_tiles import TileDigit, refined, shape_of_digits
from spyre_mlir.ktir.operation_lowering import OperationLowering, Tensor, TileStep
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import SCALARS


def convolution(lowering: OperationLowering) -> None:
    """Build a convolution that contracts channels: the sum of one product per window position."""
    windows = _PaddedOperand.of(lowering)
    kernel = [digit for digit in lowering.digits(1) if digit.label not in windows.kernels]
    digits = ProductDigits.of(lowering, windows.digits, kernel)

    def body(number: ir.Value, total: ir.Value | None) -> ir.Value:
        steps = windows.positions(number)
        assert total is not None
        return digits.multiplied(lowering, windows.tensor(steps), lowering.at(steps).tensor(1), total)

    # Each product rounds to f16, but the sum does not.
    store_product(lowering, digits, windows.loop(lowering.build.filled(digits.shape, "f32", 0), body))


def pooling(lowering: OperationLowering) -> None:
    """Build a pooling: the combination of the elements at all window positions, one position at a time."""
    build, combine = lowering.build, lowering.op.combine
    assert combine is not None
    windows = _PaddedOperand.of(lowering)
    shape = shape_of_digits(windows.digits)

    def body(number: ir.Value, total: ir.Value | None) -> ir.Value:
        steps = windows.positions(number)
        assert total is not None
        others = [lowering.at(steps).tensor(k) for k in range(1, lowering.op.arity)]
        inputs = [
            windows.tensor(steps).value,
            *(lowering.arranged(other, windows.digits) for other in others),
        ]
        value = build.cast(computed(lowering, inputs, is_wide=combine == "add"), element_of(total))
        return build.op(SCALARS[combine].op, total.type, total, value)

    total = build.filled(shape, "f32" if combine == "add" else lowering.elements[0], lowering.neutral)
    lowering.store(Tensor(windows.loop(total, body), windows.digits))


@dataclass(frozen=True)
class _PaddedDim:
    """A dim of the padded operand, of ``size`` positions: ``count`` are in a view, ``held`` come from its memory.

    ``window`` slides along it, if any does; ``offsets`` are the positions of padding before the data of each core.
    """

    label: str
    weight: int
    size: int
    count: int
    held: int
    offsets: tuple[int, ...] = ()
    window: WindowDim | None = None


class _PaddedOperand:
    """The first operand with its padding, in LX from element ``base`` on; ``digits`` are the digits of its views."""

    def __init__(self, lowering: OperationLowering, dims: list[_PaddedDim], base: int) -> None:
        self.lowering, self.dims, self.base = lowering, dims, base
        self.windows = [dim.window for dim in dims if dim.window is not None]
        self.count = math.prod(window.extent for window in self.windows)
        self.kernels = frozenset(window.kernel for window in self.windows)
        self.strides = [math.prod(dim.size for dim in dims[number + 1 :]) for number in range(len(dims))]
        viewed = [TileDigit(dim.label, dim.weight, dim.count) for dim in dims]
        # The operation does not have weights for a dim that has one position in every memory.
        self.digits = refined(viewed, {dim.label: (1,) for dim in dims} | lowering.weights)

    @classmethod
    def of(cls, lowering: OperationLowering) -> _PaddedOperand:
        """Copy the operand into a buffer of neutral numbers in LX."""
        dims = _padded_dims(lowering)
        shape, element = [dim.size for dim in dims], lowering.elements[0]
        build, memory = lowering.build, lowering.state.memory
        padded = cls(lowering, dims, memory.stage(element, math.prod(shape)))
        view = memory.local_view(build.number(padded.base), shape, padded.strides, element)
        value = build.reshaped(_valid_positions(lowering), [dim.held for dim in dims])
        if shape_of(value) != tuple(shape):
            zeros = [build.number(0)] * len(dims)
            memory.store_to(view, zeros, build.filled(shape, element, lowering.neutral))
        cores = lowering.state.cores
        offsets = [cores.value([*dim.offsets, *[0] * (cores.cores - len(dim.offsets))]) for dim in dims]
        memory.store_to(view, offsets, value)
        return padded

    def loop(self, initial: ir.Value, body: Callable[[ir.Value, ir.Value | None], ir.Value]) -> ir.Value:
        """Build a loop over the window positions, with one iter_arg."""
        lowering = self.lowering
        value = counted_loop(lowering.state.memory, lowering.build.number(self.count), initial, body)
        assert value is not None
        return value

    def positions(self, number: ir.Value) -> list[TileStep]:
        """Build the position along each dim of the window from the index of a window position."""
        build, positions = self.lowering.build, []
        rest = self.count
        for window in self.windows:
            value = number
            if rest < self.count:
                value = build.op("arith.remui", build.index, value, build.number(rest))
            rest //= window.extent
            if rest > 1:
                value = build.op("arith.divui", build.index, value, build.number(rest))
            positions.append(TileStep(window.kernel, 1, 1, value))
        return positions

    def tensor(self, positions: Sequence[TileStep]) -> Tensor:
        """Load the elements of all windows at one window position."""
        numbers = {position.label: position.number for position in positions}
        lowering = self.lowering
        build, memory, element = lowering.build, lowering.state.memory, lowering.elements[0]
        base, strides = build.number(self.base), []
        for dim, stride in zip(self.dims, self.strides, strict=True):
            strides.append(stride * (dim.window.stride if dim.window else 1))
            if dim.window is not None:
                base = build.add(base, build.times(numbers[dim.window.kernel], stride * dim.window.dilation))
        counts = [dim.count for dim in self.dims]
        view = memory.local_view(base, counts, strides, element)
        value = memory.load_from(view, [build.number(0)] * len(counts), counts, element)
        return Tensor(build.reshaped(value, shape_of_digits(self.digits)), self.digits)


def _padded_dims(lowering: OperationLowering) -> list[_PaddedDim]:
    """Return the dims of the padded operand: first the dims with one position in memory, then the axes in memory."""
    operand, tile = lowering.design.operands[0], lowering.tiles[0]
    known = {axis.dim for axis in tile.axes}
    dims = [_slid(lowering, label, None) for label in operand.windows if label not in known]
    for number, axis in enumerate(tile.axes):
        if axis.dim not in operand.windows:
            dims.append(_PaddedDim(axis.dim, axis.weight, axis.count, axis.count, axis.count))
        elif axis.weight > 1 or axis.dim == operand.stick_dim:
            raise CompileError(f"The windows of '{lowering.design.opcode}' slide along its sticks.")
        else:
            dims.append(_slid(lowering, axis.dim, number))
    return dims


def _slid(lowering: OperationLowering, label: str, axis: int | None) -> _PaddedDim:
    """Return the dim along which a window slides; its positions in memory are along an axis."""
    design, tile = lowering.design, lowering.tiles[0]
    window, share = design.operands[0].windows[label], design.shares[label]
    offsets = []
    for core in sorted(tile.firsts):
        first = design.core_slices[core][label] * share * window.stride - window.before
        offsets.append((0 if axis is None else tile.firsts[core][axis]) - first)
    held = 1 if axis is None else tile.axes[axis].count
    size = max((share - 1) * window.stride + window.reach, max(offsets) + held)
    return _PaddedDim(label, 1, size, share, held, tuple(offsets), window)


def _valid_positions(lowering: OperationLowering) -> ir.Value:
    """Load the operand, with neutral numbers where a core has fewer positions along a window than others."""
    tensor, tile = lowering.tensor(0), lowering.tiles[0]
    # A load from memory already gives 0 there.
    if lowering.neutral == 0 and not lowering.is_tensor(0):
        return tensor.value
    build, cores = lowering.build, lowering.state.cores
    ends = {}
    for number, axis in enumerate(tile.axes):
        counts = [tile.counts[core][number] for core in sorted(tile.counts)]
        if axis.dim in lowering.design.operands[0].windows and set(counts) != {axis.count}:
            ends[axis.dim] = cores.value([*counts, *[0] * (cores.cores - len(counts))])
    return lowering.bounded(tensor.value, tensor.digits, ends, dict.fromkeys(ends, build.number(0)))

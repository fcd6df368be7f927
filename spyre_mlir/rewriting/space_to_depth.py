# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Space to depth: a convolution by steps over few channels as one by single steps, over steps of rows as channels."""

from __future__ import annotations

import math

from spyre_mlir.analysis.windows import Window, Windowed, windowed
from spyre_mlir.dialects import stick
from spyre_mlir.dialects.structured import Map, element_of, iterators, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.native_windows import NativeWindows
from spyre_mlir.rewriting.tensor_builders import collapsed, constant_pad, expanded, transposed


@dataclass(frozen=True)
class SpaceToDepth:
    """A convolution of an image of few channels, which fill little of a stick, rewritten.

        y[i, j, f] = sum over c, p, q of x[c, s*i + p - b, s*j + q - b] * w[f, c, p, q]
    ->  y[i, j, f] = sum over k, p, q of x'[i + p - b', j + q - b', k] * w'[f, p, q, k],  k for c and s x s pixels

    The host writes an argument so: ``x'`` has its elements, ``s * s`` pixels side by side. The kernel is padded in
    front to where a step begins, and behind to whole steps.
    """

    native: NativeWindows

    def rewritten(self) -> Windowed:
        """Build the op by single steps behind the old one, and return its windows."""
        old, windows = self.native.windowed, self.native.windows
        before = [self.native.pad.before[old.indices.index(window)] for window in windows]
        steps = [-(-amount // window.stride) for amount, window in zip(before, windows, strict=True)]
        source, weight = self._source(), self._weight(before, steps)
        counts = [old.extents[window.output] for window in windows]
        sizes = shape_of(weight)[1 : 1 + len(windows)]
        padded = [count + size - 1 for count, size in zip(counts, sizes, strict=True)]
        source = self._padded(source, steps, padded)
        operands = {True: source, False: weight}
        inputs = [operands[dims is None] for dims in old.others]
        op = self._op(inputs)
        result = windowed(op)
        assert result is not None
        return result

    def fits(self) -> bool:
        """Return whether the host can write the image so, and fewer bytes of it then."""
        value, old, windows = self.native.pad.value, self.native.windowed, self.native.windows
        # Groups of channels are no images, and features are those of each of them.
        if self.native.opcode != "conv2d" or set(self._images()) & set(self._weight_dims()):
            return False
        if not isinstance(value.owner, ir.Block) or stick.has_layout(value.type):
            return False
        if len(windows) != len(old.windows) or any(
            window.dilation > 1 or self._size(window) % window.stride for window in windows
        ):
            return False
        view: HostView | None = HostView.whole(shape_of(value))
        for step in self._steps():
            view = view and view.after(step)
        lanes = elements_per_stick(target_of(old.op), "f16")
        area = math.prod(window.stride for window in windows)
        channels = old.extents[self._channel()]
        fewer = -(-channels * area // lanes) < area * -(-channels // lanes)
        return view is not None and fewer and view.gathers_sticks(lanes)

    def _size(self, window: Window) -> int:
        return shape_of(self.native.pad.value)[self.native.windowed.indices.index(window)]

    def _channel(self) -> int:
        return self.native.windowed.reduced[0]

    def _images(self) -> list[int]:
        """The iteration dims of the source besides windows and channels."""
        indices = self.native.windowed.indices
        return [index for index in indices if isinstance(index, int) and index != self._channel()]

    def _weight_dims(self) -> Map:
        return next(dims for dims in self.native.windowed.others if dims is not None)

    # -- operands -------------------------------------------------------------------------------------

    def _steps(self) -> tuple[Expand, Transpose, Collapse]:
        """The view operations: images and steps of rows and columns first, then channels and the pixels of a step."""
        old, value = self.native.windowed, self.native.pad.value
        groups, shape, place = [], [], {}
        for dim, index in enumerate(old.indices):
            size, first = shape_of(value)[dim], len(shape)
            place[dim] = first
            stride = index.stride if isinstance(index, Window) else 1
            parts = [size // stride, stride] if isinstance(index, Window) else [size]
            groups.append(tuple(range(first, first + len(parts))))
            shape += parts
        slid = [dim for dim, index in enumerate(old.indices) if isinstance(index, Window)]
        channel = old.indices.index(self._channel())
        images = [dim for dim in range(len(old.indices)) if dim not in slid and dim != channel]
        # Channels outermost: a stick then begins with whole rows of pixels, which the host can gather.
        order = [place[dim] for dim in (*images, *slid, channel)] + [place[dim] + 1 for dim in slid]
        rank = len(images) + len(slid)
        merged = (*((dim,) for dim in range(rank)), tuple(range(rank, len(order))))
        return Expand(tuple(groups), tuple(shape)), Transpose(tuple(order)), Collapse(merged)

    def _source(self) -> ir.Value:
        expand, order, collapse = self._steps()
        value = expanded(self.native.pad.value, expand.groups, expand.shape)
        return collapsed(transposed(value, order.permutation), collapse.groups)

    def _weight(self, before: list[int], steps: list[int]) -> ir.Value:
        """The weight as [features, windows.., channels and pixels of a step]."""
        old, windows = self.native.windowed, self.native.windows
        dims = self._weight_dims()
        value = old.inputs[old.others.index(dims)]
        (feature,) = [dim for dim in dims if dim in old.result]
        order = [feature, self._channel(), *(window.kernel for window in windows)]
        value = transposed(value, [dims.index(dim) for dim in order])
        low, high, shape = [0, 0], [0, 0], list(shape_of(value))
        for number, window in enumerate(windows):
            front = steps[number] * window.stride - before[number]
            low.append(front)
            high.append(-(front + shape[2 + number]) % window.stride)
        padded = [first + size + last for first, size, last in zip(low, shape, high, strict=True)]
        value = constant_pad(value, self._zero(element_of(value)), low, high, padded)
        parts = [
            size
            for number, window in enumerate(windows)
            for size in (padded[2 + number] // window.stride, window.stride)
        ]
        groups = [[0], [1], *([2 + 2 * number, 3 + 2 * number] for number in range(len(windows)))]
        value = expanded(value, groups, [*padded[:2], *parts])
        taps, pixels = ([2 + 2 * number + part for number in range(len(windows))] for part in (0, 1))
        value = transposed(value, [0, *taps, 1, *pixels])
        rank = 1 + len(windows)
        return collapsed(value, [*([dim] for dim in range(rank)), range(rank, len(shape_of(value)))])

    def _padded(self, source: ir.Value, before: list[int], sizes: list[int]) -> ir.Value:
        """The image with the padding of the windows, which the operation of the device takes up again."""
        shape = list(shape_of(source))
        images = len(shape) - 1 - len(before)
        low, high = [0] * len(shape), [0] * len(shape)
        for number, (amount, size) in enumerate(zip(before, sizes, strict=True)):
            low[images + number] = amount
            high[images + number] = max(size - amount - shape[images + number], 0)
        if not any((*low, *high)):
            return source
        padded = [first + size + last for first, size, last in zip(low, shape, high, strict=True)]
        return constant_pad(source, self._zero(element_of(source)), low, high, padded)

    def _zero(self, element: str) -> ir.Operation:
        type_ = ir.Type.parse(element)
        value = ir.FloatAttr.get(type_, 0.0)
        return ir.Operation.create("arith.constant", results=[type_], attributes={"value": value})

    # -- the op ---------------------------------------------------------------------------------------

    def _op(self, inputs: list[ir.Value]) -> ir.Operation:
        """The op over the same result, with the same body: images, windows, features, kernels, contracted."""
        old, windows = self.native.windowed, self.native.windows
        outputs = [window.output for window in windows]
        images = self._images()
        (feature,) = [dim for dim in self._weight_dims() if dim in old.result]
        order = [*images, *outputs, feature]
        rank, count = len(order) + len(windows) + 1, len(windows)
        d = [ir.AffineDimExpr.get(number) for number in range(rank)]
        kernels, contracted = d[len(order) : -1], d[-1]
        rows = d[len(images) : len(images) + count]
        slid = [row + kernel for row, kernel in zip(rows, kernels, strict=True)]
        source = ir.AffineMap.get(rank, 0, [*d[: len(images)], *slid, contracted])
        weight = ir.AffineMap.get(rank, 0, [d[len(order) - 1], *kernels, contracted])
        result = ir.AffineMap.get(rank, 0, [d[order.index(dim)] for dim in old.result if dim is not None])
        maps = [*(source if dims is None else weight for dims in old.others), result]
        destination = list(old.op.operands)[-1]
        op = ir.Operation.create(
            "linalg.generic",
            results=[old.op.results[0].type],
            operands=[*inputs, destination],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": iterators(rank, frozenset(range(len(order), rank))),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
            },
            regions=1,
        )
        body = old.op.regions[0].blocks[0]
        block = ir.Block.create_at_start(op.regions[0], [argument.type for argument in body.arguments])
        values = dict(zip(body.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for scalar in [item.operation for item in body.operations]:
                copy = scalar.clone().operation
                for number, operand in enumerate(scalar.operands):
                    copy.operands[number] = values.get(operand, operand)
                values.update(zip(scalar.results, copy.results, strict=True))
        return op

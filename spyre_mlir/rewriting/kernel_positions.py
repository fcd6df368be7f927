# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions whose kernel has more positions than their result: a matmul per position of the result."""

from __future__ import annotations

import itertools
import math

from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Map, element_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import (
    collapsed,
    concatenated,
    constant_pad,
    expanded,
    extracted,
    generic_op,
    transposed,
)
from spyre_mlir.rewriting.window_unrolling import Unrolling, iterated_by, padded

#: Positions of a kernel up to which there is a matmul for each: convolutions of networks have fewer.
_MANY = 64


class ByPosition(Unrolling):
    """The gradient of a weight is such a convolution: its kernel is the gradient of the result, as large as an image.

        y[f, n, i, j] = sum over k of w[f, k] * x_ij[k, n],  k for all of p, q, c

    ``x_ij`` is the slice of the source that one position reads.
    """

    def run(self) -> ir.Value:
        """Build a matmul per position of the result and concatenate them."""
        windowed = self.windowed
        source, weight = self._source(), self._weight()
        parts = [self._part(source, weight, offsets) for offsets in self._offsets()]
        outputs = [window.output for window in windowed.windows]
        order = [*outputs, *self._features, *self._columns]
        whole = concatenated(parts, 0) if len(parts) > 1 else parts[0]
        ends = [len(outputs), len(outputs) + len(self._features), len(order)]
        groups = [list(range(begin, end)) for begin, end in itertools.pairwise([0, *ends])]
        whole = expanded(whole, groups, [windowed.extents[dim] for dim in order])
        return self._finished(
            transposed(whole, [order.index(dim) for dim in windowed.result if dim is not None])
        )

    @property
    def _weight_dims(self) -> Map:
        return next(dims for dims in self.windowed.others if dims is not None)

    @property
    def _columns(self) -> list[int]:
        """The dims of the result that the source has besides the windows."""
        return [dim for dim in self.windowed.result if dim in self.windowed.indices and dim is not None]

    @property
    def _features(self) -> list[int]:
        return [dim for dim in self.windowed.result if dim in self._weight_dims and dim is not None]

    @property
    def _contracted(self) -> list[int]:
        return [*self.windowed.kernel, *self.windowed.reduced]

    def _merged(self) -> tuple[int, ...]:
        return ()

    def _order(self) -> tuple[int, ...]:
        """The dims of the source in the order of its transpose: windows, contracted dims, columns."""
        indices = self.windowed.indices
        windows = [dim for dim, index in enumerate(indices) if isinstance(index, Window)]
        reduced = [dim for dim, index in enumerate(indices) if index in self.windowed.reduced]
        return (*windows, *reduced, *(indices.index(dim) for dim in self._columns))

    def _source(self) -> ir.Value:
        value = self.windowed.inputs[self.windowed.source]
        pad = padded(value)
        if pad is None:
            return transposed(value, self.order)
        inner, number, amounts = pad
        low, high = ([amount[dim] for dim in self.order] for amount in amounts)
        shape = [ir.RankedTensorType(value.type).shape[dim] for dim in self.order]
        return constant_pad(transposed(inner, self.order), number, low, high, shape)

    def _weight(self) -> ir.Value:
        """The weight as [features, contracted], all contracted dims as one."""
        dims, windowed = self._weight_dims, self.windowed
        value = windowed.inputs[windowed.others.index(dims)]
        order = [dims.index(dim) for dim in (*self._features, *self._contracted)]
        split = len(self._features)
        if math.prod(windowed.extents[dim] for dim in self._contracted) % elements_per_stick(
            target_of(windowed.op), element_of(value)
        ):
            # A transfer bounds single dims of the host, not several that end together within a stick.
            value = sdsc.clone(value, windowed.op.location)
        return collapsed(transposed(value, order), [range(split), range(split, len(order))])

    def _offsets(self) -> list[tuple[int, ...]]:
        """Offsets of the first element that each position of the result reads, per window."""
        windows = self.windowed.windows
        steps = (range(self.windowed.extents[window.output]) for window in windows)
        return [
            tuple(index * window.stride for index, window in zip(position, windows, strict=True))
            for position in itertools.product(*steps)
        ]

    def _part(self, source: ir.Value, weight: ir.Value, offsets: tuple[int, ...]) -> ir.Value:
        """The result at one position: [1, features, columns]."""
        windowed = self.windowed
        indices = [windowed.indices[dim] for dim in self.order]
        read = [index.kernel if isinstance(index, Window) else iterated_by(index) for index in indices]
        sizes = [windowed.extents[dim] for dim in read]
        strides = [index.dilation if isinstance(index, Window) else 1 for index in indices]
        begins = [*offsets, *([0] * (len(indices) - len(offsets)))]
        part = sdsc.clone(extracted(source, begins, sizes, strides), windowed.op.location)
        split = len(self._contracted)
        part = collapsed(part, [range(split), range(split, len(sizes))])
        rows, columns = (
            math.prod(windowed.extents[dim] for dim in dims) for dims in (self._features, self._columns)
        )
        operands = {True: (part, (2, 1)), False: (weight, (0, 2))}
        inputs = [operands[dims is None] for dims in windowed.others]
        maps = [*(dims for _, dims in inputs), (0, 1)]
        matmul = generic_op([value for value, _ in inputs], self._neutral([rows, columns]), maps, 3, 1)
        self._write(matmul, list(self.body.arguments), alone=False)
        return expanded(matmul.results[0], [[0, 1], [2]], [1, rows, columns])


def is_by_position(windowed: Windowed) -> bool:
    """Return whether an op is a convolution with many positions of its kernel, and fewer of its result."""
    weights = [dims for dims in windowed.others if dims is not None]
    kernel, outputs = (
        math.prod(windowed.extents[dim] for dim in dims)
        for dims in (windowed.kernel, [window.output for window in windowed.windows])
    )
    if len(weights) != 1 or kernel <= max(outputs, _MANY):
        return False
    (weight,) = weights
    columns = [index for index in windowed.indices if isinstance(index, int) and index in windowed.result]
    contracted = {*windowed.kernel, *windowed.reduced}
    return (
        None not in weight
        and contracted <= set(weight)
        and all(
            index in columns or index in windowed.reduced
            for index in windowed.indices
            if isinstance(index, int)
        )
        and set(windowed.reduced) <= set(windowed.indices)
        and bool(columns)
        and not set(columns) & set(weight)
        and bool(set(windowed.result) & set(weight))
    )

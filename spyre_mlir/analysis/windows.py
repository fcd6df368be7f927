# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sliding windows of structured ops, such as convolutions and poolings, read from their indexing maps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from spyre_mlir.dialects.structured import Map, shape_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Window:
    """The index ``stride * output + dilation * kernel`` of an operand dim; ``output``, ``kernel``: iteration dims."""

    output: int
    kernel: int
    stride: int
    dilation: int


#: The ops whose maps are read: named ops with windows, and ``linalg.generic``, which may have any map.
SLIDING = ("linalg.generic", "linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_")

#: The index of each dim of an operand: an iteration dim, None for the constant 0, or a window.
Indices = tuple[int | Window | None, ...]


@dataclass(frozen=True)
class Windowed:
    """The parts of an op that slides a window over one input.

    ``source`` is the number of this input among ``inputs``, ``indices`` its indices. ``others`` are the maps of the
    inputs, None for ``source``; ``result`` is the map of the result.
    """

    op: ir.Operation
    inputs: tuple[ir.Value, ...]
    source: int
    indices: Indices
    others: tuple[Map | None, ...]
    result: Map
    extents: tuple[int, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows, in the order of the dims that they slide over."""
        return tuple(index for index in self.indices if isinstance(index, Window))

    @property
    def kernel(self) -> tuple[int, ...]:
        """The iteration dims of the kernel."""
        return tuple(window.kernel for window in self.windows)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The reduced iteration dims other than the dims of the kernel."""
        dims = range(len(self.extents))
        return tuple(dim for dim in dims if dim not in self.result and dim not in self.kernel)

    @property
    def images(self) -> tuple[int, ...]:
        """The iteration dims of the source that no other input has: the same kernel applies to each position."""
        shared = {dim for dims in self.others if dims is not None for dim in dims}
        dims = [index for index in self.indices if isinstance(index, int)]
        return tuple(dim for dim in dims if dim not in shared and dim in self.result)

    def rows(self) -> Iterator[list[dict[int, int]]]:
        """Yield the positions of the kernel ("taps") as indices of its iteration dims, in rows along its last dim."""
        *outer, last = self.kernel
        for outer_position in itertools.product(*(range(self.extents[dim]) for dim in outer)):
            row = dict(zip(outer, outer_position, strict=True))
            yield [{**row, last: position} for position in range(self.extents[last])]


def windowed(op: ir.Operation) -> Windowed | None:
    """Match an op whose windows slide over one input; None for any other op."""
    if not op.name.startswith(SLIDING) or len(op.results) != 1:
        return None
    maps = [_indices(map_) for map_ in indexing_maps(op)]
    slides = [any(isinstance(index, Window) for index in indices or ()) for indices in maps]
    if None in maps or slides.count(True) != 1:
        return None
    sizes: dict[int, int] = {}
    for value, indices in zip(op.operands, maps, strict=True):
        for index, size in zip(indices or (), shape_of(value), strict=True):
            if isinstance(index, int):
                sizes[index] = size
    inputs, source, (*read, result) = tuple(op.operands)[:-1], slides.index(True), maps
    dims = range(indexing_maps(op)[0].n_dims)
    # Reject a window over the result, and an iteration dim without an extent, which does not index any dim alone.
    if source == len(inputs) or any(dim not in sizes for dim in dims):
        return None
    others = tuple(None if operand == source else indices for operand, indices in enumerate(read))
    extents = tuple(sizes[dim] for dim in dims)
    candidate = Windowed(op, inputs, source, read[source], others, result, extents)  # type: ignore[arg-type]
    kernel, outputs = set(candidate.kernel), {window.output for window in candidate.windows}
    # Every window has its own reduced kernel dim and its own output dim of the result. ``decompose-to-device-ops``
    # reports other ops, and unknown sizes.
    is_supported = (
        len(kernel | outputs) == 2 * len(candidate.windows)
        and kernel.isdisjoint(candidate.result)
        and outputs <= set(candidate.result)
        and None not in (*candidate.result, *candidate.indices)
        and min(extents) > 0
    )
    return candidate if is_supported else None


def _indices(map_: ir.AffineMap) -> Indices | None:
    """Return the index of each dim of an operand; None for a map with other expressions."""
    indices: list[int | Window | None] = []
    for result in map_.results:
        terms = _terms(result)
        if terms is None or len(terms) > 2:
            return None
        if not terms:
            indices.append(None)
        elif len(terms) == 1 and terms[0][1] == 1:
            indices.append(terms[0][0])
        elif len(terms) == 2:
            (output, stride), (kernel, dilation) = terms
            indices.append(Window(output, kernel, stride, dilation))
        else:
            return None
    return tuple(indices)


def _terms(expression: ir.AffineExpr) -> list[tuple[int, int]] | None:
    """Return a sum of iteration dims times positive numbers as (dim, number) pairs; None for another expression."""
    if isinstance(expression, ir.AffineDimExpr):
        return [(expression.position, 1)]
    if isinstance(expression, ir.AffineConstantExpr):
        return [] if expression.value == 0 else None
    if isinstance(expression, ir.AffineMulExpr):
        dim, number = expression.lhs, expression.rhs
        scaled = isinstance(dim, ir.AffineDimExpr) and isinstance(number, ir.AffineConstantExpr)
        return [(dim.position, number.value)] if scaled and number.value > 0 else None
    if isinstance(expression, ir.AffineAddExpr):
        first, second = _terms(expression.lhs), _terms(expression.rhs)
        return None if first is None or second is None else first + second
    return None

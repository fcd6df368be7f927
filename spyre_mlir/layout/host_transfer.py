# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host transfer of a layout: the three tuples of RFC 0047, with bounds for padded dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.layout.host_view import HostView, Pieces, inner_counts
from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import ViewError
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class DmaTuples:
    """Loop ranges, host strides and device strides in elements, outermost device dim first.

    ``bounds`` contains ``(loops, weights, size)`` for each host dim whose loops run past the end of the dim:
    a position is padding unless ``sum(i_loop * weight) < size``.
    """

    ranges: tuple[int, ...]
    host_strides: tuple[int, ...]
    device_strides: tuple[int, ...]
    bounds: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]

    def stick_outermost(self) -> DmaTuples:
        """Return the loops in reverse order, as in the example of RFC 0047, whose outer loop is in the stick."""
        last = len(self.ranges) - 1
        bounds = (
            (tuple(last - loop for loop in loops), weights, size) for loops, weights, size in self.bounds
        )
        return DmaTuples(self.ranges[::-1], self.host_strides[::-1], self.device_strides[::-1], tuple(bounds))


def dma_tuples(layout: StickLayout, view: HostView | None = None) -> DmaTuples:
    """Return the loop nest that moves a view of a host array into the device array of a layout.

    Args:
        layout: The layout.
        view: The view of the host array. By default the array is dense and row-major.

    Raises:
        ViewError: The pieces of the view do not align with the pieces of the layout.
    """
    shape = layout.shape
    dims = (view or HostView.whole(shape)).dims
    ranges, host_strides, device_strides = [], [], []
    loops: dict[int, list[tuple[int, int]]] = {dim: [] for dim in range(len(shape))}
    for digit, stride in zip(layout.digits, layout.device_strides, strict=True):
        size, divisor = digit.size(shape), digit.divisor
        if digit.dim is None:
            ranges.append(size)
            host_strides.append(0)
            device_strides.append(stride)
            continue
        pieces, whole = dims[digit.dim], divisor * size
        # The last count is the size of the whole dim: it is the end of the dim, not a cut.
        cuts = [count for count in inner_counts(pieces)[:-1] if divisor < count < whole]
        begins = [divisor, *cuts]
        if any(high % low for low, high in itertools.pairwise(begins)) or whole % begins[-1]:
            text = f"pieces of {cuts} positions of the host do not fall on {size} steps of {divisor}"
            raise ViewError(text)
        # A digit has one loop between two cuts, outermost first.
        for begin, end in reversed([*zip(begins, [*cuts, whole], strict=True)]):
            loops[digit.dim].append((len(ranges), begin))
            ranges.append(end // begin)
            host_strides.append(_stride(pieces, begin))
            device_strides.append(stride * (begin // divisor))
    bounds = []
    for dim, size in enumerate(shape):
        reach = 1 + sum((ranges[loop] - 1) * weight for loop, weight in loops[dim])
        # Only loops that run past the end of a dim reach padding; the other loops need no bound.
        if reach > size:
            bounds.append((*zip(*loops[dim], strict=True), size))
    return DmaTuples(tuple(ranges), tuple(host_strides), tuple(device_strides), tuple(bounds))


def _stride(pieces: Pieces, step: int) -> int:
    """Return the distance on the host between two positions of one piece that are ``step`` positions apart."""
    *outer, (inner, stride) = pieces
    if not outer or step < inner:
        return step * stride
    if step % inner:
        raise ViewError(f"steps of {step} positions do not fall on pieces of {inner} of the host")
    return _stride(tuple(outer), step // inner)


def layout_of_tuples(target: Target, tuples: DmaTuples, shape: Sequence[int], dtype: str) -> StickLayout:
    """Return the layout whose transfer from a dense host array has these loops: the inverse of ``dma_tuples``.

    Raise ``ValueError`` if no layout has these loops.
    """
    bounded: dict[int, tuple[int, int]] = {}
    for index, (loops, weights, _) in enumerate(tuples.bounds):
        bounded |= {loop: (index, weight) for loop, weight in zip(loops, weights, strict=True)}
    units = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    digits: list[Digit] = []
    last = len(tuples.ranges) - 1
    for loop, (count, stride) in enumerate(zip(tuples.ranges, tuples.host_strides, strict=True)):
        if loop in bounded:
            index, divisor = bounded[loop]
            size = tuples.bounds[index][2]
            unit = stride // divisor
            dims = [dim for dim in range(len(shape)) if (units[dim], shape[dim]) == (unit, size)]
            dim = dims[0] if dims else None
        else:
            # Units decrease from dim to dim: the loop counts the first dim whose unit is at most the stride.
            dims = [dim for dim, unit in enumerate(units) if count > 1 and unit <= stride and shape[dim] > 1]
            dim = dims[0] if dims else None
            divisor = stride // units[dim] if dim is not None else 1
        if dim is None:
            digits.append(Digit(None))
            continue
        whole = Digit(dim, divisor)
        digits.append(whole if loop != last and whole.size(shape) == count else Digit(dim, divisor, count))
    layout = StickLayout(target, tuple(shape), dtype, tuple(digits))
    inverse = replace(dma_tuples(layout), host_strides=tuples.host_strides)
    if inverse != tuples:
        raise ValueError(f"no layout of {list(shape)} {dtype} has the loops {tuples}")
    return layout

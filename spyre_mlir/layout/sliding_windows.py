# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide over the first operand of a convolution or a pooling. No IR."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.layout.view import Axis, BufferView
from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding


@dataclass(frozen=True)
class SlidingWindow(Sliding):
    """Window of dim ``kernel`` of an operation that slides along what dim ``output`` counts windows of."""

    output: int
    kernel: int


Windows = tuple[SlidingWindow, ...]

#: What a core has of a dim beside its slice, as a window of single steps: the dims, and their windows.
Halos = tuple[tuple[int, Sliding], ...]


def halo_of(before: int, after: int, size: int) -> Sliding:
    """Return the window of a halo of so many positions before and after a slice of a dim of ``size``."""
    return Sliding(1 + before + after, 1, 1, before, size)


def window_dims(windows: Windows) -> frozenset[int]:
    """Return the dims of windows and those that they slide along."""
    return frozenset(dim for window in windows for dim in (window.output, window.kernel))


def footprint(view: BufferView, windows: Windows) -> BufferView:
    """Return the view of what windows slide over, without overlaps.

    ``view`` has an axis for positions and one for the window, whose elements are in many windows. Here the dim of the
    positions counts those of memory, and that of the window has one.
    """
    outputs, kernels = (
        {getattr(window, name): window for window in windows} for name in ("output", "kernel")
    )
    shape, axes = list(view.shape), []
    for window in windows:
        shape[window.output], shape[window.kernel] = window.size, 1
    for axis in view.axes:
        if axis.dim in outputs:
            window = outputs[axis.dim]
            axes.append(Axis(axis.dim, 1, window.size, axis.stride // window.stride))
        elif axis.dim not in kernels:
            axes.append(axis)
    # Not canonical: a dim of one position keeps its place in the order of the dims.
    return replace(
        view, shape=tuple(shape), axes=tuple(sorted(axes, key=lambda axis: (-axis.stride, axis.dim)))
    )

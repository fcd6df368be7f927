# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide over the first operand of a convolution or a pooling. No IR."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.layout.view import Axis, BufferView
from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding


@dataclass(frozen=True)
class SlidingWindow(Sliding):
    """A window of iteration dim ``kernel``; iteration dim ``output`` counts the positions of the window."""

    output: int
    kernel: int


Windows = tuple[SlidingWindow, ...]

#: The elements of a dim that a core has in addition to its slice, as windows with stride 1: (dim, window) pairs.
Halos = tuple[tuple[int, Sliding], ...]


def halo_of(before: int, after: int, size: int) -> Sliding:
    """Return the window of a halo of ``before`` and ``after`` positions around a slice of a dim of ``size``."""
    return Sliding(1 + before + after, 1, 1, before, size)


def window_dims(windows: Windows) -> frozenset[int]:
    """Return the dims of the windows and the dims that the windows slide along."""
    return frozenset(dim for window in windows for dim in (window.output, window.kernel))


def footprint(view: BufferView, windows: Windows) -> BufferView:
    """Return the view of the elements that windows slide over, without overlaps.

    ``view`` has an axis for the positions of a window and an axis for the positions inside it; one element is in many
    windows. In the result the ``output`` dim counts the positions in memory, and the ``kernel`` dim has size 1.
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

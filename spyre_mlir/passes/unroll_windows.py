# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes convolutions and poolings apart into one op per position of their kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.windows import Windowed, windowed
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import element_of
from spyre_mlir.layout.stick_layout import ELEMENT_BITS
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.halo_tiling import HaloTiling, bands_of
from spyre_mlir.rewriting.im2col import im2col_of
from spyre_mlir.rewriting.kernel_positions import ByPosition, is_by_position
from spyre_mlir.rewriting.native_windows import native_windows
from spyre_mlir.rewriting.separable_windows import Separable, is_separable
from spyre_mlir.rewriting.space_to_depth import SpaceToDepth
from spyre_mlir.rewriting.window_unrolling import MOST_ROWS, Unrolling

#: Positions of a kernel that become operations; with thousands a program takes minutes to compile.
_MOST_POSITIONS = 512

#: Positions of a pooling up to which bands, tap by tap, go before its dims one by one: with 25 they take half the time.
_MOST_TILED_POSITIONS = 64


@dataclass(frozen=True)
class UnrollWindows(Pass):
    """Make of each op with windows a chain of ops without, one per position ("tap") of the kernel.

        y[n, f, i, j] = sum over c, p, q of x[n, c, s*i + d*p, s*j + d*q] * w[f, c, p, q]
    ->  y = sum over p of (sum over q of (sum over c of slice_pq(x) * w[:, :, p, q]))

    The taps of one row of the kernel are combined in their order, then the rows in theirs: of partial sums that
    are rounded one by one, few small ones go before few large ones. A tap of a convolution is a matmul, one of a
    depthwise convolution a product per channel, one of a pooling the slice itself.

    What they slide over is transposed and padded once, windows first and channels last, so that a slice is a
    view. A matmul has two dims of rows at most: where there are more, all windows but the last and the images of
    the batch are one. That is a view of the slice if it is one window without steps, else of a copy.

    Windows that lie side by side (as patches of an image, steps as long as the kernel) over an argument are no slices:
    the host cuts the patches out (``hoist-weight-views``), and the convolution is one matmul:

        y[i, j, f] = sum over k of x[i, j, k] * w[f, k],  k for all of c, p, q

    A pooling whose windows overlap is reduced dim by dim where that computes fewer elements
    (``rewriting/separable_windows.py``): 3 + 3 + 3 operations for a kernel of 3 x 3 x 3.

    A convolution with fewer positions of its result than of its kernel, as the gradient of a weight, is a matmul per
    position of the result (``rewriting/kernel_positions.py``). Kernels of more than 512 positions are refused else.

    Where that is clearly faster, images are cut into bands of rows, a band per core, so that taps find what they read
    in LX (``halo_tiling.py``).

    Any op whose indexing maps have windows is meant, named or not: one, two or more dims, groups, dilation. Before:
    linalg, single results (``drop-dead-results``). After: no windows.
    """

    name: ClassVar[str] = "unroll-windows"
    native: bool = False

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            for op in [op.operation for op in func.regions[0].blocks[0].operations]:
                window = windowed(op)
                if window is not None:
                    with ir.InsertionPoint(op), op.location:
                        self._unroll(window)

    def _unroll(self, window: Windowed) -> None:
        kernel = " x ".join(str(window.extents[dim]) for dim in window.kernel)
        run, how = self._chain(window)
        self.remark(window.op, "unroll", f"a window of {kernel}{how}")
        window.op.results[0].replace_all_uses_with(run())
        window.op.erase()

    def _chain(self, window: Windowed) -> tuple[Callable[[], ir.Value], str]:
        """Return a builder of the ops without windows, and for the remark the form that it builds."""
        element = element_of(window.inputs[window.source])
        if element not in ELEMENT_BITS:
            raise error_at(window.op, f"element type {element} has no form on the device")
        native = native_windows(window) if self.native else None
        im2col = im2col_of(window, MOST_ROWS)
        if im2col is not None:
            how = "; they lie side by side, so all positions are one matmul"
            return lambda: Unrolling(window).as_matmul(im2col), how
        if native is not None and not is_by_position(window):
            folded = SpaceToDepth(native)
            if folded.fits():
                return lambda: _run_folded(folded), "; over steps of pixels as channels"
            return native.run, f"; '{native.opcode}' slides it"
        # A gradient of a weight: its kernel is an image, its result a small one.
        if is_by_position(window):
            how = "; the result has fewer positions: a matmul for each of them"
            return lambda: ByPosition(window).run(), how
        by_dim = is_separable(window)
        _check_positions(window, by_dim)
        few = not by_dim or _positions(window) <= _MOST_TILED_POSITIONS
        bands = bands_of(window) if few else None
        if bands is not None:
            how = f"; each image in {bands.count} bands of {bands.rows} rows, with rows of their neighbours"
            return lambda: HaloTiling(window, bands).run(), how
        if by_dim:
            return lambda: Separable(window).run(), "; its dims are reduced one by one"
        return lambda: Unrolling(window).run(), ""


def _run_folded(folded: SpaceToDepth) -> ir.Value:
    """Build the convolution by single steps: one operation of the device, or a matmul where a step has the kernel."""
    window = folded.rewritten()
    native = native_windows(window)
    result = Unrolling(window).run() if native is None else native.run()
    window.op.erase()
    return result


def _positions(window: Windowed) -> int:
    """Return the number of positions of the kernel."""
    return math.prod(window.extents[dim] for dim in window.kernel)


def _check_positions(window: Windowed, by_dim: bool) -> None:
    """Refuse a kernel that would become thousands of operations."""
    count = sum(window.extents[dim] for dim in window.kernel) if by_dim else _positions(window)
    if count > _MOST_POSITIONS:
        text = f"a window of {count} positions is taken apart into as many operations; up to {_MOST_POSITIONS} are"
        raise error_at(window.op, text)

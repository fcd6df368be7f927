# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposes convolutions and poolings into one op per kernel position."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.windows import windowed
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class UnrollWindows(Pass):
    """Decompose each op with windows into a chain of ops without windows, one per position ("tap") of the kernel.

        y[n, f, i, j] = sum over c, p, q of x[n, c, s*i + d*p, s*j + d*q] * w[f, c, p, q]
    ->  y = sum over p of (sum over q of (sum over c of slice_pq(x) * w[:, :, p, q]))

    The taps of a kernel row are combined in order, then the rows in order. Because partial sums are rounded one by one,
    a few small sums are added before a few large sums. A tap of a convolution is a matmul, a tap of a
    depthwise convolution is a product per channel, and a tap of a pooling is the slice itself.

    The source is transposed and padded once, with windows first and channels last, so that each slice is a
    view. A matmul has at most two dims of rows; if there are more, all windows except the last and the batch of
    images are merged. The merged dim is a view of the slice if it is one window without steps, else of a copy.

    Adjacent windows over an argument (as patches of an image, with steps as long as the kernel) do not become slices:
    the host cuts out the patches (``hoist-weight-views``), and the convolution is one matmul (im2col):

        y[i, j, f] = sum over k of x[i, j, k] * w[f, k],  k for all of c, p, q

    A pooling whose windows overlap is reduced dim by dim if that computes fewer elements:
    3 + 3 + 3 operations for a kernel of 3 x 3 x 3.

    A convolution whose result has fewer positions than its kernel, as the gradient of a weight, becomes a matmul per
    position of the result. Otherwise kernels of more than 512 positions are refused.

    If it is clearly faster, images are divided into bands of rows, one band per core, so that taps find their operands
    in LX (``window_forms.py``).

    The pass handles every op whose indexing maps have windows, named or not, with any number of dims, groups and
    dilation. Before: linalg, single results (``drop-dead-results``). After: no windows.
    """

    name: ClassVar[str] = "unroll-windows"
    native: bool = False

    def run(self, module: ir.Operation) -> None:
        ops = [op.operation for func in functions(module) for op in func.regions[0].blocks[0].operations]
        for op in ops:
            window = windowed(op)
            if window is None:
                continue
            # Imported on use: most programs have no windows.
            from spyre_mlir.rewriting.window_forms import chain_of

            with ir.InsertionPoint(op), op.location:
                run, how = chain_of(window, self.native)
                kernel = " x ".join(str(window.extents[dim]) for dim in window.kernel)
                self.remark(op, "unroll", f"a window of {kernel}{how}")
                op.results[0].replace_all_uses_with(run())
                op.erase()

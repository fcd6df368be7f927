# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of the device dims: the layouts of an operation's result in addition to the default."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.layout.stick_layout import Digit, StickLayout, elements_per_stick
from spyre_mlir.layout.view import BufferView
from spyre_mlir.target.target import Target


def keep_order(
    target: Target, shape: Sequence[int], dtype: str, stick: int | None, like: BufferView | None
) -> StickLayout:
    """Return a dense layout with ``stick`` in the stick and the dims in the memory order of ``like``.

    Return the default order if ``like`` is None, has another stick dim, or has several dims in the stick.
    """
    if like is None or like.stick_dim != stick or like.stick_axes:
        others = [dim for dim in range(len(shape)) if dim != stick]
        return StickLayout.for_tensor(target, shape, dtype, [*others, -1 if stick is None else stick])
    return from_order(target, shape, dtype, stick, [axis.dim for axis in like.axes])


def from_order(
    target: Target, shape: Sequence[int], dtype: str, stick: int | None, order: Sequence[int]
) -> StickLayout:
    """Return the dense layout with these device dims, outermost first; the stick dim represents its stick count.

    Dims that ``order`` omits (size 1, one stick) come outermost.
    """
    sticks = () if stick is None else ((stick, elements_per_stick(target, dtype)),)
    return _dense(target, shape, dtype, sticks, order)


def _dense(
    target: Target, shape: Sequence[int], dtype: str, sticks: Sequence[tuple[int, int]], order: Sequence[int]
) -> StickLayout:
    elements = dict(sticks)
    missing = [dim for dim in range(len(shape)) if dim not in order]
    counts = [Digit(dim, elements.get(dim, 1)) for dim in (*missing, *order)]
    within_stick = [Digit(dim, 1, count) for dim, count in sticks] or [Digit(None)]
    return StickLayout(target, tuple(shape), dtype, (*counts, *within_stick))


def packed_order(
    target: Target,
    shape: Sequence[int],
    dtype: str,
    sticks: Sequence[tuple[int, int]],
    order: Sequence[int] = (),
) -> StickLayout:
    """Return a dense layout whose sticks hold (dim, elements) of several dims, each dim once, outermost first.

    ``order`` contains the device dims outermost first, as in ``from_order``. By default the dims in the stick are
    innermost: the layout of an 8-bit [K, N] with ``sticks`` ((N, 64), (K, 2)) is (N floordiv 64, K floordiv 2,
    N mod 64, K mod 2), as torch-spyre lays out the kernel of a matmul.
    """
    elements = dict(sticks)
    others = (dim for dim in range(len(shape)) if dim not in elements)
    return _dense(target, shape, dtype, sticks, order or [*others, *elements])


def natural_order(target: Target, shape: Sequence[int], dtype: str, stick: int | None) -> StickLayout:
    """Return a dense layout whose device dims are in logical order, then the stick count, then the last other dim."""
    # The rows of one matrix are contiguous, and the batches follow each other. The default order puts dim 0
    # innermost, which takes up to 8.3x as long on a batched matmul for the same bytes, as the developers of
    # torch-spyre measured (untraced, docs/sources.md).
    others = [dim for dim in range(len(shape)) if dim != stick]
    count = [] if stick is None else [stick]
    return from_order(target, shape, dtype, stick, [*others[:-1], *count, *others[-1:]])

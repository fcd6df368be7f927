# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between arrays with different element orders, compiled by numba: for large arrays.

numpy goes along the rows of one array, and loads each cache line of the other array many times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.compiled import njit

#: Elements of a tile along the rows of the source and of the target: part of a cache line, and a stick.
_ROWS, _COLUMNS = 16, 64

#: The number of elements of a plane from which a compiled call is faster.
_PLANE_ELEMENTS = 1 << 12


def copy_array(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy unsigned integers to an array of the same shape."""
    planes = _planes(target, source)
    if planes is None:
        np.copyto(target, source)
        return
    target, source = (np.moveaxis(array, planes, (-2, -1)) for array in (target, source))
    rows, columns = target.shape[-2:]
    steps = target.strides[-2] // target.itemsize, source.strides[-1] // source.itemsize
    for index in np.ndindex(*target.shape[:-2]):
        _copy_plane(_flat(target[index], True), _flat(source[index], False), rows, columns, *steps)


def _planes(target: NDArray[Any], source: NDArray[Any]) -> tuple[int, int] | None:
    """Return the axes of contiguous elements of source and target, if they differ and span a large enough plane."""
    row, column = (_axis_of_neighbours(array) for array in (source, target))
    if row is None or column is None or row == column:
        return None
    if (
        min((*target.strides, *source.strides)) < 0
        or target.shape[row] * target.shape[column] < _PLANE_ELEMENTS
    ):
        return None
    return row, column


def _axis_of_neighbours(array: NDArray[Any]) -> int | None:
    axes = zip(array.shape, array.strides, strict=True)
    return next((i for i, (count, stride) in enumerate(axes) if count > 1 and stride == array.itemsize), None)


def _flat(plane: NDArray[Any], is_writeable: bool) -> NDArray[Any]:
    """Return a flat view from the first to the last element of a plane."""
    elements = 1 + sum((n - 1) * s // plane.itemsize for n, s in zip(plane.shape, plane.strides, strict=True))
    return np.lib.stride_tricks.as_strided(plane, (elements,), (plane.itemsize,), writeable=is_writeable)


@njit(cache=True, nogil=True)
def _copy_plane(
    target: NDArray[Any], source: NDArray[Any], rows: int, columns: int, target_step: int, source_step: int
) -> None:
    tile = np.empty((_COLUMNS, _ROWS), target.dtype)
    for left in range(0, columns, _COLUMNS):
        width = min(_COLUMNS, columns - left)
        for top in range(0, rows, _ROWS):
            height = min(_ROWS, rows - top)
            for column in range(width):
                begin = (left + column) * source_step + top
                line = source[begin : begin + height]
                for row in range(height):
                    tile[column, row] = line[row]
            for row in range(height):
                begin = (top + row) * target_step + left
                line = target[begin : begin + width]
                for column in range(width):
                    line[column] = tile[column, row]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of float32 numbers in float64, compiled by numba: for large arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.compiled import njit


def add_along(numbers: NDArray[np.float32], axis: int) -> NDArray[np.float64]:
    """Add numbers along an axis, which is kept with extent 1."""
    order = sorted(range(numbers.ndim), key=lambda a: -abs(numbers.strides[a]))
    place = order.index(axis)
    shape = [numbers.shape[a] for a in order]
    before, count, behind = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    shape[place] = 1
    totals = np.zeros(shape)
    function = _add_each if behind == 1 else _add_rows
    function(
        np.ascontiguousarray(numbers.transpose(order)).reshape(before, count, behind),
        totals.reshape(before, behind),
    )
    return totals.transpose(np.argsort(order))


@njit(cache=True, nogil=True)
def _add_rows(blocks: NDArray[Any], totals: NDArray[Any]) -> None:
    """Add the rows of each block."""
    for block in range(blocks.shape[0]):
        for row in range(blocks.shape[1]):
            for column in range(blocks.shape[2]):
                totals[block, column] += blocks[block, row, column]


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _add_each(blocks: NDArray[Any], totals: NDArray[Any]) -> None:
    """Add the numbers of each block."""
    for block in range(blocks.shape[0]):
        total = 0.0
        for row in range(blocks.shape[1]):
            total += blocks[block, row, 0]
        totals[block, 0] = total

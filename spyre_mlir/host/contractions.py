# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions: sums of products as matrix products, exact for integers, in float64 for floats."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Integers up to here are exact in float64.
_EXACT = 1 << 53


def contraction(
    a: NDArray[Any], b: NDArray[Any], extents: tuple[int, ...], summed: Collection[int]
) -> NDArray[Any]:
    """``sum(a * b)`` over the loops ``summed``; each array has an axis per loop, of its extent or of 1.

    The result has an axis per loop, too, of size 1 where it is summed or where neither array depends on it.
    """
    wide = np.dtype(np.float64) if a.dtype.kind == "f" else a.dtype
    factor = 1
    for loop in summed:
        in_a, in_b = a.shape[loop] > 1, b.shape[loop] > 1
        # A loop of one factor alone is summed before, which saves a dim of the product.
        if in_a and not in_b:
            a = a.sum(loop, keepdims=True, dtype=wide)
        elif in_b and not in_a:
            b = b.sum(loop, keepdims=True, dtype=wide)
        elif not in_a:
            factor *= extents[loop]
    product = _product(a, b, [loop for loop in summed if a.shape[loop] > 1])
    # In the type of the product, in which integers wrap.
    return product if factor == 1 else product * product.dtype.type(factor)


def _product(a: NDArray[Any], b: NDArray[Any], inner: list[int]) -> NDArray[Any]:
    """Contraction by one batched matrix product: batches are the loops of both arrays that are not summed."""
    loops = range(a.ndim)
    free = [loop for loop in loops if loop not in inner]
    batch = [loop for loop in free if a.shape[loop] > 1 and b.shape[loop] > 1]
    rows = [loop for loop in free if loop not in batch and b.shape[loop] == 1]
    columns = [loop for loop in free if loop not in batch and b.shape[loop] > 1]
    # Summed axes are behind these, of size 1.
    order = [*batch, *rows, *columns]
    sizes = [max(a.shape[loop], b.shape[loop]) for loop in order]
    counts = [math.prod(a.shape[loop] for loop in axes) for axes in (batch, rows, inner)]
    lhs = a.transpose(*batch, *rows, *inner, *columns)
    rhs = b.transpose(*batch, *inner, *columns, *rows)
    width = math.prod(b.shape[loop] for loop in columns)
    product = _matmul(
        lhs, rhs, (counts[0], counts[1], counts[2]), (counts[0], counts[2], width), counts[2]
    ).reshape(sizes + [1] * len(inner))
    return product.transpose(np.argsort([*order, *inner]))


def _matmul(
    a: NDArray[Any], b: NDArray[Any], a_shape: tuple[int, ...], b_shape: tuple[int, ...], inner: int
) -> NDArray[Any]:
    """Product of two arrays as stacks of matrices of these shapes."""
    if a.dtype.kind == "f" or _is_exact(a, b, inner):
        product = _as_float64(a, a_shape) @ _as_float64(b, b_shape)
        return product if a.dtype.kind == "f" else product.astype(a.dtype)
    # numpy has no BLAS for integers: this is slow and exact, and wraps at the width.
    return np.matmul(a.reshape(a_shape), b.reshape(b_shape), dtype=a.dtype)


def _as_float64(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64).reshape(shape)


def _is_exact(a: NDArray[Any], b: NDArray[Any], inner: int) -> bool:
    """Return whether float64 represents every partial sum, and the integers' type the result."""
    if not a.size or not b.size or a.dtype == np.bool_:
        return False
    largest = [max(abs(int(array.min())), abs(int(array.max()))) for array in (a, b)]
    return largest[0] * largest[1] * inner < min(_EXACT, int(np.iinfo(a.dtype).max))

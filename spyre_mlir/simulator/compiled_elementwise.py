# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise functions of two arrays of 16-bit codes, compiled by numba: decoded, computed and encoded in one pass.

The results have the same bits as float32 results of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.compiled import njit
from spyre_mlir.target.compiled_conversion import dl16_code, dl16_number, fp16_code, fp16_number

#: Functions by their code; division is the remaining function.
_ADD, _SUB, _MUL = 0, 1, 2

#: The number of elements of a block that stays in the nearest cache.
_BLOCK = 1024

#: The number of elements of a row from which its overhead pays off.
_ROW = 32


def compute_codes(
    function: int, codes: Sequence[NDArray[np.uint16]], is_dl16: bool, bias_step: int, nan: int
) -> tuple[NDArray[np.uint16], float] | None:
    """Return the codes of a function of two arrays that broadcast, and the largest finite magnitude before rounding.

    The codes are DL16, for which ``bias_step`` and ``nan`` are the constants of ``dl16_number``, or IEEE fp16. Return
    None if a result is NaN, whose bits depend on the operand order, or if rows are too short for compiled code.
    """
    shape = np.broadcast_shapes(*(array.shape for array in codes))
    arrays = [np.broadcast_to(array, shape) for array in codes]
    order = sorted(range(len(shape)), key=lambda axis: -max(array.strides[axis] for array in arrays))
    arrays = [array.transpose(order) for array in arrays]
    target = np.empty(arrays[0].shape, np.uint16)
    *rows, columns = zip(*_merged(target.shape, [array.strides for array in arrays]), strict=True)
    count, *steps = columns
    is_falling = any(stride < 0 for array in arrays for stride in array.strides)
    if is_falling or count < _ROW or any(step not in (0, target.itemsize) for step in steps):
        return None
    begins = [_begins([(row[0], row[1 + k]) for row in rows]) // target.itemsize for k in range(2)]
    largest = _compute_rows(
        function,
        _flat(arrays[0]),
        begins[0],
        steps[0] // target.itemsize,
        _flat(arrays[1]),
        begins[1],
        steps[1] // target.itemsize,
        target.reshape(-1),
        count,
        1 if is_dl16 else 0,
        bias_step,
        nan,
    )
    return None if largest < 0 else (target.transpose(np.argsort(order)), largest)


def _merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Merge adjacent axes that form one axis in all arrays; the counts come first, then the strides of each array."""
    axes: list[list[int]] = []
    for count, *steps in zip(shape, *strides, strict=True):
        if count == 1:
            continue
        if axes and all(before == step * count for before, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = [axes[-1][0] * count, *steps]
        else:
            axes.append([count, *steps])
    return [list(column) for column in zip(*(axes or [[1, *(0 for _ in strides)]]), strict=True)]


def _begins(axes: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the offset of each row, from the counts and strides of the axes before the last."""
    begins = np.zeros(1, np.int64)
    for count, stride in axes:
        begins = np.add.outer(begins, np.arange(count, dtype=np.int64) * stride).ravel()
    return begins


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return a flat view from the first to the last element of an array."""
    elements = 1 + sum((n - 1) * s // array.itemsize for n, s in zip(array.shape, array.strides, strict=True))
    return np.lib.stride_tricks.as_strided(array, (elements,), (array.itemsize,), writeable=False)


@njit(cache=True, nogil=True)
def _decode(
    codes: NDArray[Any], step: int, numbers: NDArray[Any], kind: int, bias_step: int, nan: int
) -> None:
    """Decode one code per number; without ``step`` one code for all numbers."""
    if step == 0:
        number = dl16_number(codes[0], bias_step, nan) if kind else fp16_number(codes[0])
        for index in range(numbers.size):
            numbers[index] = number
    elif kind:
        for index in range(numbers.size):
            numbers[index] = dl16_number(codes[index], bias_step, nan)
    else:
        for index in range(numbers.size):
            numbers[index] = fp16_number(codes[index])


@njit(cache=True, nogil=True, error_model="numpy")
def _compute(function: int, x: NDArray[Any], y: NDArray[Any], results: NDArray[Any]) -> None:
    if function == _ADD:
        for index in range(x.size):
            results[index] = x[index] + y[index]
    elif function == _SUB:
        for index in range(x.size):
            results[index] = x[index] - y[index]
    elif function == _MUL:
        for index in range(x.size):
            results[index] = x[index] * y[index]
    else:
        for index in range(x.size):
            results[index] = x[index] / y[index]


@njit(cache=True, nogil=True)
def _encode(numbers: NDArray[Any], codes: NDArray[Any], kind: int, bias_step: int, nan: int) -> None:
    if kind:
        for index in range(numbers.size):
            codes[index] = dl16_code(numbers[index], bias_step, nan - 1)
    else:
        for index in range(numbers.size):
            codes[index] = fp16_code(numbers[index])


@njit(cache=True, nogil=True)
def _magnitudes(bits: NDArray[Any]) -> tuple:
    """Return the largest magnitude of all numbers, and of the finite numbers, as bits."""
    largest, largest_finite = np.int32(0), np.int32(0)
    for index in range(bits.size):
        magnitude = np.int32(bits[index] & 0x7FFFFFFF)
        largest = max(largest, magnitude)
        largest_finite = max(largest_finite, magnitude if magnitude < 0x7F800000 else np.int32(0))
    return largest, largest_finite


@njit(cache=True, nogil=True)
def _compute_rows(
    function: int,
    first: NDArray[Any],
    first_begins: NDArray[Any],
    first_step: int,
    second: NDArray[Any],
    second_begins: NDArray[Any],
    second_step: int,
    target: NDArray[Any],
    columns: int,
    kind: int,
    bias_step: int,
    nan: int,
) -> float:
    """Fill the target with rows of ``columns``; return the largest finite magnitude, or -1 if a result is NaN."""
    width = min(columns, _BLOCK)
    height = _BLOCK // width
    x, y, results = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    x_bits, y_bits, result_bits = x.view(np.int32), y.view(np.int32), results.view(np.int32)
    largest_finite = np.int32(0)
    for top in range(0, first_begins.size, height):
        # Several rows, or a part of one row.
        rows = min(height, first_begins.size - top)
        for left in range(0, columns, width):
            count = min(width, columns - left)
            for row in range(rows):
                part = slice(row * count, (row + 1) * count)
                begin = first_begins[top + row] + left * first_step
                line = first[begin : begin + first_step * (count - 1) + 1]
                _decode(line, first_step, x_bits[part], kind, bias_step, nan)
                begin = second_begins[top + row] + left * second_step
                line = second[begin : begin + second_step * (count - 1) + 1]
                _decode(line, second_step, y_bits[part], kind, bias_step, nan)
            elements = rows * count
            _compute(function, x[:elements], y[:elements], results[:elements])
            magnitude, finite = _magnitudes(result_bits[:elements])
            if magnitude > 0x7F800000:
                return -1.0
            largest_finite = max(largest_finite, finite)
            begin = top * columns + left
            _encode(result_bits[:elements], target[begin : begin + elements], kind, bias_step, nan)
    return np.float64(np.int32(largest_finite).view(np.float32))

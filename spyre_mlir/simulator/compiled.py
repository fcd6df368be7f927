# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions compiled by numba, for large arrays: sums, copies between element orders, and elementwise operations.

Sums of float32 numbers are float64. A copy runs tile by tile: numpy iterates over the rows of one array, and loads each
cache line of the other array many times. Elementwise functions of two arrays of 16-bit codes decode, compute and encode
in one pass; their results have the same bits as float32 results of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.jit import njit
from spyre_mlir.simulator.boxes import offsets_of
from spyre_mlir.target.compiled_conversion import dl16_code, dl16_number, fp16_code, fp16_number


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


#: Elements of a tile along the rows of the source and of the target: part of a cache line, and a stick.
_ROWS, _COLUMNS = 16, 64

#: The number of elements of a plane from which a compiled call is faster.
_PLANE_ELEMENTS = 1 << 12


def copy_array(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy unsigned integers to an array of the same shape."""
    row, column = (_axis_of_neighbours(array) for array in (source, target))
    # A compiled call pays off if the contiguous elements of source and target span a large enough plane.
    if (
        row is None
        or column is None
        or row == column
        or min((*target.strides, *source.strides)) < 0
        or target.shape[row] * target.shape[column] < _PLANE_ELEMENTS
    ):
        np.copyto(target, source)
        return
    target, source = (np.moveaxis(array, (row, column), (-2, -1)) for array in (target, source))
    rows, columns = target.shape[-2:]
    steps = target.strides[-2] // target.itemsize, source.strides[-1] // source.itemsize
    for index in np.ndindex(*target.shape[:-2]):
        _copy_plane(_flat(target[index], is_writeable=True), _flat(source[index]), rows, columns, *steps)


def _axis_of_neighbours(array: NDArray[Any]) -> int | None:
    axes = zip(array.shape, array.strides, strict=True)
    return next((i for i, (count, stride) in enumerate(axes) if count > 1 and stride == array.itemsize), None)


def _flat(array: NDArray[Any], is_writeable: bool = False) -> NDArray[Any]:
    """Return a flat view from the first to the last element of an array."""
    elements = 1 + sum((n - 1) * s // array.itemsize for n, s in zip(array.shape, array.strides, strict=True))
    return np.lib.stride_tricks.as_strided(array, (elements,), (array.itemsize,), writeable=is_writeable)


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
    begins = [offsets_of((row[0], row[1 + k]) for row in rows) // target.itemsize for k in range(2)]
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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion between 16-bit codes and float32 numbers, compiled by numba: for large arrays.

The results have the same bits as the results of the function of the same name in ``formats``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.jit import njit


def lookup(table: NDArray[Any], codes: NDArray[np.uint16]) -> NDArray[Any]:
    """Return the entry of a table of 65,536 numbers for each code."""
    return _each(functools.partial(_lookup, table), codes, table.dtype)


def decode_fp16(codes: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 numbers of codes of IEEE fp16."""
    return _each(_decode_fp16, codes, np.dtype(np.int32)).view(np.float32)


def decode_dl16(codes: NDArray[np.uint16], bias_step: int, nan: int) -> NDArray[np.float32]:
    """Return the float32 numbers of codes of DL16; the code ``nan`` is NaN (``encode_dl16``)."""
    function = functools.partial(_decode_dl16, bias_step=bias_step, nan=nan)
    return _each(function, codes, np.dtype(np.int32)).view(np.float32)


def encode_fp16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 numbers to IEEE fp16 codes: nearest, ties to even; keep subnormals and infinities."""
    return _each(_encode_fp16, values.view(np.int32), np.dtype(np.uint16))


def encode_dl16(values: NDArray[np.float32], bias_step: int, last: int) -> NDArray[np.uint16]:
    """Round float32 numbers to DL16 codes: nearest, ties away from zero; ``last`` is the code of the largest number.

    ``bias_step`` is the distance between the exponent fields of float32 and DL16, in codes; ``last`` + 1 is NaN.
    """
    function = functools.partial(_encode_dl16, bias_step=bias_step, last=last)
    return _each(function, values.view(np.int32), np.dtype(np.uint16))


def _each(
    function: Callable[[NDArray[Any], NDArray[Any]], None], source: NDArray[Any], result: np.dtype
) -> NDArray[Any]:
    """Apply a function of flat arrays, the second of which is its result, to elements in memory order."""
    order = sorted(range(source.ndim), key=lambda axis: -abs(source.strides[axis]))
    flat = np.ascontiguousarray(source.transpose(order))
    target = np.empty(flat.shape, result)
    function(flat.reshape(-1), target.reshape(-1))
    return target.transpose(np.argsort(order))


@njit(cache=True, nogil=True)
def _lookup(table: NDArray[Any], codes: NDArray[Any], entries: NDArray[Any]) -> None:
    for index in range(codes.size):
        entries[index] = table[codes[index]]


# The functions below do not have branches, so that the compiler vectorizes the loops.


@njit(cache=True, nogil=True)
def fp16_number(code: np.integer) -> np.int32:
    """Return the bits of the float32 number of a code of IEEE fp16."""
    code = np.int32(code)
    magnitude = np.int32((code & 0x7FFF) << 13)
    # Shift the fields of fp16 to the positions of the fields of float32; the number then lacks a factor of 2^112.
    number = np.float32(magnitude.view(np.float32) * np.float32(2.0**112)).view(np.int32)
    number = number | 0x7F800000 if magnitude >= 0x7C00 << 13 else number
    return np.int32(number | (code & 0x8000) << 16)


@njit(cache=True, nogil=True)
def dl16_number(code: np.integer, bias_step: int, nan: int) -> np.int32:
    """Return the bits of the float32 number of a code of DL16 (``decode_dl16``)."""
    code = np.int32(code)
    magnitude = np.int32(code & 0x7FFF)
    number = np.int32((magnitude + np.int32(bias_step)) << 14)
    number = np.int32(0) if magnitude == 0 else number
    number = np.int32(0x7FC00000) if magnitude == nan else number
    return np.int32(number | (code & 0x8000) << 16)


@njit(cache=True, nogil=True)
def fp16_code(bits: np.integer) -> np.uint16:
    """Round a float32 number, given as its bits, to the code of IEEE fp16 (``encode_fp16``)."""
    magnitude = np.int32(bits & 0x7FFFFFFF)
    # Add half of the last place less one, and one more if the last bit is odd: ties go to even. A carry into the
    # exponent field gives the next binade, and after the last binade infinity.
    code = np.int32((magnitude - (112 << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13)
    # The last place of 0.5 is 2^-24, so the addition rounds to multiples of 2^-24.
    tiny = np.int32(np.float32(magnitude.view(np.float32) + np.float32(0.5)).view(np.int32) - 0x3F000000)
    code = tiny if magnitude < 0x38800000 else code
    code = np.int32(0x7C00) if magnitude >= 0x47800000 else code
    # NaN keeps the upper bits of its payload; one of them must be 1.
    nan = np.int32(max(0x7C00 + ((magnitude & 0x7FFFFF) >> 13), 0x7C01))
    code = nan if magnitude > 0x7F800000 else code
    return np.uint16(((bits >> 16) & 0x8000) | code)


@njit(cache=True, nogil=True)
def dl16_code(bits: np.integer, bias_step: int, last: int) -> np.uint16:
    """Round a float32 number, given as its bits, to the code of DL16 (``encode_dl16``)."""
    magnitude = np.int32(bits & 0x7FFFFFFF)
    # Unsigned, because adding half of the last place may carry into the sign bit.
    code = np.int32((np.uint32(magnitude) + np.uint32(1 << 13)) >> np.uint32(14)) - np.int32(bias_step)
    code = np.int32(min(max(code, np.int32(0)), np.int32(last)))
    code = np.int32(last + 1) if magnitude > 0x7F800000 else code
    return np.uint16(((bits >> 16) & 0x8000) | code)


@njit(cache=True, nogil=True)
def _decode_fp16(codes: NDArray[Any], bits: NDArray[Any]) -> None:
    for index in range(codes.size):
        bits[index] = fp16_number(codes[index])


@njit(cache=True, nogil=True)
def _decode_dl16(codes: NDArray[Any], bits: NDArray[Any], bias_step: int, nan: int) -> None:
    for index in range(codes.size):
        bits[index] = dl16_number(codes[index], bias_step, nan)


@njit(cache=True, nogil=True)
def _encode_fp16(bits: NDArray[Any], codes: NDArray[Any]) -> None:
    for index in range(bits.size):
        codes[index] = fp16_code(bits[index])


@njit(cache=True, nogil=True)
def _encode_dl16(bits: NDArray[Any], codes: NDArray[Any], bias_step: int, last: int) -> None:
    for index in range(bits.size):
        codes[index] = dl16_code(bits[index], bias_step, last)

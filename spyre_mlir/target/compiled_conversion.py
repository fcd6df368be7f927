"""Conversion between 16-bit codes and float32 numbers, compiled by numba: for arrays that are large enough to pay.

Each function gives the bits that its counterpart in ``formats`` gives.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


def lookup(table: NDArray, codes: NDArray[np.uint16]) -> NDArray:
    """Return the entry of a table of 65,536 numbers for each code, in the shape of ``codes``."""
    entries = np.empty(codes.shape, table.dtype)
    _lookup(table, np.ascontiguousarray(codes).reshape(-1), entries.reshape(-1))
    return entries


def encode_fp16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 numbers to the codes of IEEE fp16: nearest, ties to even; subnormals and infinities as they are."""
    codes = np.empty(values.shape, np.uint16)
    _encode_fp16(np.ascontiguousarray(values).reshape(-1).view(np.uint32), codes.reshape(-1))
    return codes


def encode_dl16(values: NDArray[np.float32], bias_step: int, last: int) -> NDArray[np.uint16]:
    """Round float32 numbers to the codes of DL16: nearest, ties away from zero; ``last`` is that of the largest.

    ``bias_step`` is the distance between the exponent fields of float32 and DL16, in codes; ``last`` + 1 is NaN.
    """
    codes = np.empty(values.shape, np.uint16)
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    _encode_dl16(bits, codes.reshape(-1), bias_step, last)
    return codes


@njit(cache=True)
def _lookup(table: NDArray, codes: NDArray, entries: NDArray) -> None:
    for index in range(codes.size):
        entries[index] = table[codes[index]]


@njit(cache=True)
def _encode_fp16(bits: NDArray, codes: NDArray) -> None:
    for index in range(bits.size):
        magnitude = np.int64(bits[index] & np.uint32(0x7FFFFFFF))
        # Half of the last place less one, and one more where the last bit is odd: ties go to even. A carry into the
        # exponent field is the next binade, behind the last one infinity.
        code = (magnitude - (112 << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13
        if magnitude < 0x38800000:
            # A multiple of 2^-24: the significand without what is below it, rounded.
            shift = min(126 - (magnitude >> 23), 25)
            significand = (magnitude & 0x7FFFFF) | 0x800000
            code = significand >> shift
            rest, half = significand - (code << shift), 1 << (shift - 1)
            code += rest > half or (rest == half and (code & 1) == 1)
        elif magnitude > 0x7F800000:
            # NaN keeps the upper bits of its payload, one of which is 1.
            code = max(0x7C00 + ((magnitude & 0x7FFFFF) >> 13), 0x7C01)
        elif magnitude >= 0x47800000:
            code = 0x7C00
        codes[index] = (np.int64(bits[index] >> np.uint32(16)) & 0x8000) | code


@njit(cache=True)
def _encode_dl16(bits: NDArray, codes: NDArray, bias_step: int, last: int) -> None:
    for index in range(bits.size):
        magnitude = np.int64(bits[index] & np.uint32(0x7FFFFFFF))
        code = min(max(((magnitude + (1 << 13)) >> 14) - bias_step, 0), last)
        if magnitude > 0x7F800000:
            code = last + 1
        codes[index] = (np.int64(bits[index] >> np.uint32(16)) & 0x8000) | code

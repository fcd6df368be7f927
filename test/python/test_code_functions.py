# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise functions from codes to codes give the bits of decoding, computing in float32 and encoding."""

from __future__ import annotations

import numpy as np
import pytest

from spyre_mlir.simulator.compiled import compute_codes
from spyre_mlir.target.formats import BIT_TRUE, DL16_BIAS_STEP, DL16_NAN_CODE, IEEE, MODES, Numerics
from spyre_mlir.target.ops import DL16

RNG = np.random.default_rng(5)
FUNCTIONS = [np.add, np.subtract, np.multiply, np.divide]

#: Codes below are numbers: infinities follow the fp16 numbers, NaN follows the last DL16 number.
_INFINITY = 0x7C00


def codes(*shape: int, end: int = _INFINITY) -> np.ndarray:
    return (RNG.integers(0, end, shape) | RNG.integers(0, 2, shape) << 15).astype(np.uint16)


def computed(function: int, mode: str, *operands: np.ndarray) -> tuple[np.ndarray, float] | None:
    return compute_codes(function, operands, mode == BIT_TRUE, DL16_BIAS_STEP, DL16_NAN_CODE)


def expected(function: int, mode: str, *operands: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return FUNCTIONS[function](*(Numerics(mode).load(array, DL16) for array in operands))


#: Two arrays of the shape (3, 5, 130), or that broadcast to it.
FORMS = {
    "dense": lambda x, y: (x, y),
    "rows of several blocks": lambda x, y: (x.reshape(1, -1), y.reshape(1, -1)),
    "a part of rows": lambda x, y: (x[:, :, :70], y[:, :, 1:71]),
    "one number": lambda x, y: (x, y[:1, :1, :1]),
    "one for each row": lambda x, y: (x[:, :, :1], y),
    "one row": lambda x, y: (x, y[:, :1]),
    "another order": lambda x, y: (x.transpose(2, 0, 1), y.transpose(2, 0, 1)[:, :1]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", range(len(FUNCTIONS)))
def test_codes_are_those_of_the_numbers(function, mode, form):
    operands = FORMS[form](codes(3, 5, 130), codes(3, 5, 130, end=_INFINITY - 1) + 1)
    numbers = expected(function, mode, *operands)
    result = computed(function, mode, *operands)
    assert result is not None
    np.testing.assert_array_equal(result[0], Numerics(mode).store(numbers, DL16))
    assert result[1] == np.abs(numbers[np.isfinite(numbers)]).max()


def test_infinities_do_not_count_as_the_largest():
    x = codes(4, 64)
    x[1, 3] = _INFINITY
    result = computed(0, IEEE, x, np.zeros_like(x))
    assert result is not None and result[0][1, 3] == _INFINITY
    assert result[1] == np.abs(np.delete(x, 67).view(np.float16).astype(np.float32)).max()


@pytest.mark.parametrize("mode", MODES)
def test_nan_is_left_to_the_numbers(mode):
    x = codes(4, 64)
    x[2, 5] = 0
    assert computed(3, mode, x, x) is None


def test_what_lies_in_short_rows_or_backwards_is_left_to_the_numbers():
    x = codes(64, 64)
    assert computed(0, IEEE, x[:, :3], x[:, 3:6]) is None
    assert computed(0, IEEE, x, x.T) is None
    assert computed(0, IEEE, x[::-1], x) is None

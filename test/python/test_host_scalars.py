# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar arithmetic of host functions, against Python's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from host_functions import call, elementwise
from numpy.typing import NDArray

# -- scalar arithmetic -------------------------------------------------------------------------------------

_I8 = np.array([-128, -128, -7, -7, 7, 7, 0, 1, 127, 127], np.int8)
_J8 = np.array([-1, 3, 2, -2, 2, -2, 5, -1, 1, 2], np.int8)


def _python(function) -> NDArray:
    """A function of Python's numbers on the two columns, wrapped to 8 bits."""
    values = [function(int(a), int(b)) for a, b in zip(_I8, _J8, strict=True)]
    return np.array([(value + 128) % 256 - 128 for value in values], np.int8)


def _unsigned(function) -> NDArray:
    return _python(lambda a, b: function(a % 256, b % 256))


INTEGERS = {
    "addi": _python(lambda a, b: a + b),
    "subi": _python(lambda a, b: a - b),
    "muli": _python(lambda a, b: a * b),
    "divsi": _python(lambda a, b: int(a / b)),
    "remsi": _python(lambda a, b: int(math.fmod(a, b))),
    "floordivsi": _python(lambda a, b: a // b),
    "ceildivsi": _python(lambda a, b: -(-a // b)),
    "divui": _unsigned(lambda a, b: a // b),
    "remui": _unsigned(lambda a, b: a % b),
    "ceildivui": _unsigned(lambda a, b: -(-a // b)),
    "andi": _python(lambda a, b: a & b),
    "ori": _python(lambda a, b: a | b),
    "xori": _python(lambda a, b: a ^ b),
    "maxsi": _python(max),
    "minsi": _python(min),
    "maxui": _unsigned(max),
    "minui": _unsigned(min),
    # a shift by the width or more gives 0, or the sign
    "shli": _unsigned(lambda a, b: a << b if b < 8 else 0),
    "shrui": _unsigned(lambda a, b: a >> b if b < 8 else 0),
    "shrsi": _python(lambda a, b: a >> b if 0 <= b < 8 else -(a < 0)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_around_at_their_width(name: str) -> None:
    """INT_MIN / -1 is INT_MIN, and shifts beyond the width have results, too."""
    (result,) = call(elementwise(["i8", "i8"], "i8", f"%r = arith.{name} %a0, %a1 : i8", len(_I8)), _I8, _J8)
    np.testing.assert_array_equal(result, INTEGERS[name])


BITS = {
    "addi": [0, 1, 1, 0], "subi": [0, 1, 1, 0], "muli": [0, 0, 0, 1], "andi": [0, 0, 0, 1], "ori": [0, 1, 1, 1],
    "xori": [0, 1, 1, 0], "maxui": [0, 1, 1, 1], "minui": [0, 0, 0, 1], "maxsi": [0, 0, 0, 1], "minsi": [0, 1, 1, 1],
    "cmpi slt,": [0, 0, 1, 0], "cmpi ult,": [0, 1, 0, 0],
}  # fmt: skip


@pytest.mark.parametrize("name", BITS)
def test_one_bit_is_an_integer_too(name: str) -> None:
    """i1 adds modulo 2, and true is -1 where there is a sign."""
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    (result,) = call(elementwise(["i1", "i1"], "i1", f"%r = arith.{name} %a0, %a1 : i1", 4), a, b)
    assert result.astype(int).tolist() == BITS[name]


FUNCTIONS = {
    "absf": abs, "acos": math.acos, "asin": math.asin, "atan": math.atan, "atanh": math.atanh, "cbrt": math.cbrt,
    "asinh": math.asinh, "ceil": math.ceil, "cos": math.cos, "cosh": math.cosh, "erf": math.erf, "erfc": math.erfc,
    "exp": math.exp, "exp2": math.exp2, "expm1": math.expm1, "floor": math.floor, "sin": math.sin,
    "sinh": math.sinh, "tan": math.tan, "tanh": math.tanh, "trunc": math.trunc, "roundeven": round,
    "log": lambda x: math.log(x) if x > 0 else math.nan, "log1p": math.log1p,
    "sqrt": lambda x: x**0.5 if x >= 0 else math.nan,
    "log2": lambda x: math.log2(x) if x > 0 else math.nan, "log10": lambda x: math.log10(x) if x > 0 else math.nan,
    "rsqrt": lambda x: x**-0.5 if x > 0 else math.nan,
}  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_libm(name: str, element: str) -> None:
    """Rounded once: half a unit in the last place of a 16-bit format, two of f32, four of f64."""
    x = np.concatenate([np.linspace(-0.96875, 0.96875, 40), [2.0**-9, -(2.0**-9)]]).astype(np.float16)
    exact = np.array([FUNCTIONS[name](float(value)) for value in x])
    units = {"f16": 2.0**-11 * 1.01, "bf16": 2.0**-8 * 1.01, "f32": 2.0**-22, "f64": 2.0**-50}
    given = {"f16": x, "f32": x.astype(np.float32), "f64": x.astype(np.float64)}
    bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if element == "bf16":
        x = (bits.astype(np.uint32) << 16).view(np.float32)
        exact = np.array([FUNCTIONS[name](float(value)) for value in x])
    (result,) = call(
        elementwise([element], element, f"%r = math.{name} %a0 : {element}", len(x)), given.get(element, bits)
    )
    numbers = (result.astype(np.uint32) << 16).view(np.float32) if element == "bf16" else result
    np.testing.assert_allclose(numbers.astype(np.float64), exact, rtol=units[element], atol=1e-11)


COMPARISONS = {
    "oeq": "0100000", "ogt": "0010000", "oge": "0110000", "olt": "1000000", "ole": "1100000", "one": "1010000",
    "ord": "1110000", "ueq": "0101111", "ugt": "0011111", "uge": "0111111", "ult": "1001111", "ule": "1101111",
    "une": "1011111", "uno": "0001111", "true": "1111111", "false": "0000000",
}  # fmt: skip


@pytest.mark.parametrize("predicate", COMPARISONS)
def test_comparisons_know_nan(predicate: str) -> None:
    a, b = np.array([1, 2, 3, np.nan, 1, np.nan, np.nan]), np.array([2, 2, 2, 1, np.nan, np.nan, np.nan])
    (result,) = call(
        elementwise(["f64", "f64"], "i1", f"%r = arith.cmpf {predicate}, %a0, %a1 : f64", 7), a, b
    )
    assert "".join(map(str, result.astype(int))) == COMPARISONS[predicate]


CASTS = {
    "fptosi f32 to i32": ([1.9, -1.9, 3e9, np.nan, -np.inf], [1, -1, -(2**31), -(2**31), -(2**31)]),
    "fptosi f32 to i64": ([3e9, -3e9, np.inf], [3_000_000_000, -3_000_000_000, -(2**63)]),
    "fptosi f32 to i8": ([100.0, -100.0, 300.0], [100, -100, 44]),
    "fptoui f32 to i8": ([200.0, 255.5], [-56, -1]),
    "sitofp i1 to f32": ([1, 0], [-1, 0]),
    "uitofp i1 to f32": ([1, 0], [1, 0]),
    "uitofp i8 to f32": ([-1, 5], [255, 5]),
    "extsi i8 to i32": ([-1, 5], [-1, 5]),
    "extui i8 to i32": ([-1, 5], [255, 5]),
    "trunci i32 to i8": ([300, -129], [44, 127]),
    "trunci i32 to i1": ([2, 3], [0, 1]),
    "truncf f32 to f16": ([1 + 2.0**-11, 1 + 3 * 2.0**-11, 70000.0], [1, 1 + 2.0**-9, np.inf]),
    "bitcast f16 to i16": ([1.0, -2.0], [0x3C00, -0x4000]),
    "bitcast i32 to f32": ([0x3F800000], [1.0]),
}
DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16,
    "f32": np.float32,
}  # fmt: skip


@pytest.mark.parametrize("name", CASTS)
def test_casts_are_defined_for_every_number(name: str) -> None:
    op, source, _, target = name.split()
    given, expected = CASTS[name]
    text = elementwise([source], target, f"%r = arith.{op} %a0 : {source} to {target}", len(given))
    (result,) = call(text, np.array(given, DTYPES[source]))
    np.testing.assert_array_equal(result, np.array(expected, DTYPES[target]))


INTEGER_FUNCTIONS = {
    "ctlz": [7, 8, 0, 0, 1], "cttz": [0, 8, 7, 0, 0], "ctpop": [1, 0, 1, 8, 7], "absi": [1, 0, -128, 1, 127],
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER_FUNCTIONS)
def test_functions_of_bits(name: str) -> None:
    x = np.array([1, 0, -128, -1, 127], np.int8)
    (result,) = call(elementwise(["i8"], "i8", f"%r = math.{name} %a0 : i8", 5), x)
    assert result.tolist() == INTEGER_FUNCTIONS[name]


def test_powers_of_integers() -> None:
    a, b = np.array([3, -1, 2, 1, 5, 7], np.int32), np.array([5, -3, 40, -2, -1, 0], np.int32)
    (result,) = call(elementwise(["i32", "i32"], "i32", "%r = math.ipowi %a0, %a1 : i32", 6), a, b)
    assert result.tolist() == [243, -1, 0, 1, 0, 1]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The number formats: every DL16 code, what cards did (torch-spyre #1938, #2516), constants."""

import math

import numpy as np
import pytest

from spyre_mlir.errors import CompileError
from spyre_mlir.target.formats import (
    DL16_MAX,
    DL16_SMALLEST,
    FORMATS,
    Numerics,
    constant_bits,
    constant_value,
    decode_dl16,
    decode_fp8,
    encode_dl16,
    encode_fp16,
    fp16_to_dl16,
)

DL16, FP32, INT32 = "SEN169_FP16", "IEEE_FP32", "IEEE_INT32"
INT8, FP8 = "SENINT8", "SEN143_FP8"
CODES = np.arange(1 << 16, dtype=np.uint16)


def through_dl16(*values: float) -> list[float]:
    return decode_dl16(encode_dl16(np.array(values))).tolist()


def test_every_code_survives_decoding_and_encoding():
    np.testing.assert_array_equal(encode_dl16(decode_dl16(CODES)), CODES)


def test_every_code_has_the_value_of_the_formula():
    sign, exponent, mantissa = CODES >> 15, CODES >> 9 & 63, CODES & 511
    expected = (-1.0) ** sign * 2.0 ** (exponent.astype(float) - 31) * (1 + mantissa / 512)
    expected[CODES & 0x7FFF == 0] = 0
    expected[CODES & 0x7FFF == 0x7FFF] = np.nan
    np.testing.assert_array_equal(decode_dl16(CODES), expected)


def test_codes_of_positive_numbers_are_monotone():
    assert (np.diff(decode_dl16(CODES[:0x7FFF])) > 0).all()


def test_extreme_numbers():
    assert decode_dl16(np.uint16(63 << 9 | 510)) == DL16_MAX == 8573157376
    assert decode_dl16(np.uint16(1)) == DL16_SMALLEST


def test_overflow_and_infinity_become_the_largest_number_and_nan_stays():
    assert through_dl16(1e10, -1e30, math.inf, -math.inf) == [DL16_MAX, -DL16_MAX, DL16_MAX, -DL16_MAX]
    assert math.isnan(through_dl16(math.nan)[0])


def test_infinities_of_fp16_arrays_are_the_largest_number_and_nan_stays():
    largest, lowest, nan = decode_dl16(fp16_to_dl16(np.array([math.inf, -math.inf, math.nan], np.float16)))
    assert (largest, lowest) == (DL16_MAX, -DL16_MAX) and math.isnan(nan)


def test_the_host_takes_the_largest_number_for_an_infinity():
    raw = encode_dl16(np.array([math.inf, -math.inf, 1.5]))
    assert Numerics("dl16").load_for_host(raw, DL16).tolist() == [math.inf, -math.inf, 1.5]


@pytest.mark.parametrize("mode", ["ieee", "dl16"])
def test_the_range_of_a_format_is_where_its_numbers_end(mode):
    numerics = Numerics(mode)

    def stored(value: float) -> float:
        return float(numerics.load(numerics.store(np.array([value], np.float32), DL16), DL16)[0])

    limits = numerics.range
    assert stored(limits.largest) == limits.largest
    assert stored(np.nextafter(np.float32(limits.overflow), 0)) == limits.largest
    assert stored(limits.underflow) == 0 < stored(np.nextafter(np.float32(limits.underflow), 1))


def test_rounding_is_to_nearest_with_ties_away_from_zero():
    assert through_dl16(1 + 1 / 1024, -1 - 3 / 1024) == [1 + 1 / 512, -1 - 2 / 512]
    assert through_dl16(1 + 0.99 / 1024, 2 - 0.99 / 1024) == [1, 2]


def test_what_is_below_half_of_the_smallest_binade_becomes_signed_zero():
    assert through_dl16(2.0**-32, 2.0**-31) == [0, 0]
    assert np.signbit(through_dl16(-(2.0**-32)))[0]


def test_the_nearest_code_is_chosen_for_random_numbers():
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.linspace(-8, 9, 200)
    table = decode_dl16(CODES[:0x7FFF]).astype(np.float64)
    found = np.abs(decode_dl16(encode_dl16(values)).astype(np.float64))
    best = np.abs(np.abs(values)[:, None] - table[None, :]).min(axis=1)
    np.testing.assert_allclose(np.abs(found - np.abs(values)), best, rtol=1e-4)


def test_the_published_conversions_of_fp16():
    half = np.array([0.5903, -65504, 65504, 1], np.float16)
    assert decode_dl16(fp16_to_dl16(half)).tolist() == [605 / 1024, -65472, 65472, 1]


def test_every_finite_fp16_number_stays_within_one_lost_bit():
    half = CODES.view(np.float16)
    half = half[np.isfinite(half)]
    near = decode_dl16(fp16_to_dl16(half)).astype(np.float64)
    np.testing.assert_allclose(near, half.astype(np.float64), rtol=2.0**-10, atol=0)


@pytest.mark.parametrize("name", [DL16, FP32, INT32])
def test_constants_are_the_bits_of_their_format(name):
    for value in (0.0, 1.0, -3.0, 512.0):
        assert constant_value(constant_bits(value, name), name) == value


def test_known_constant_bits():
    assert constant_bits(1.0, DL16) == 31 << 9
    assert constant_bits(1.0, FP32) == 0x3F800000
    assert constant_bits(-1, INT32) == 0xFFFFFFFF


def test_an_infinite_dl16_constant_is_the_largest_finite_number():
    assert constant_value(constant_bits(-math.inf, DL16), DL16) == -DL16_MAX
    assert constant_value(constant_bits(-math.inf, FP32), FP32) == -math.inf


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        (0.5, INT32, "not an integer"),
        (math.inf, INT32, "not an integer"),
        (2.0**31, INT32, "outside the range"),
        (128, INT8, "outside the range"),
        (1.0, "SEN152_FP8", "storage only"),
        (1.05, FP8, "cannot be represented"),
        (1.0, "FP17", "unknown"),
    ],
)
def test_impossible_constants_are_refused(value, name, message):
    with pytest.raises(CompileError, match=message):
        constant_bits(value, name)


def test_constant_bits_must_fit_their_format():
    with pytest.raises(CompileError, match="do not fit"):
        constant_value(1 << 16, DL16)


def test_sticks_have_128_bytes():
    assert {f.name: f.stick_elements(128) for f in FORMATS.values()} == {
        DL16: 64, FP32: 32, INT32: 32, INT8: 128, FP8: 128, "SEN152_FP8": 128,
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["ieee", "dl16"])
@pytest.mark.parametrize("name", [DL16, FP32, INT32])
def test_numerics_load_what_they_stored(mode, name):
    numerics = Numerics(mode)
    values = np.array([[1, -2, 0], [64, 5, 7]], np.int32 if name == INT32 else np.float32)
    raw = numerics.store(values, name)
    assert raw.dtype == FORMATS[name].raw
    np.testing.assert_array_equal(numerics.load(raw, name), values)


def test_ieee_numerics_keep_fp16_bit_for_bit():
    half = CODES.view(np.float16)
    np.testing.assert_array_equal(Numerics("ieee").store_half(half), CODES)


def test_unknown_numerics_are_refused():
    with pytest.raises(CompileError, match="'posit' is unknown"):
        Numerics("posit")


def test_every_fp8_code_is_that_of_float8_e4m3fn():
    """1 sign, 4 exponent, 3 mantissa bits, subnormals, and one code per sign that is not a number."""
    codes = np.arange(256, dtype=np.uint8)
    expected = [_fp8_number(int(code)) for code in codes]
    np.testing.assert_array_equal(decode_fp8(codes), np.array(expected, np.float32))
    assert decode_fp8(np.array([0x7E, 0x01, 0x38], np.uint8)).tolist() == [448.0, 2.0**-9, 1.0]


def _fp8_number(code: int) -> float:
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    if (exponent, mantissa) == (15, 7):
        return math.nan
    number = math.ldexp(mantissa / 8, -6) if exponent == 0 else math.ldexp(1 + mantissa / 8, exponent - 7)
    return -number if sign else number


def test_numbers_of_one_byte_have_constants():
    """Constants that a format represents exactly, as masks need them."""
    assert [constant_bits(value, INT8) for value in (0.0, -1, 127)] == [0, 0xFF, 0x7F]
    assert [constant_bits(value, FP8) for value in (0.0, 448, -2.0)] == [0, 0x7E, 0xC0]
    assert [constant_value(bits, FP8) for bits in (0, 0x7E, 0xC0)] == [0.0, 448.0, -2.0]
    assert constant_value(0x80, INT8) == -128


def float32_samples() -> np.ndarray:
    """All fp16 and DL16 numbers, the ties between neighbours, the numbers next to these, and random bits."""
    numbers = np.concatenate([CODES.view(np.float16).astype(np.float32), decode_dl16(CODES)])
    with np.errstate(all="ignore"):
        ties = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, numbers])
        beside = [np.nextafter(ties, np.float32(limit)) for limit in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, np.uint32)
    return np.concatenate([ties, *beside, bits.view(np.float32)])


def test_compiled_conversion_gives_the_bits_of_numpy():
    samples = float32_samples()
    with np.errstate(all="ignore"):
        expected = samples.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(encode_fp16(samples), expected)
    parts = np.array_split(samples, len(samples) // 1000)
    np.testing.assert_array_equal(encode_dl16(samples), np.concatenate([encode_dl16(part) for part in parts]))


@pytest.mark.parametrize("mode", ["ieee", "dl16"])
def test_large_arrays_load_as_small_ones(mode: str):
    numerics, codes = Numerics(mode), np.tile(CODES, 2).reshape(4, -1)[:, ::2]
    expected = decode_dl16(codes) if mode == "dl16" else codes.copy().view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(numerics.load(codes, DL16).view(np.uint32), expected.view(np.uint32))

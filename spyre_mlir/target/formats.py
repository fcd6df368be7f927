# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The number formats of the device, bit-exact.

DL16 (``SEN169_FP16``, DLFloat16): 1 sign, 6 exponent (bias 31), 9 mantissa bits, value
``(-1)^s * 2^(e-31) * (1 + m/512)``. The format is DLFloat with these choices, which DLFloat leaves open:

- No subnormals: exponent 0 is an ordinary binade, except that mantissa 0 is zero. So the smallest
  positive number is ``2^-31 * (1 + 1/512)``; a number that rounds to less becomes a zero that keeps its sign.
- No infinities: exponent 63 mantissa 511 is NaN. Numbers above the maximum, 8573157376, and infinities become the
  maximum with their sign, so that masks and neutral elements compare as they should. The host
  interprets the maximum as infinity.
- Rounding is to nearest, ties away from zero: fp16 0.5903 became 0.5908 on a card (torch-spyre #1938), a tie that
  rounding to even would take to 0.5898, and IBM's host code adds half a unit and truncates (onnx-mlir).
- The host's conversion from IEEE fp16 stays inside the fp16 range: 65504 is a tie that would go to
  65536, and becomes 65472, as on a card (``fp16_to_dl16``; torch-spyre #2516).

FP8 (``SEN143_FP8``): 1 sign, 4 exponent (bias 7), 3 mantissa bits, with subnormals; exponent 15 mantissa 7 is NaN, the
largest number is 448. The host passes the bits of float8_e4m3fn unchanged (torch-spyre). Rounding is to nearest, ties
to even; larger numbers and infinities become 448, as in PyTorch. INT8 (``SENINT8``): two's complement.
"""

from __future__ import annotations

import functools
import importlib
import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DL16, FP8, FP32, INT8, INT32

IEEE, BIT_TRUE = "ieee", "dl16"
MODES = (IEEE, BIT_TRUE)

DL16_MAX = 8573157376.0
DL16_SMALLEST = 2.0**-31 * (1 + 1 / 512)
FP16_MAX = 65504.0
BFLOAT16_MAX = 2.0**127 * (1 + 127 / 128)

#: Numbers that round to 0 are not reported if they are at most this fraction of the largest number of their tensor.
TOLERANCE = 1e-3

#: Distance between the exponent fields of float32 and DL16, in units of DL16 codes.
DL16_BIAS_STEP = (127 - 31) << 9
DL16_NAN_CODE = 63 << 9 | 511

#: The largest number of FP8, its smallest normal number, and its step between subnormal numbers.
FP8_MAX, FP8_NORMAL, FP8_STEP = 448.0, 2.0**-6, 2.0**-9

#: The code of the largest number, and the distance between the exponent fields of float32 and FP8, in FP8 codes.
FP8_MAX_CODE, FP8_BIAS_STEP = 0x7E, (127 - 7) << 3
_MAX_CODE = DL16_NAN_CODE - 1
_FP16_MAX_CODE = (15 + 31) << 9 | 511  # 65472
_SIGN = 0x8000

#: The number of elements from which compiled conversion is faster: below, numpy is done before numba is imported.
_COMPILED = 1 << 16

#: The number of elements from which compiled conversion is faster once numba is imported.
_COMPILED_ONCE_LOADED = 1 << 10


@dataclass(frozen=True)
class Format:
    """One device format: bytes per element and the numpy type of its stored bits."""

    name: str
    bytes: int
    storage: np.dtype

    def stick_elements(self, stick_bytes: int) -> int:
        """Return the number of elements in a stick of ``stick_bytes`` bytes."""
        return stick_bytes // self.bytes

    @property
    def raw(self) -> np.dtype:
        """The unsigned integer type of the same width."""
        return np.dtype(f"u{self.bytes}")


FORMATS: dict[str, Format] = {
    DL16: Format(DL16, 2, np.dtype(np.uint16)),
    FP32: Format(FP32, 4, np.dtype(np.float32)),
    INT32: Format(INT32, 4, np.dtype(np.int32)),
    INT8: Format(INT8, 1, np.dtype(np.int8)),
    FP8: Format(FP8, 1, np.dtype(np.uint8)),
    "SEN152_FP8": Format("SEN152_FP8", 1, np.dtype(np.uint8)),
}


def find_format(name: str) -> Format:
    """Return the format of this name; ``CompileError`` for an unknown name."""
    if name not in FORMATS:
        raise CompileError(f"Number format '{name}' is unknown; the known ones are {', '.join(FORMATS)}.")
    return FORMATS[name]


@functools.cache
def _compiled() -> ModuleType:
    """Return the module of compiled conversions, which imports numba."""
    return importlib.import_module("spyre_mlir.target.compiled_conversion")


def _compiles(elements: int) -> bool:
    """Return whether compiled conversion is faster; for a small array only if numba is already imported."""
    return elements >= (_COMPILED_ONCE_LOADED if _compiled.cache_info().currsize else _COMPILED)


def encode_dl16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Encode floats (read as float32) in DL16: nearest, ties away from zero; overflow and infinities saturate."""
    if _compiles(np.size(values)):
        return _compiled().encode_dl16(np.asarray(values, np.float32), DL16_BIAS_STEP, _MAX_CODE)
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    # Mantissas have 23 and 9 bits: adding half of the last place before the shift rounds ties away from zero, and
    # a carry into the exponent field gives the next binade.
    rounded = (magnitude + np.uint32(1 << 13)) >> np.uint32(14)
    code = np.clip(rounded.astype(np.int32) - DL16_BIAS_STEP, 0, _MAX_CODE).astype(np.uint16)
    code[magnitude > 0x7F800000] = DL16_NAN_CODE  # above the bits of infinity float32 has its NaNs
    return (code | (bits >> np.uint32(16)).astype(np.uint16) & np.uint16(_SIGN)).reshape(np.shape(values))


def decode_dl16(codes: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Decode DL16 codes to float32, exactly: every DL16 number is a float32 number."""
    code = np.asarray(codes, dtype=np.uint16)
    if _compiles(code.size):
        return _compiled().decode_dl16(code, DL16_BIAS_STEP, DL16_NAN_CODE)
    magnitude = (code & np.uint16(0x7FFF)).astype(np.uint32)
    bits = (magnitude + np.uint32(DL16_BIAS_STEP)) << np.uint32(14)
    bits = np.where(magnitude == 0, np.uint32(0), bits)
    bits = np.where(magnitude == DL16_NAN_CODE, np.uint32(0x7FC00000), bits)
    sign = (code & np.uint16(_SIGN)).astype(np.uint32) << np.uint32(16)
    return (bits | sign).view(np.float32)


def fp16_to_dl16(values: NDArray[np.float16]) -> NDArray[np.uint16]:
    """Encode IEEE fp16 in DL16 as the host does: finite numbers stay inside the fp16 range."""
    half = np.asarray(values, dtype=np.float16)
    if half.size > 1 << 16:
        return lookup(_host_codes(), half.view(np.uint16))
    code = encode_dl16(half)
    too_large = np.isfinite(half) & ((code & np.uint16(0x7FFF)) > _FP16_MAX_CODE)
    return np.where(too_large, code & np.uint16(_SIGN) | np.uint16(_FP16_MAX_CODE), code)


@functools.cache
def _host_codes() -> NDArray[np.uint16]:
    """Return the table of the DL16 codes of all IEEE fp16 numbers of the host."""
    return fp16_to_dl16(np.arange(1 << 16, dtype=np.uint16).view(np.float16))


def decode_fp16(codes: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Decode IEEE fp16 codes to float32, exactly."""
    if _compiles(codes.size):
        return _compiled().decode_fp16(codes)
    return codes.view(np.float16).astype(np.float32)


def encode_fp16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Encode numbers in IEEE fp16: nearest, ties to even; overflow becomes infinite."""
    if values.dtype == np.float32 and _compiles(values.size):
        return _compiled().encode_fp16(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, dtype=np.float16).view(np.uint16)


def lookup(table: NDArray[Any], codes: NDArray[np.uint16]) -> NDArray[Any]:
    """Return the entry of a table of 65,536 numbers for each 16-bit code."""
    if _compiles(codes.size):
        return _compiled().lookup(table, codes)
    return table[codes]


@functools.cache
def all_numbers(mode: str) -> NDArray[np.float32]:
    """Return the table of the float32 numbers of all 16-bit codes of a mode."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    return decode_dl16(codes) if mode == BIT_TRUE else codes.view(np.float16).astype(np.float32)


@functools.cache
def _fp8_numbers() -> NDArray[np.float32]:
    """Return the number of each FP8 code: 4 exponent bits (bias 7), 3 mantissa bits, one NaN, no infinity."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa, 8 + mantissa) * 2.0 ** (np.maximum(exponent, 1) - 10)
    magnitude[code & 0x7F == 0x7F] = np.nan
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.float32)


def rounded_to_bfloat16(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Round numbers to bfloat16: to nearest, ties to even; NaN stays NaN."""
    single = np.array(numbers, dtype=np.float32, order="C")
    bits = single.view(np.uint32)
    last = bits >> np.uint32(16) & np.uint32(1)
    # Add just less than half of the last bit, plus the last bit: ties go to even.
    rounded = (bits + np.uint32(0x7FFF) + last) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, rounded.view(np.float32))


def decode_fp8(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode FP8 codes to float32, exactly."""
    return _fp8_numbers()[codes]


def encode_fp8(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode floats (read as float32) in FP8: nearest, ties to even; overflow and infinities saturate."""
    number = np.ascontiguousarray(values, dtype=np.float32)
    bits = number.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    # Mantissas have 23 and 3 bits: adding just less than half of the last place, plus that place, rounds ties to even.
    rounded = (
        magnitude + np.uint32((1 << 19) - 1) + (magnitude >> np.uint32(20) & np.uint32(1))
    ) >> np.uint32(20)
    normal = np.minimum(rounded.astype(np.int32) - FP8_BIAS_STEP, FP8_MAX_CODE)
    with np.errstate(invalid="ignore"):
        small = np.minimum(np.abs(number), np.float32(FP8_NORMAL))
        code = np.where(small < FP8_NORMAL, np.rint(small * np.float32(1 / FP8_STEP)), normal)
    code = np.where(magnitude > 0x7F800000, 0x7F, code).astype(np.uint8)
    return (code | (bits >> np.uint32(24)).astype(np.uint8) & np.uint8(0x80)).reshape(np.shape(values))


def fits_fp16(values: NDArray[Any] | float) -> NDArray[np.bool_]:
    """Return for each number whether fp16 represents it with the precision of DL16.

    True for NaN, for infinities and for numbers from the largest bfloat16 number on, which represent infinity.
    """
    size = np.abs(np.asarray(values, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.abs(size.astype(np.float16).astype(np.float64) - size) <= size * 2.0**-10
    return near | ~(size < BFLOAT16_MAX)


def constant_bits(value: float, format_name: str) -> int:
    """Encode a number as the unsigned bits of a format; ``CompileError`` if the format cannot represent it.

    In DL16 a number other than 0 never becomes 0: a small constant may guard a division by zero.
    """
    form = find_format(format_name)
    if form.name == DL16:
        bits = int(encode_dl16(np.array(_saturated(value))))
        return bits if value == 0 or bits & ~_SIGN else bits | 1
    if form.name == FP32:
        return int(np.float32(_saturated(value)).view(np.uint32))
    if form.name in (INT32, INT8):
        if not math.isfinite(value) or int(value) != value:
            raise CompileError(
                f"Constant {value} is not an integer and cannot be represented in {form.name}."
            )
        bits = 8 * form.bytes
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise CompileError(f"Constant {value} is outside the range of {form.name}.")
        return int(value) & (2**bits - 1)
    if form.name == FP8:
        codes = np.flatnonzero(_fp8_numbers() == value)
        if not codes.size:
            raise CompileError(f"Constant {value} cannot be represented in {FP8}.")
        return int(codes[0])  # of the two codes of zero the positive one
    raise CompileError(f"Format '{format_name}' is for storage only and cannot hold a constant.")


def constant_value(bits: int, format_name: str) -> float:
    """Decode the bits of a constant; the inverse of ``constant_bits``."""
    form = find_format(format_name)
    if not 0 <= bits < 1 << 8 * form.bytes:
        raise CompileError(f"Constant bits {bits} do not fit format '{format_name}'.")
    raw = np.array(bits, dtype=form.raw)
    if form.name == DL16:
        return float(decode_dl16(raw))
    if form.name in (FP32, INT32, INT8):
        return raw.view(form.storage).item()
    if form.name == FP8:
        return float(decode_fp8(raw))
    raise CompileError(f"Format '{format_name}' is for storage only and cannot hold a constant.")


def _saturated(value: float) -> float:
    """Clamp a finite double to the finite numbers of float32."""
    largest = float(np.finfo(np.float32).max)
    return value if math.isinf(value) or math.isnan(value) else min(max(value, -largest), largest)


@dataclass(frozen=True)
class FormatRange:
    """Magnitudes of a 16-bit format: ``largest`` is its largest number; numbers from ``overflow`` on are out of range.

    Magnitudes up to ``underflow`` round to 0. ``rounding`` is the largest relative error of any other number.
    """

    name: str
    largest: float
    overflow: float
    underflow: float
    rounding: float


_RANGES = {
    IEEE: FormatRange("IEEE fp16", FP16_MAX, 65520.0, 2.0**-25, 2.0**-11),
    BIT_TRUE: FormatRange(
        "DL16", DL16_MAX, 2.0**32 * (1 + 1021 / 1024), 2.0**-31 * (1 + 1 / 1024 - 2.0**-23), 2.0**-10
    ),
}


def require_mode(mode: str | None) -> None:
    """Raise ``CompileError`` for unknown numerics; None selects the numerics that a bundle needs."""
    if mode is not None and mode not in MODES:
        raise CompileError(f"Numerics '{mode}' is unknown; choose one of {', '.join(MODES)}.")


def _computable(format_name: str) -> Format:
    if format_name not in (DL16, FP32, INT32, INT8):
        raise CompileError(f"Format '{format_name}' is for storage only; nothing computes with it.")
    return FORMATS[format_name]


@dataclass(frozen=True)
class Numerics:
    """Conversion between the bits in device memory and numbers to compute with.

    ``mode`` "ieee" keeps DL16 tensors as IEEE float16 (fast); "dl16" is bit-true. Raw arrays are unsigned
    integers of the format's width; numbers are float32, or integers for the integer formats.
    """

    mode: str = IEEE

    def __post_init__(self) -> None:
        require_mode(self.mode)

    @property
    def range(self) -> FormatRange:
        """The range of the 16-bit format."""
        return _RANGES[self.mode]

    def load_for_host(self, raw: NDArray[Any], format_name: str) -> NDArray[Any]:
        """Convert raw bits to numbers for the host, which interprets the largest number of DL16 as infinity."""
        values = self.load(raw, format_name)
        if format_name != DL16 or self.mode != BIT_TRUE:
            return values
        return np.where(np.abs(values) == DL16_MAX, np.copysign(np.float32(np.inf), values), values)

    def load(self, raw: NDArray[Any], format_name: str) -> NDArray[Any]:
        """Convert raw bits to numbers."""
        if format_name == DL16:
            return decode_dl16(raw) if self.mode == BIT_TRUE else decode_fp16(raw)
        if format_name == FP8:
            return decode_fp8(raw)
        return raw.view(_computable(format_name).storage)

    def store(self, values: NDArray[Any], format_name: str) -> NDArray[Any]:
        """Convert numbers to raw bits; the caller must keep values inside the range of an integer format."""
        if format_name == FP8:
            return encode_fp8(values)
        form = _computable(format_name)
        if format_name == DL16:
            return encode_dl16(values) if self.mode == BIT_TRUE else encode_fp16(np.asarray(values))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(values, dtype=form.storage).view(form.raw)

    def store_half(self, values: NDArray[np.float16]) -> NDArray[np.uint16]:
        """Convert fp16 numbers of the host to raw DL16 bits, as the host does."""
        return fp16_to_dl16(values) if self.mode == BIT_TRUE else np.ascontiguousarray(values).view(np.uint16)

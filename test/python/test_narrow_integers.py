# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic on bytes: with numbers, with tensors, with what wraps around."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager

import spyre_mlir

FORMS = {
    "times a number": lambda i: i * 2,
    "wraps around": lambda i: i * 7 + 100,
    "floor division": lambda i: i // 3,
    "rounding down": lambda i: torch.div(i, 4, rounding_mode="floor"),
    "remainder": lambda i: i % 3,
    "with a tensor": lambda i: i - i.flip(0) * 2,
    "clamp": lambda i: torch.clamp(i, 3, 50),
    "absolute": lambda i: torch.abs(i) * -1,
    "a threshold": lambda i: i > 40,
    "as a number": lambda i: i.half() / 2,
    "a maximum": lambda i: torch.maximum(i, i.flip(0)),
    "wider": lambda i: i.int() * 1000,
    "compared": lambda i: (i * 3 > 20).to(torch.int8) + i,
    "largest and smallest": lambda i: torch.stack([i.max(), i.min(), *i.aminmax(), i.amax(), torch.amin(i)]),
    "sums": lambda i: torch.stack([i.sum(dtype=i.dtype), i.prod(dtype=i.dtype), i.any().to(i.dtype)]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_bytes(form: str, dtype: torch.dtype) -> None:
    """Signed and unsigned: above 127 they differ."""
    i = torch.arange(-128, 128).to(dtype)
    expected = FORMS[form](i)
    got = spyre_mlir.compile(FORMS[form], (i,))(i)
    assert got.dtype == expected.dtype and torch.equal(got, expected)


@pytest.mark.parametrize("source", [torch.float16, torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_casts_to_bytes(source: torch.dtype, dtype: torch.dtype) -> None:
    """Integers are cut to their lowest 8 bits, floats are rounded towards zero where the type has them."""
    limits = torch.iinfo(dtype)
    low, high = (limits.min, limits.max) if source.is_floating_point else (-1000, 1000)
    x = (torch.arange(low, high + 1).to(source) * (0.999 if source.is_floating_point else 1)).to(source)
    check_like_eager(lambda x: x.to(dtype), x)


TYPES = (
    torch.float16, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.bool, torch.uint8,
    torch.int8,
)  # fmt: skip


def in_all_types(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Bytes in each type and back, and combined with tensors of each type."""
    alone = [each for dtype in TYPES for each in (x.to(dtype), x.to(dtype).to(x.dtype), x.to(dtype) > 100)]
    others = [torch.ones(4, 64, dtype=dtype) for dtype in TYPES]
    beside = [each for y in others for each in (torch.cat([x, y]), x * y, torch.where(x > 100, x, y), x >= y)]
    return (*alone, *beside, x.half() / 255, (x.float() - 128) * 0.25, x.sum(1, dtype=torch.int16))


@pytest.mark.parametrize("precision", ["device", "strict"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_all_codes_in_all_types(dtype: torch.dtype, precision: str) -> None:
    x = torch.arange(256).to(dtype).reshape(4, 64)
    results = spyre_mlir.compile(in_all_types, (x,), precision=precision)(x)
    for index, (got, expected) in enumerate(zip(results, in_all_types(x), strict=True)):
        assert got.dtype == expected.dtype, index
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=0 if index < 3 * len(TYPES) else 1e-3)


SCANS = {"sum": torch.sum, "prod": torch.prod, "cumsum": torch.cumsum, "cumprod": torch.cumprod}


@pytest.mark.parametrize("source", [torch.bool, torch.uint8, torch.int16, torch.float32])
def test_sums_and_products_of_few_bits(source: torch.dtype) -> None:
    """Results of 8 and 16 bits wrap around; results of one bit are or-ed and and-ed, as in PyTorch."""
    types = (torch.uint8, torch.int8, torch.int16)
    # PyTorch has no cumsum and no cumprod of bool.
    one_bit = (torch.sum, torch.prod)
    check_like_eager(
        lambda x: (
            *(scan(x, 1, dtype=dtype) for scan in SCANS.values() for dtype in types),
            *(scan(x, 1, dtype=torch.bool) for scan in one_bit),
        ),
        (torch.arange(32).reshape(4, 8) * 7).to(source),
    )


UNSIGNED = {
    "sums": lambda i: (i.sum(), i.sum(1), i.sum(1, dtype=torch.uint8), i.cumsum(1), i.prod(1)),
    "extremes": lambda i: (i.amax(1), i.amin(0), i.max(1), i.argmin(1), i.max(), i.sort(1), i.topk(2)[0]),
    "truths": lambda i: (i.any(), i.all(1), torch.logical_not(i), i.count_nonzero(), i == 200, i > 100),
    "lookups": lambda i: (i[torch.tensor([1, 3])], i[1:, ::2], i.index_select(1, torch.tensor([0, 4]))),
    "writes": lambda i: (i.index_fill(0, torch.tensor([1]), 9), i.masked_fill(i > 200, 3), F.pad(i, (1, 2), value=200)),
    "filled": lambda i: (torch.full_like(i, 200) + i, torch.zeros_like(i), i.new_full((2,), 7)),
    "moved": lambda i: (i.roll(1, 0), i.repeat(2, 1), torch.stack([i, i]), i.unbind(0), i.split(2, 1), i.T),
    "bits": lambda i: (i & 15, i ^ i.flip(0), ~i, i >> 2, i << 3),
    "powers": lambda i: (-i, i.square(), i**3, i * i.flip(0), i - 1),
    "casts": lambda i: (i.to(torch.int8), i.half() / 255, i.long() - 200, i.double(), i.bool()),
    "products": lambda i: (i @ i.T, torch.kron(i, i)),
}  # fmt: skip


@pytest.mark.parametrize("form", UNSIGNED)
def test_unsigned_bytes_are_no_signed_ones(form: str) -> None:
    torch.manual_seed(3)
    check_like_eager(UNSIGNED[form], torch.randint(0, 256, (4, 5)).to(torch.uint8))


def test_unsigned_bytes_in_a_folder(tmp_path) -> None:
    x = torch.arange(100, 200).to(torch.uint8)
    spyre_mlir.compile(lambda x: x * 3, (x,)).save(tmp_path / "program")
    got = spyre_mlir.Program.load(tmp_path / "program")(x.numpy().view("int8"))
    assert torch.equal(torch.from_numpy(got).view(torch.uint8), x * 3)


NUMBERS = {
    "//": lambda x, n: x // n,
    "%": lambda x, n: x % n,
    "truncated": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "number // x": lambda x, n: n // torch.where(x == 0, 1, x),
    "number % x": lambda x, n: n % torch.where(x == 0, 1, x),
    "/": lambda x, n: x / n,
    "+": lambda x, n: x + n,
    "*": lambda x, n: x * n,
    "<": lambda x, n: x < n,
    "==": lambda x, n: x == n,
}


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (torch.uint8, -2),
        (torch.uint8, torch.tensor(-3)),
        (torch.uint8, 300),
        (torch.int8, 200),
        (torch.int16, 70000),
        (torch.int32, -7),
    ],
)
def test_numbers_that_a_type_has_not_are_taken_into_it_as_pytorch_does(dtype: torch.dtype, number) -> None:
    """The last bits of a negative number combined with unsigned bytes, or of 300; tensors without dims likewise."""
    limits = torch.iinfo(dtype)
    x = torch.arange(max(limits.min, -300) + 1, min(limits.max, 300), 7).to(dtype)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(form(x, number) for form in NUMBERS.values())

    for name, got, expected in zip(NUMBERS, spyre_mlir.compile(model, (x,))(x), model(x), strict=True):
        assert got.dtype == expected.dtype and torch.equal(got, expected), name

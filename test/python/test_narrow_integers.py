"""Arithmetic on bytes: with numbers, with tensors, with what wraps around."""

from __future__ import annotations

import pytest
import torch

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
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_bytes(form: str, dtype: torch.dtype) -> None:
    """Signed and unsigned: above 127 they differ."""
    i = torch.arange(-60, 60).to(dtype)
    expected = FORMS[form](i)
    got = spyre_mlir.compile(FORMS[form], (i,))(i)
    assert got.dtype == expected.dtype and torch.equal(got, expected)


@pytest.mark.parametrize(
    "form", [torch.sum, lambda i: torch.sort(i)[0], lambda i: torch.topk(i, 2)[0], torch.any]
)
def test_what_would_take_unsigned_bytes_for_signed_ones_is_an_error(form) -> None:
    i = torch.arange(100, 200).to(torch.uint8)
    with pytest.raises(spyre_mlir.CompileError, match="on unsigned bytes is not supported"):
        spyre_mlir.compile(form, (i,))


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
    """The last bits of a negative number beside unsigned bytes, or of 300; tensors without dims likewise."""
    limits = torch.iinfo(dtype)
    x = torch.arange(max(limits.min, -300) + 1, min(limits.max, 300), 7).to(dtype)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(form(x, number) for form in NUMBERS.values())

    for name, got, expected in zip(NUMBERS, spyre_mlir.compile(model, (x,))(x), model(x), strict=True):
        assert got.dtype == expected.dtype and torch.equal(got, expected), name

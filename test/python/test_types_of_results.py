# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of two types: results have types and numbers of PyTorch, and booleans are not one-bit integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import spyre_mlir

aten = torch.ops.aten
TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32,
)  # fmt: skip
NUMBERS = (True, False, 2, -1, 300, 2**31, 0.5, -1.5)


def operand(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small numbers, and the ends of an integer type as far as 16-bit types have them and their products."""
    x = torch.randint(-9, 9, (4, 16), generator=torch.Generator().manual_seed(seed)).to(dtype)
    if not dtype.is_floating_point and dtype != torch.bool:
        limits = torch.iinfo(dtype)
        x[0, :2] = torch.tensor([max(limits.min, -3000), min(limits.max, 3000)])
    return x


FORMS: dict[str, Callable] = {
    "add": lambda x, y: x + y, "radd": lambda x, y: y + x, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "lt": lambda x, y: x < y, "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "rgt": lambda x, y: y > x,
    "where": lambda x, y: torch.where(x > 0, x, y), "maximum": torch.maximum,
    "clamp": lambda x, y: torch.clamp(x, min=y), "copysign": torch.copysign,
    "or": lambda x, y: x | y, "xor": lambda x, y: torch.logical_xor(x, y), "in place": lambda x, y: x.clone().add_(y),
    "concatenated": lambda x, y: torch.cat([x, y]), "as": lambda x, y: x.to(y.dtype),
    "alpha": lambda x, y: torch.add(x, y, alpha=True), "backward": lambda x, y: aten.threshold_backward(x, y, 0.5),
}  # fmt: skip


def forms_of(*operands) -> dict[str, Callable]:
    """The forms that PyTorch has for operands."""
    known = {}
    for name, form in FORMS.items():
        try:
            if isinstance(form(*operands), torch.Tensor):
                known[name] = form
        except (RuntimeError, TypeError, AttributeError, ValueError):
            pass
    return known


def check(x: torch.Tensor, y, forms: dict[str, Callable]) -> None:
    tensors = [each for each in (x, y) if isinstance(each, torch.Tensor)]

    def model(x: torch.Tensor, other=y) -> tuple[torch.Tensor, ...]:
        return tuple(form(x, other) for form in forms.values())

    for name, got, expected in zip(
        forms, spyre_mlir.compile(model, tuple(tensors))(*tensors), model(x), strict=True
    ):
        assert got.dtype == expected.dtype, name
        tolerance = (
            0
            if not got.is_floating_point()
            else {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(got.dtype, 1e-6)
        )
        torch.testing.assert_close(
            got, expected, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(TYPES, TYPES)))
def test_two_types(first: torch.dtype, second: torch.dtype) -> None:
    x, y = operand(first, 0), operand(second, 1)
    check(x, y, forms_of(x, y))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_a_tensor_and_a_number(dtype: torch.dtype) -> None:
    x = operand(dtype, 0)
    for number in NUMBERS:
        check(x, number, forms_of(x, number))


def test_second_results() -> None:
    """The norm of a 16-bit weight is not rounded; the buffer of a sigmoid's logarithm has its values."""
    v, g = torch.randn(8, 64, generator=torch.Generator().manual_seed(0)).half(), torch.rand(8, 1).half()
    for form in (
        lambda v, g: aten._weight_norm_interface(v, g, 0),
        lambda v, g: aten.log_sigmoid_forward(v),
    ):
        for got, expected in zip(spyre_mlir.compile(form, (v, g))(v, g), form(v, g), strict=True):
            torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


class Copies(torch.nn.Module):
    """Buffers that are overwritten by a value of another type, of another shape, and by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4, 16))
        self.register_buffer("count", torch.zeros(4, 16, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the values of the buffers after each copy."""
        self.state.copy_(self.state)
        self.state.copy_(other=x)
        first = self.state * 1
        self.count.copy_(x[0] * 3)
        self.state.copy_(x[:, :1])
        return first, self.state + 1, self.count + 1, self.state.cumsum(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_copies_into_buffers_of_another_type(dtype: torch.dtype) -> None:
    x = torch.arange(-32, 32).reshape(4, 16).to(dtype) / (4 if dtype.is_floating_point else 1)
    x = x.to(dtype)
    for got, expected in zip(spyre_mlir.compile(Copies(), (x,))(x), Copies()(x), strict=True):
        assert got.dtype == expected.dtype and torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("decimals", [2, 1, -1])
def test_rounding_to_decimals(dtype: torch.dtype, decimals: int) -> None:
    """All numbers of fp16 that are finite and rounded to one that is."""
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    x = codes[codes.abs() < 60000].to(dtype)
    got = spyre_mlir.compile(lambda x: torch.round(x, decimals=decimals), (x,))(x)
    assert torch.equal(got, torch.round(x, decimals=decimals))


def test_a_result_of_another_type_than_pytorchs_is_not_converted(monkeypatch) -> None:
    """If linalg has the operation only with another type, the PyTorch kernel is called instead."""
    from spyre_mlir.frontend import importer

    lower, calls = importer.lower_to_linalg, []

    def retyped(module):
        lowered = lower(module)
        if not calls:
            calls.append(str(lowered))
            return importer.ir.Module.parse(calls[0].replace("f16", "f32"), module.context)
        return lowered

    monkeypatch.setattr(importer, "lower_to_linalg", retyped)
    x = torch.arange(64).half().reshape(1, 64)
    with pytest.raises(spyre_mlir.CompileError, match="A result is f32 in linalg, and f16 in PyTorch"):
        spyre_mlir.compile(lambda x: x.sin(), (x,), cache=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_of_every_magnitude(dtype: torch.dtype) -> None:
    """Halves up to the largest number that has a half, and numbers of which all are integers."""
    sizes = 2.0 ** torch.arange(-3, 30)
    x = torch.cat([sign * (sizes + offset) for sign in (1, -1) for offset in (-0.5, 0, 0.5, 1.5)])
    x = torch.cat(
        (x, torch.tensor([4194305.5, 6000000.5, 8388607.5, 0.5, 1.5, 2.5, torch.inf, torch.nan]))
    ).to(dtype)
    got = spyre_mlir.compile(lambda x: (x.round(), x.round().clamp(-1e9, 1e9).float()), (x,))(x)
    torch.testing.assert_close(got[0], x.round(), rtol=0, atol=0, equal_nan=True)

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
    "clamp": lambda i: torch.clamp(i, -3, 5),
    "absolute": lambda i: torch.abs(i) * -1,
    "compared": lambda i: (i * 3 > 20).to(torch.int8) + i,
}


@pytest.mark.parametrize("form", FORMS)
def test_bytes(form: str) -> None:
    i = torch.arange(-60, 60, dtype=torch.int8)
    expected = FORMS[form](i)
    got = spyre_mlir.compile(FORMS[form], (i,))(i)
    assert got.dtype == expected.dtype and torch.equal(got, expected)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of positions, such as distances, are computed where they are read, with the numbers of PyTorch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import spyre_mlir
from spyre_mlir.zoo.blocks import AppliedFunction


def _positions(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.arange(rows)[:, None], torch.arange(columns)


def _constants(program: spyre_mlir.Program) -> list[int]:
    """Return the numbers of elements of the constants of a program."""
    return [math.prod(value.host_shape) for value in program.arguments if value.kind == "constant"]


def _distance(x: Tensor) -> Tensor:
    row, column = _positions(*x.shape)
    return x - (column - row).abs().to(x.dtype) * (1 / 128)


def _capped(x: Tensor) -> Tensor:
    row, column = _positions(*x.shape)
    return x * (row - column).clamp(-64, 64).to(x.dtype)


def _view(x: Tensor) -> Tensor:
    row, column = _positions(x.shape[1], x.shape[0])
    return x + (row + column).to(x.dtype).t() * 0.25


@pytest.mark.parametrize("shape", [(300, 320), (1100, 96)])
@pytest.mark.parametrize("function", [_distance, _capped, _view])
def test_no_table_is_stored(function: Callable[[Tensor], Tensor], shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(function), (x,))
    assert _constants(program) and max(_constants(program)) < x.numel() / 64
    exact, found = function(x.double()), program(x).double()
    # Two roundings of numbers of this size.
    assert (found - exact).abs().max() <= exact.abs().max() * 2**-8


def test_tables_that_are_not_arithmetic_are_stored() -> None:
    def function(x: Tensor) -> Tensor:
        row, column = _positions(*x.shape)
        return x + torch.sin((row * column).float()).half()

    x = torch.zeros(300, 320).half()
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(function), (x,))
    assert _constants(program) == [300 * 320] and (program(x) - function(x)).abs().max() <= 2**-8


def test_a_table_that_a_product_reads_is_stored() -> None:
    """A product reads its weights as the host lays them out, which a computed table cannot be."""

    def function(x: Tensor) -> Tensor:
        row, column = _positions(300, 320)
        return x @ (row - column).abs().half()

    x = torch.randn(8, 300, generator=torch.Generator().manual_seed(0)).half() * 0.01
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(function), (x,))
    assert _constants(program) == [300 * 320]

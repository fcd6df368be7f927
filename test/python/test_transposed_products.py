# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Either operand of a product may come first: layouts, padded rows in LX and the room in LX are the same for both."""

from __future__ import annotations

import pytest
import torch

import spyre_mlir
from spyre_mlir.zoo.blocks import AppliedFunction


def _arrays(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple((torch.randn(shape, generator=generator) / 4).half() for shape in shapes)


def _mean_of_columns(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(1, 2)).mean(-1)


def _mean_of_rows(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (k @ q.transpose(1, 2)).mean(1)


def _weighted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = k @ q.transpose(1, 2)
    return v.transpose(1, 2) @ torch.exp(scores - scores.amax(1, keepdim=True))


@pytest.mark.parametrize("depth", [64, 80, 128])
@pytest.mark.parametrize(("heads", "rows", "keys"), [(32, 2048, 512), (8, 1024, 577), (4, 512, 2048)])
def test_both_spellings_take_equal_time(heads: int, rows: int, keys: int, depth: int) -> None:
    """The tile of a product with swapped operands has the rows of its second operand."""
    q, k = _arrays((heads, rows, depth), (heads, keys, depth))
    columns, transposed = (
        spyre_mlir.compile(AppliedFunction(function), (q, k))
        for function in (_mean_of_columns, _mean_of_rows)
    )
    times = [program.metrics()["predicted_us"] for program in (columns, transposed)]
    assert max(times) <= 1.02 * min(times)
    # The means are dense: one number per element, not one per stick.
    assert columns.metrics()["hbm_written_bytes"] <= 2 * 2 * heads * -(-rows // 64) * 64


@pytest.mark.parametrize("cores", [1, 7, 32])
@pytest.mark.parametrize(("rows", "keys", "depth"), [(130, 77, 80), (64, 33, 96), (200, 65, 64)])
def test_products_in_both_orientations(rows: int, keys: int, depth: int, cores: int) -> None:
    q, k, v = _arrays((2, rows, depth), (2, keys, depth), (2, keys, depth))
    for function, arguments in ((_mean_of_columns, (q, k)), (_mean_of_rows, (q, k)), (_weighted, (q, k, v))):
        program = spyre_mlir.compile(AppliedFunction(function), arguments, sencores=cores, verify_each=True)
        wanted = function(*(each.double() for each in arguments))
        torch.testing.assert_close(program(*arguments).double(), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("keys", [77, 300, 577])
def test_rows_that_a_product_pads_stay_in_lx(keys: int) -> None:
    """The product reads whole sticks of keys, of which the operation before it writes only the keys."""
    q, k, v = _arrays((8, 1024, 64), (8, keys, 64), (8, keys, 64))
    program = spyre_mlir.compile(AppliedFunction(_weighted), (q, k, v))
    whole = -(-keys // 64) * 64
    moved = program.metrics()
    assert moved["hbm_written_bytes"] <= 2 * q.numel()
    assert moved["hbm_read_bytes"] <= 1.5 * 2 * (q.numel() + 2 * 8 * whole * 64)

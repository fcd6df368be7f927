# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cascades of reductions have the numbers of PyTorch, in f64 and within the error of its own fp16."""

from __future__ import annotations

import warnings

import pytest
import torch
from cascade_programs import cascade, deviation

import spyre_mlir
from spyre_mlir.zoo.blocks import AppliedFunction


@pytest.mark.parametrize("seed", range(200))
def test_numbers(seed: int) -> None:
    found = cascade(seed, full=False)
    inputs = found.inputs()
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(found.function), inputs)
        results = program(*inputs)
    assert deviation(found, results) <= 1, str(found)


@pytest.mark.parametrize("seed", range(4))
def test_bounds(seed: int) -> None:
    """The compiler's bound counts the bytes of inputs and results that the generator counts."""
    found = cascade(seed, full=True)
    with warnings.catch_warnings(action="ignore"):
        bound = spyre_mlir.compile(AppliedFunction(found.function), found.inputs()).bound()
    assert bound is not None and bound.bytes == pytest.approx(found.bytes, rel=0.02)


def test_tiles_of_heads_and_rows() -> None:
    """Two dims are tiled together, and the mask, which has no heads, is computed in the loop over rows."""

    def function(queries, keys, values, mask):
        return torch.sigmoid(queries @ keys.transpose(1, 2) * 0.125 + (mask - 1) * 8) @ values

    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(4, 512, 64, generator=draw).half() * 0.5 for _ in range(3)]
    inputs.append((torch.rand(512, 512, generator=draw) > 0.3).half())
    program = spyre_mlir.compile(AppliedFunction(function), inputs, sencores=1, lx_frac_avail=0.2)
    tilings = [
        remark
        for remark in program.pass_remarks
        if (remark.pass_name, remark.kind) == ("auto-tiling", "tiling")
    ]
    assert any("2 tiles of 2 tiles" in str(remark.reason) for remark in tilings)
    exact = function(*(value.double() for value in inputs))
    assert (program(*inputs).double() - exact).abs().max() <= 2e-3 * exact.abs().max()


def test_a_product_reads_repeated_keys_in_place() -> None:
    """Keys of two groups for eight heads are not copied for each head, without an attention."""

    def function(queries, keys):
        return torch.sigmoid(queries @ keys.repeat_interleave(4, 0).transpose(1, 2)).mean(-1)

    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=draw).half() * 0.3 for shape in ((8, 577, 96), (2, 512, 96))]
    program = spyre_mlir.compile(AppliedFunction(function), inputs)
    assert [remark.kind for remark in program.pass_remarks if remark.pass_name == "expand-attention"] == [
        "rewrite"
    ]
    exact = function(*(value.double() for value in inputs))
    assert (program(*inputs).double() - exact).abs().max() <= 2e-3 * exact.abs().max()

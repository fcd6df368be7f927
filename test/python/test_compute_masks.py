# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constant masks with one interval of keys per row are computed from positions, with the same numbers."""

from __future__ import annotations

import pytest
import torch

import spyre_mlir
from spyre_mlir.zoo.blocks import AppliedFunction

ROWS, KEYS, MANY_KEYS = 520, 1100, 2300


def _apart(rows: int, keys: int) -> torch.Tensor:
    return torch.arange(keys)[None, :] - torch.arange(rows)[:, None]


def _empty_rows(rows: int, keys: int) -> torch.Tensor:
    mask = _apart(rows, keys).abs() < 40
    mask[::3] = False
    return mask


#: Masks by name: the rewritten ones, and ones that are not one interval per row.
INTERVALS = {
    "causal": lambda rows, keys: _apart(rows, keys) > 0,
    "lower": lambda rows, keys: _apart(rows, keys) <= 17,
    "window": lambda rows, keys: _apart(rows, keys).abs() > 32,
    "band": lambda rows, keys: _apart(rows, keys).abs() <= 32,
    "columns": lambda rows, keys: (torch.arange(keys) >= 300).expand(rows, keys).contiguous(),
    "empty rows": _empty_rows,
}
OTHERS = {
    "two bands": lambda rows, keys: (_apart(rows, keys).abs() < 8) | (_apart(rows, keys) > 100),
    "random": lambda rows, keys: torch.rand(rows, keys, generator=torch.Generator().manual_seed(0)) < 0.5,
}


def _compiled(mask: torch.Tensor, keys: int, *, additive: bool) -> tuple[spyre_mlir.Program, bool]:
    """Compile a function with a mask, check its numbers, and return whether the mask is computed."""
    scores = torch.randn(2, mask.shape[0], keys, generator=torch.Generator().manual_seed(1)).half()
    bias = torch.where(mask, 0.0, -1000.0).half()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + bias).abs() if additive else x.masked_fill(mask, -3.5).abs()

    program = spyre_mlir.compile(AppliedFunction(function), (scores,))
    assert torch.equal(program(scores), function(scores))
    return program, any(remark.pass_name == "compute-masks" for remark in program.pass_remarks)


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("additive", [False, True])
def test_an_interval_per_row_is_computed(name: str, additive: bool) -> None:
    program, is_computed = _compiled(INTERVALS[name](ROWS, KEYS), KEYS, additive=additive)
    assert is_computed
    # The program reads and writes the scores, but not the mask.
    assert program.metrics()["hbm_read_bytes"] < 1.3 * 2 * ROWS * KEYS * 2


def test_positions_that_are_not_exact_in_16_bits_are_f32() -> None:
    _, is_computed = _compiled(INTERVALS["window"](ROWS, MANY_KEYS), MANY_KEYS, additive=False)
    assert is_computed


@pytest.mark.parametrize("low, is_computed", [(-100.0, True), (1.0, True), (-float("inf"), False)])
def test_a_mask_of_f32(low: float, is_computed: bool) -> None:
    """The device selects only between numbers of 16 bits, so a mask of f32 is a multiple of a comparison."""
    mask = torch.where(INTERVALS["window"](ROWS, KEYS), low, 0.0)
    scores = torch.randn(ROWS, KEYS, generator=torch.Generator().manual_seed(1))

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + mask).abs()

    program = spyre_mlir.compile(AppliedFunction(function), (scores,))
    assert torch.equal(program(scores), function(scores))
    assert any(remark.pass_name == "compute-masks" for remark in program.pass_remarks) == is_computed


@pytest.mark.parametrize("name", OTHERS)
def test_other_masks_stay_constants(name: str) -> None:
    _, is_computed = _compiled(OTHERS[name](ROWS, KEYS), KEYS, additive=False)
    assert not is_computed


def test_small_masks_stay_constants() -> None:
    _, is_computed = _compiled(INTERVALS["causal"](64, 128), 128, additive=False)
    assert not is_computed

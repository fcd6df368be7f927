# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cascades of reductions have the numbers of PyTorch, in f64 and within the error of its own fp16."""

from __future__ import annotations

import warnings

import pytest
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

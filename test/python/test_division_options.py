# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The way of "Work Division Planning" to divide, as options of the pipeline."""

from __future__ import annotations

import math

import pytest

import spyre_mlir
from spyre_mlir.division import work_distribution
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.pipelines.spyre import SpyrePipeline

SIZES = [(512, 4096, 12800), (64, 4096, 1024), (192, 640, 320), (33, 128, 4096)]


def _chain(rows: int, depth: int, columns: int, **options) -> Program:
    """tanh(x) @ w: joint planning would have the two agree."""
    x, w, y = (f"tensor<{a}x{b}xf16>" for a, b in ((rows, depth), (depth, columns), (rows, columns)))
    return spyre_mlir.compile(
        f"""
        func.func @main(%x: {x}, %w: {w}) -> {y} {{
          %zero = arith.constant 0.0 : f16
          %t = tensor.empty() : {x}
          %empty = tensor.empty() : {y}
          %init = linalg.fill ins(%zero : f16) outs(%empty : {y}) -> {y}
          %tanh = linalg.tanh ins(%x : {x}) outs(%t : {x}) -> {x}
          %y = linalg.matmul ins(%tanh, %w : {x}, {w}) outs(%init : {y}) -> {y}
          return %y : {y}
        }}
        """,
        **options,
    )


@pytest.mark.parametrize("cores", [6, 32])
@pytest.mark.parametrize(("rows", "depth", "columns"), SIZES)
def test_matmuls_as_specified(rows, depth, columns, cores):
    """Output dims by their rows or sticks, the larger first, then K; planning together leaves it so."""
    program = _chain(rows, depth, columns, sencores=cores, matmul="specified")
    (design,) = (each for each in program.bundle.designs.values() if each.opcode == "batchmatmul")
    units = (rows, columns // 64, depth // 64)
    expected = work_distribution(units, frozenset({2}), cores)
    assert sorted(design.slices.values()) == sorted((*expected, *[1] * (len(design.slices) - 3)))
    assert design.cores == math.prod(expected)


def test_the_cheapest_is_the_default():
    assert SpyrePipeline().matmul == "cost"
    times = [_chain(*SIZES[0], **options).timeline().total_ns for options in ({}, {"matmul": "specified"})]
    assert times[0] < times[1]


def test_strategy_b_by_the_environment(monkeypatch):
    """CO_OPTIMIZER is the default of the option; another word is an error with the choices."""
    monkeypatch.setenv("CO_OPTIMIZER", "strategy-b")
    assert "co-optimize-strategy-b" in str(SpyrePipeline().pipeline())
    assert "joint-planning" in str(SpyrePipeline(co_optimizer="joint").pipeline())
    monkeypatch.setenv("CO_OPTIMIZER", "b")
    with pytest.raises(CompileError, match="CO_OPTIMIZER must be one of joint, strategy-b, not 'b'"):
        SpyrePipeline()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The number of runs that auto-tiling tries: it grows with the program, not with the program times the longest run."""

from __future__ import annotations

import pytest

from spyre_mlir import dialects
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.mlir import ir
from spyre_mlir.passes.auto_tiling import AutoTiling
from spyre_mlir.passes.base import NoEvaluator
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

LONGEST = 64


class Unpaid(NoEvaluator):
    """An evaluator by which no tiling pays, and the number of operations of each module that it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def cost(self, module: ir.Module) -> ProgramCost:
        self.sizes.append(str(module).count("linalg.generic"))
        return ProgramCost(1.0, 1)


def chain(length: int) -> str:
    """Return elementwise ops that add the previous op and the op ``length / 2`` earlier: ``length / 2`` are live."""
    tensor = "tensor<1024x2048xf16>"
    lines = ["#id = affine_map<(d0, d1) -> (d0, d1)>", f"func.func @main(%v: {tensor}) -> {tensor} {{"]
    lines.append(f"  %e = tensor.empty() : {tensor}")
    values = ["%v"]
    for index in range(length):
        old = values[max(index - length // 2, 0)]
        lines += [
            f"  %v{index} = linalg.generic {{indexing_maps = [#id, #id, #id],"
            f' iterator_types = ["parallel", "parallel"]}}'
            f" ins({values[-1]}, {old} : {tensor}, {tensor}) outs(%e : {tensor}) {{",
            "  ^bb0(%a: f16, %b: f16, %o: f16):",
            "    %r = arith.addf %a, %b : f16",
            "    linalg.yield %r : f16",
            f"  }} -> {tensor}",
        ]
        values.append(f"%v{index}")
    return "\n".join([*lines, f"  return {values[-1]} : {tensor}", "}"])


@pytest.mark.parametrize("length", [200, 400])
def test_a_long_chain_of_live_values_tries_few_runs(length):
    """Each operation is in the inner half of a tried group, and two groups share half of their operations."""
    module = ir.Module.parse(chain(length), dialects.context())
    run_pipeline(module, SpyrePipeline().pipeline(to_level="device-ops"))
    evaluator = Unpaid()
    with module.context, module.operation.location:
        AutoTiling(spans=False).decide(module.operation, evaluator)
    runs = length // (LONGEST // 2)
    # Each run untiled, in up to five cuts of each of two dims, and in up to six nests of both.
    assert 11 * runs / 2 < len(evaluator.sizes) <= 17 * (runs + 3)

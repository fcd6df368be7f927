# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides each operation over the cores."""

from __future__ import annotations

from typing import ClassVar, Literal

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_compute
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import splits_text
from spyre_mlir.division_search.work_division import DivisionOfOperation, WorkDivision
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import (
    Divider,
    blocked_dims,
    committed_splits,
    pinned_division,
)
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class WorkDistribution(Pass):
    """Record on each op how many slices each of its dims has, and which slices each core owns.

    This is the second pass of work division ("Work Division Planning"). The splits of ``span-reduction`` are lower
    bounds. Output dims are split first, the largest first, then at most one reduction dim. The cores combine partial
    results over the ring (``sdsc.combine``), and the core of the last slice has the finished value. ``matmul=cost``
    uses the cheapest split of a matmul by the cost model instead (``division_search/work_division.py``), ``specified``
    the same rule as for other ops. ``uneven`` lets the last slice differ from the others. ``division`` is the name of
    another algorithm (docs/writing-an-algorithm.md). Divisions pinned by a plan file (``apply-plan``) are not changed.

        sdsc.division = #sdsc.division<[1, 16], affine_map<(d0) -> (0, d0 mod 16)>>
    """

    name: ClassVar[str] = "work-distribution"
    matmul: Literal["cost", "specified"] = "cost"
    uneven: bool = False
    division: str = "priority"

    def run(self, module: ir.Operation) -> None:
        cores, divider = target_of(module).cores, Divider()
        for func in functions(module):
            memory = AliasAnalysis(func)
            for op in filter(is_compute, all_ops(func)):
                opcode, space, _ = memory.space(op)
                order = None  # the default order in which core ids count slices
                if pins_of(op).slices is not None:
                    splits, order = pinned_division(op, opcode, space, cores)
                else:
                    by_cost = self.matmul == "cost" and DEVICE_OPS[opcode].kind.is_divided_by_cost
                    try:
                        limits = committed_splits(op), blocked_dims(op), self.uneven and not space.symbolic
                        problem = DivisionOfOperation.of_space(opcode, space, cores, *limits, by_cost)
                        splits = WorkDivision.registry.make(self.division).splits(problem)
                    except ValueError as error:
                        raise error_at(op, f"'{opcode}' cannot be divided: {error}") from error
                division = divider.divide(op, opcode, space, splits, order)
                if division.cores < cores or division.partial:
                    reason = f"{division.cores} of {cores} cores: {splits_text(splits, space.units)}"
                    if division.partial:
                        reason += (
                            f"; cores {', '.join(map(str, division.finishers))} have the finished values"
                        )
                    self.remark(op, "division", reason)

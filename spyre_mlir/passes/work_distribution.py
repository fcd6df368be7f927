"""Divides every operation over the cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.division import Division, distribute
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import Memory, body_of, functions, is_compute
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class WorkDistribution(Pass):
    """Record on each op how many slices each of its dims has, and which slices each core owns.

    Output dims are split, the largest first, whole sticks each; reduced dims are not. ``sencores`` is the
    number of cores, 1 to 32.

        sdsc.division = #sdsc.division<[1, 16], affine_map<(d0) -> (0, d0 mod 16)>>
    """

    name: ClassVar[str] = "work-distribution"
    sencores: int = 32

    def run(self, module: ir.Operation) -> None:
        if not 1 <= self.sencores <= device().cores:
            raise CompileError(f"sencores is {self.sencores}; the device has 1 to {device().cores} cores.")
        for func in functions(module):
            memory = Memory(func)
            for op in body_of(func):
                if is_compute(op):
                    self._divide(memory, op)

    def _divide(self, memory: Memory, op: ir.Operation) -> None:
        _, space, _ = memory.space(op)
        output = space.present[-1]
        divisible = [dim in output and dim not in space.reduced for dim in range(len(space.sizes))]
        division = distribute(space.units, divisible, self.sencores)
        op.attributes[sdsc.DIVISION] = sdsc.division_attr(division.splits, core_map(division))
        if division.cores < self.sencores:
            reason = f"{division.cores} of {self.sencores} cores: splits {list(division.splits)} of {list(space.units)}"
            self.remark(op, "division", reason)


def core_map(division: Division) -> ir.AffineMap:
    """``(core) -> slices`` in mixed radix, the first dim fastest."""
    core: ir.AffineExpr = ir.AffineDimExpr.get(0)
    results, before = [], 1
    for split in division.splits:
        scaled = ir.AffineExpr.get_floor_div(core, before)
        results.append(ir.AffineExpr.get_mod(scaled, split) if split > 1 else ir.AffineConstantExpr.get(0))
        before *= split
    return ir.AffineMap.get(1, 0, results)

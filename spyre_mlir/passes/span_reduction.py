# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits operations as far as the reach of a core needs."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_compute
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import SpanError, required_splits
from spyre_mlir.division.slices import splits_text
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.conversion_parts import CONVERSIONS, convert_by_parts, parts_in_reach
from spyre_mlir.rewriting.divider import Divider, blocked_dims
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class SpanReduction(Pass):
    """Split each op into the fewest slices with which no core spans more than 256 MiB - 4 KiB of any operand.

    The first of the two passes of work division, and the mandatory one: ``must_split_vars`` of
    "Work Division Planning". Most ops need nothing and stay as they are.
    ``limit_bytes`` replaces the limit of the device description, for experiments.

    Before: level *laid out*. After: ops that need it have an ``sdsc.division`` with these slices, which
    ``work-distribution`` takes as a lower bound. A conversion of layouts that no legal split brings within
    the limit is done part by part. An operand of another operation that none brings within the limit, or only
    one of two reduction dims, is an error.

        %c = linalg.generic .. sdsc.op = #sdsc.op<"batchmatmul", {}>
    ->  %c = linalg.generic .. sdsc.division = #sdsc.division<[1, 1, 2], affine_map<(d0) -> (0, 0, d0 mod 2)>>
    """

    name: ClassVar[str] = "span-reduction"
    limit_bytes: int | None = None

    def run(self, module: ir.Operation) -> None:
        cores, divider = target_of(module).cores, Divider()
        for func in functions(module):
            self._cut(func, cores)
            memory = AliasAnalysis(func)
            for op in all_ops(func):
                if is_compute(op):
                    self._reduce(memory, op, cores, divider)

    def _cut(self, func: ir.Operation, cores: int) -> None:
        """Split conversions that no division brings into reach into several."""
        for op in all_ops(func):
            if op.name in CONVERSIONS:
                memory = AliasAnalysis(func)
                parts = parts_in_reach(memory, op, cores, self.limit_bytes)
                if parts is not None:
                    text = f"{parts.count} parts of dim {parts.dim} are converted; no division brings all into reach"
                    self.remark(op, "span", text)
                    convert_by_parts(memory, op, parts)

    def _reduce(self, memory: AliasAnalysis, op: ir.Operation, cores: int, divider: Divider) -> None:
        opcode, space, values = memory.space(op)
        try:
            exempt = DEVICE_OPS[opcode].indirect
            splits = required_splits(space, cores, self.limit_bytes, blocked=blocked_dims(op), exempt=exempt)
        except SpanError as error:
            shape = list(shape_of(values[error.operand]))
            raise error_at(
                op, f"'{opcode}' cannot reach operand {error.operand}, of shape {shape}. {error}"
            ) from error
        if any(split > 1 for split in splits):
            divider.divide(op, opcode, space, splits)
            self.remark(
                op,
                "span",
                f"to reach its operands, '{opcode}' needs {splits_text(splits, space.units)}",
            )

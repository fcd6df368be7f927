# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *divided*."""

from __future__ import annotations

import functools
import math
from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, is_compute
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.division import Division
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.spans import out_of_reach, span_bytes
from spyre_mlir.errors import counted
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS


@dataclass(frozen=True)
class VerifyDivided(Pass):
    """Check each op's division: legal splits, a core map that gives each slice one owner, spans within the limit.

    The checks use only the IR: slices are whole sticks, none is empty, there are at most as many slices as device
    cores, the map's values for all cores are distinct and in range, partial results of a split reduction are combined
    by a declared operation, and no core addresses more of an HBM tensor than the device can span.
    """

    name: ClassVar[str] = "verify-divided"

    def run_on(self, func: ir.Operation) -> None:
        memory = AliasAnalysis(func)
        for op in filter(is_compute, all_ops(func)):
            if sdsc.DIVISION not in op.attributes:
                raise error_at(op, "this operation has no sdsc.division")
            division, (opcode, space, values) = memory.division(op), memory.space(op)
            combine = op.attributes[sdsc.COMBINE] if sdsc.COMBINE in op.attributes else None
            combine = None if combine is None else ir.StringAttr(combine).value
            problem = _problem(opcode, space, division, combine)
            if problem is not None:
                raise error_at(op, problem)
            operand = out_of_reach(space, division.splits, DEVICE_OPS[opcode].indirect)
            if operand is not None:
                span, shape = span_bytes(space, operand, division.splits), list(shape_of(values[operand]))
                text = f"a core addresses {span} bytes of operand {operand}, of shape {shape}"
                raise error_at(op, f"{text}; the limit is {space.target.span_bytes}")


@functools.lru_cache(maxsize=1 << 12)
def _problem(opcode: str, space: Space, division: Division, combine: str | None) -> str | None:
    """Return the error in a division. Results are cached because a program repeats few divisions."""
    splits = division.splits
    if len(splits) != len(space.sizes):
        return f"the division has {counted(len(splits), 'dim')}, not {len(space.sizes)}"
    cores = math.prod(splits)
    if not 1 <= cores <= space.target.device_cores:
        return f"the division needs {cores} cores, the device has {space.target.device_cores}"
    shares = shares_of(space.units, splits)
    for dim, (split, units) in enumerate(zip(splits, space.units, strict=True)):
        if (split - 1) * shares[dim] >= units:
            return f"dim {dim} has {units} rows or sticks, so the last of {split} slices has no work"
    owners = set(division.owners)
    legal = all(0 <= slice_ < split for owner in owners for slice_, split in zip(owner, splits, strict=True))
    if len(owners) != cores or not legal:
        return f"the core map does not give each of the {cores} slices one core"
    parts = [dim for dim in sorted(space.reduced) if splits[dim] > 1]
    if not parts:
        return combine and f"no reduction is split, so there is nothing to combine by '{combine}'"
    if combine is None:
        return f"dim {parts[0]} is reduced and divided, but no operation combines the partial results"
    if combine != COMBINE[opcode]:
        return f"partial results of '{opcode}' are combined by '{COMBINE[opcode]}', not by '{combine}'"
    if len(parts) > 1:
        return f"the reduced dims {parts} are divided; at most one may be"
    return None

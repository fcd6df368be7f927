# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks which core owns each part of each buffer, on the final plan."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.division import Division, core_view
from spyre_mlir.errors import counted
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class VerifyOwnership(Pass):
    """Check that each stick of a result has one finishing core, and that LX is read where it was written.

    The checks use only the IR with its divisions, layouts and placements, so the pass must run after
    all passes that can reorder loops or change a layout. If the cores of a reader need other parts of a buffer
    than the cores of the writer have written, there is a *core division mismatch*. In device memory this is free and
    only a remark with both views; for a buffer in LX it is an error.
    """

    name: ClassVar[str] = "verify-ownership"
    is_evaluated: ClassVar[bool] = False

    def run_on(self, func: ir.Operation) -> None:
        usage = usage_of(func)
        for user in usage.ops:
            problem = _problem(user.space, user.division)
            if problem is not None:
                raise error_at(user.op, problem)
        for edge in usage.edges:
            if edge.is_illegal:
                raise edge.error()
            if edge.problem is not None:
                self.remark(edge.reader, "mismatch", edge.text)


@functools.lru_cache(maxsize=1 << 12)
def _problem(space: Space, division: Division) -> str | None:
    """Return why the regions of the finishing cores do not partition the result; None if they do."""
    division = replace(division, reduced=space.reduced)
    parts = math.prod(division.splits[dim] for dim in space.reduced)
    twice = next((group for group in division.groups if len(group) != parts), None)
    if twice is not None:
        return f"cores {list(twice)} compute one part of the result; expected {counted(parts, 'core')}"
    # Halos around slices are ignored, because several cores have them.
    view = core_view(replace(space, halos=()), len(space.views) - 1, division)
    finished = [view.regions[core] for core in division.finishers]
    owned = [region for region in finished if region is not None]
    sticks = sum(math.prod(count for _, count in region.steps) for region in owned)
    # The buffer may have more positions than the operation.
    steps = (min(axis.size, -(-space.padded[axis.dim] // axis.divisor)) for axis in space.views[-1].axes)
    total = math.prod(steps)
    # The number of cores that get each part of a copy's result: the size of the dims that no operand has.
    operand_dims = frozenset[int]().union(*space.present)
    copies = math.prod(size for dim, size in enumerate(space.sizes) if dim not in operand_dims)
    if sticks != copies * total or copies * len(set(owned)) != len(owned):
        return f"the cores finish {sticks} sticks of the result, which has {copies * total}"
    return None

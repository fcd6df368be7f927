# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks who owns what, on the final plan."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.division import Division, core_view
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class VerifyOwnership(Pass):
    """Check that each stick of a result has one finishing core, and that LX is read where it was written.

    Recomputed from the IR alone, divisions, layouts and placements as they are, so it belongs after
    everything that can reorder loops or change a layout. A reader whose cores want other parts of a buffer
    than its writer's cores left is a *core division mismatch*: in device memory that costs nothing and is a
    remark with both views; for a buffer in LX it is an error.
    """

    name: ClassVar[str] = "verify-ownership"
    is_evaluated: ClassVar[bool] = False

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
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
        return f"cores {list(twice)} make one part of the result, which {parts} should"
    # What is around slices, cores have twice.
    view = core_view(replace(space, halos=()), len(space.views) - 1, division)
    finished = [view.regions[core] for core in division.finishers]
    owned = [region for region in finished if region is not None]
    sticks = sum(math.prod(count for _, count in region.steps) for region in owned)
    # The buffer may have more room than the operation has positions.
    steps = (min(axis.size, -(-space.padded[axis.dim] // axis.divisor)) for axis in space.views[-1].axes)
    total = math.prod(steps)
    copies = _copies(space)
    if sticks != copies * total or copies * len(set(owned)) != len(owned):
        return f"the cores finish {sticks} sticks of the result, which has {copies * total}"
    return None


def _copies(space: Space) -> int:
    """Return the number of cores that get each part of the result of a copy: the dims that no operand has."""
    operand_dims = frozenset[int]().union(*space.present)
    return math.prod(size for dim, size in enumerate(space.sizes) if dim not in operand_dims)

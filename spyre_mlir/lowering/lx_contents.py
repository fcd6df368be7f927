# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contents of the scratchpads of a placed function: what each core holds of a buffer, and what operations access."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.analysis.aliasing import AliasAnalysis, Place, all_ops, is_in_lx
from spyre_mlir.analysis.core_ownership import (
    PartialAccesses,
    partial_accesses_of,
    uses_of_buffers,
    written_distribution,
)
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.division.relayout import Relayout, relayout
from spyre_mlir.division.subviews import Subview, subview_of
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir


class LxContents:
    """Core views of the buffers in LX, by root value; ``CompileError`` where a reader finds another core's part.

    The check stands here because in a bundle nothing could detect that any more.
    """

    def __init__(self, func: ir.Operation) -> None:
        ops = all_ops(func)
        self.core_views: dict[ir.Value, CoreView] = {}
        self.partial: dict[ir.Value, PartialAccesses] = {}  # buffers that operations access in parts
        # Ownership is costly to compute, and only buffers in LX need it.
        if not any(isinstance(sdsc.placement_of(op), sdsc.LxAttr) for op in ops):
            self.memory = AliasAnalysis(func)
            return
        usage = usage_of(func)
        memory, divided = usage.memory, usage.ops
        self.memory = memory
        for edge in usage.edges:
            if edge.is_illegal:
                raise edge.error()
        for user in divided:
            root = memory.place(user.values[-1]).buffer
            if is_in_lx(root):
                self.core_views[root] = written_distribution(
                    user.space, len(user.values) - 1, user.division
                ).complete
        for root, uses in uses_of_buffers(memory, divided).items():
            accesses = partial_accesses_of(root, uses) if is_in_lx(root) else None
            if accesses is not None:
                self.partial[root] = accesses

    def bytes_per_core(self, root: ir.Value, space: Space, operand: int, division: Division) -> int:
        """Return the bytes per core that a buffer takes if it is in LX."""
        if root not in self.partial:
            return local_bytes(space, operand, division)
        holder = self.partial[root].holder
        assert holder is not None
        user, operand = holder
        return local_bytes(user.space, operand, user.division)

    def subviews(self, places: Sequence[Place], space: Space, division: Division) -> dict[int, Subview]:
        """Return the subviews of the operands that access a part of what a core holds of a buffer in LX."""
        subviews: dict[int, Subview] = {}
        for operand, place in enumerate(places):
            if place.buffer in self.partial:
                whole, accessed = self.partial[place.buffer].view, core_view(space, operand, division)
                # An access to all of it needs no subview: the core's slices lie one behind the other.
                if mismatch(whole, accessed) is not None:
                    subviews[operand] = subview_of(whole, accessed)
        return subviews

    def relayout(self, op: ir.Operation, space: Space, division: Division) -> Relayout:
        """Return the distributions over cores from which and to which a shuffle copies."""
        root = self.memory.place(op.operands[0]).buffer
        plan = relayout(space, self.core_views[root], division) if root in self.core_views else None
        if plan is None:
            raise error_at(op, "a shuffle takes slices that are in LX, but its source is not there")
        return plan

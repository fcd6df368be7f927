# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops with a trip count that may differ from core to core, with one iter_arg or none."""

from __future__ import annotations

from collections.abc import Callable

from spyre_mlir.ktir.memory_views import MemoryViews
from spyre_mlir.mlir import ir

LoopBody = Callable[[ir.Value, ir.Value | None], ir.Value | None]


def counted_loop(
    memory: MemoryViews, trips: ir.Value, initial: ir.Value | None, body: LoopBody
) -> ir.Value | None:
    """Build a loop: ``body`` gets the iteration index and the iter_arg, and yields the next; return the last one."""
    build = memory.build
    carried = [] if initial is None else [initial]
    types = [value.type for value in carried]
    bounds = [build.number(0), trips, build.number(1)]
    op = ir.Operation.create("scf.for", results=types, operands=[*bounds, *carried], regions=1)
    block = ir.Block.create_at_start(op.regions[0], [build.index, *types])
    with memory.scope(), ir.InsertionPoint(block):
        value = body(block.arguments[0], block.arguments[1] if carried else None)
        ir.Operation.create("scf.yield", operands=[] if value is None else [value])
    return op.result if carried else None

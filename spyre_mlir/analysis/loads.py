# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads: operations that read only host data and wait for device memory, during which others can compute."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided
from spyre_mlir.analysis.loops import LOOP, body_block
from spyre_mlir.cost.cost_model import compute_ns, memory_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.dialects.targets import empty_module
from spyre_mlir.mlir import ir


def nested_blocks(block: ir.Block) -> Iterator[ir.Block]:
    """Yield a block and the blocks of the loops in it."""
    yield block
    for op in (item.operation for item in block.operations):
        if op.name == LOOP:
            yield from nested_blocks(body_block(op))


def work_of(user: Divided) -> OperationWork | None:
    """Return the work of an operation with all operands in device memory; None for a shuffle, which stays in LX."""
    return None if user.opcode == SHUFFLE else operation_work(user.opcode, user.space, user.division)


def only_loads(usage: Usage, user: Divided, work: OperationWork) -> bool:
    """Return whether an operation reads only host data, and loads take longer than its computation."""
    from_host = all(usage.buffers[usage.root(value)].from_host for value in user.values[:-1])
    return from_host and usage.memory.is_whole(user.values[-1]) and memory_ns(work) > compute_ns(work)


def needed_in_block(op: ir.Operation) -> list[ir.Operation]:
    """Return the ops of the same block on which an op depends, directly or indirectly, in any order."""
    producers: list[ir.Operation] = []
    pending = [op]
    while pending:
        for value in pending.pop().operands:
            before = defining_op(value)
            if before is not None and before.block == op.block and before not in producers:
                producers.append(before)
                pending.append(before)
    return producers


def move_behind(op: ir.Operation, anchor: ir.Operation) -> None:
    """Move operation ``op``, and the views that it needs, directly after operation ``anchor`` of the same block."""
    ops = [item.operation for item in op.block.operations]
    needed = needed_in_block(op)
    last = anchor
    # In program order, so that each view stays after the view that it reads.
    for moved in (*(moved for moved in ops[ops.index(anchor) + 1 :] if moved in needed), op):
        moved.move_after(last)
        last = moved


def module_of(func: ir.Operation) -> ir.Module:
    """Return a module for the same target that contains only a copy of a function."""
    with func.location:
        module = empty_module(func)
    ir.InsertionPoint(module.body).insert(func.clone())
    return module

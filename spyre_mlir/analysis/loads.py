# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that wait for device memory and read data of the host alone: others can compute meanwhile."""

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
    """A block and the blocks of the loops in it."""
    yield block
    for op in (item.operation for item in block.operations):
        if op.name == LOOP:
            yield from nested_blocks(body_block(op))


def work_of(user: Divided) -> OperationWork | None:
    """The work of an operation with all operands in device memory; None for a shuffle, which has none there."""
    return None if user.opcode == SHUFFLE else operation_work(user.opcode, user.space, user.division)


def only_loads(usage: Usage, user: Divided, work: OperationWork) -> bool:
    """Return whether an operation reads data of the host alone, and loads longer than it computes."""
    from_host = all(usage.buffers[usage.root(value)].from_host for value in user.values[:-1])
    return from_host and usage.memory.is_whole(user.values[-1]) and memory_ns(work) > compute_ns(work)


def needed_in_block(op: ir.Operation) -> list[ir.Operation]:
    """The defining ops of the operands of an op in its block, and of theirs, in any order."""
    producers: list[ir.Operation] = []
    pending = [op]
    while pending:
        for value in pending.pop().operands:
            before = defining_op(value)
            if before is not None and before.block == op.block and before not in producers:
                producers.append(before)
                pending.append(before)
    return producers


def move_behind(op: ir.Operation, behind: ir.Operation) -> None:
    """Move an operation, and the views that it needs, right behind another one of its block."""
    ops = [item.operation for item in op.block.operations]
    needed = needed_in_block(op)
    last = behind
    # In program order, so that each view stays behind the view that it reads.
    for moved in (*(moved for moved in ops[ops.index(behind) + 1 :] if moved in needed), op):
        moved.move_after(last)
        last = moved


def module_of(func: ir.Operation) -> ir.Module:
    """Return a module for the same target with a copy of a function alone."""
    with func.location:
        module = empty_module(func)
    ir.InsertionPoint(module.body).insert(func.clone())
    return module

"""Operations that wait for device memory and need nothing but what the host gave: others can compute meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided
from spyre_mlir.analysis.loops import LOOP, body_block
from spyre_mlir.cost.model import compute_ns, memory_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir


def nested_blocks(block: ir.Block) -> Iterator[ir.Block]:
    """A block and those of the loops in it."""
    yield block
    for op in (each.operation for each in block.operations):
        if op.name == LOOP:
            yield from nested_blocks(body_block(op))


def work_of(each: Divided) -> OperationWork | None:
    """What an operation does with all operands in device memory; None for a shuffle, which has none there."""
    return None if each.opcode == SHUFFLE else operation_work(each.opcode, each.space, each.division)


def only_loads(usage: Usage, each: Divided, work: OperationWork) -> bool:
    """Whether an operation reads nothing but what the host gave, and loads longer than it computes."""
    given = all(usage.buffers[usage.root(value)].given for value in each.values[:-1])
    return given and usage.memory.is_whole(each.values[-1]) and memory_ns(work) > compute_ns(work)


def needed_in_block(op: ir.Operation) -> list[ir.Operation]:
    """What makes the operands of an op in its block, in any order, each once."""
    found: list[ir.Operation] = []
    pending = [op]
    while pending:
        for value in pending.pop().operands:
            before = defining_op(value)
            if before is not None and before.block == op.block and before not in found:
                found.append(before)
                pending.append(before)
    return found


def move_behind(op: ir.Operation, behind: ir.Operation) -> None:
    """Move an operation, and the views that it needs, right behind another one of its block."""
    ops = [each.operation for each in op.block.operations]
    needed = needed_in_block(op)
    last = behind
    for each in (*(each for each in ops[ops.index(behind) + 1 :] if each in needed), op):
        each.move_after(last)
        last = each


def module_of(func: ir.Operation) -> ir.Module:
    """A module with a copy of a function alone."""
    module = ir.Module.create(func.location)
    ir.InsertionPoint(module.body).insert(func.clone())
    return module

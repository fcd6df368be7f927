# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes the order of independent operations so that fewer bytes are live at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, functions, is_compute
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import LOOP, body_block, nested_ops, terminator
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.before_planning import BeforePlanning, fit, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.scratchpad.ordering import Task, better_order


@dataclass(frozen=True)
class ReorderOperations(BeforePlanning):
    """Reorder independent operations of a function, so that more buffers fit in LX.

    The order changes only if the eligible buffers do not fit in LX together, and if the planned program then moves
    fewer bytes and takes no longer by the cost model. An operation stays after the producers of its operands.
    Operations on the same buffer keep their order if one of them writes the buffer or a part of it. A loop is one unit.
    The search is in ``scratchpad/ordering.py``.

    Before, level *divided*:
        %0 = exp(%x); %1 = exp(%y); %2 = sum(%0); %3 = sum(%1)
    After:
        %0 = exp(%x); %2 = sum(%0); %1 = exp(%y); %3 = sum(%1)
    """

    name: ClassVar[str] = "reorder-operations"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            self._reorder(func, evaluator)

    def _reorder(self, func: ir.Operation, evaluator: Evaluator) -> None:
        usage = usage_of(func)
        eligible, space = self.eligible(usage, evaluator), MemorySpace.of_lx(usage.memory.target)
        if fit(eligible, space):
            return
        order = better_order(_tasks(usage.memory), [candidate.buffer for candidate in eligible], space)
        if order is None:
            return
        module = module_of(func)
        (changed,) = functions(module.operation)
        _apply(changed, order)
        before, after = evaluator.cost(module_of(func)), evaluator.cost(module_of(changed))
        if before is None or after is None:
            return
        # Reordering has no cost, so equal time is enough if fewer bytes move.
        if after.bytes >= before.bytes or after.nanoseconds > before.nanoseconds:
            self.remark(
                func, "no order", f"{before} in the order of the program, {after} in the best one known"
            )
            return
        text = f"{before} in the order of the program, {after} in another one"
        self.remark(func, "order", text, before=before.bytes, after=after.bytes)
        replace_function(func, module)


def _movable(block: ir.Block) -> list[ir.Operation]:
    """Return all ops of a block except the terminator, including ops that only name values."""
    return [op.operation for op in block.operations][:-1]


def _tasks(memory: AliasAnalysis) -> list[Task]:
    """Return the ops of a function as tasks, each after its producers and after earlier accesses to its buffers."""
    ops = _movable(memory.block)
    number = {op: index for index, op in enumerate(ops)}
    writer: dict[ir.Value, int] = {}
    readers: dict[ir.Value, list[int]] = {}
    tasks = []
    for index, op in enumerate(ops):
        after = {number[maker] for maker in map(defining_op, _used(op)) if maker in number}
        steps = _steps(op)
        for step in steps:
            *read, written = (memory.place(value).buffer for value in memory.operands(step))
            # Operations on a buffer stay after its writer, and a writer stays after earlier readers.
            after |= {writer[root] for root in (*read, written) if root in writer}
            after.update(readers.get(written, ()))
            for root in read:
                readers.setdefault(root, []).append(index)
            writer[written], readers[written] = index, []
        tasks.append(Task(tuple(sorted(after - {index})), len(steps)))
    return tasks


def _steps(op: ir.Operation) -> list[ir.Operation]:
    """Return the operations of an op that run on the device: the op itself, or the ops of a loop."""
    ops = nested_ops(body_block(op)) if op.name == LOOP else [op]
    return [inner for inner in ops if is_compute(inner)]


def _used(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the values that an op and its nested ops use."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _used(inner.operation)


def _apply(func: ir.Operation, order: Sequence[int]) -> None:
    """Move the ops of a function into the given order, before its terminator."""
    block = func.regions[0].blocks[0]
    ops, end = _movable(block), terminator(block)
    for index in order:
        ops[index].move_before(end)

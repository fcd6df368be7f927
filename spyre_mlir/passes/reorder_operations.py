"""Changes the order of independent operations so that fewer bytes are alive at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes._loops import LOOP, body_block, nested_ops, terminator
from spyre_mlir.passes._memory import Memory, functions, is_compute
from spyre_mlir.passes._planned import BeforePlanning, replace_function
from spyre_mlir.passes._usage import Usage
from spyre_mlir.scratchpad.ordering import Task, better_order


@dataclass(frozen=True)
class ReorderOperations(BeforePlanning):
    """Put independent operations of a function in another order, where more then fits into LX.

    Only where all that could be in LX does not fit, and only if the planned program then moves fewer bytes and takes
    no longer by the cost model; else the order stays as it is. An operation stays behind those that make what it reads;
    operations on one buffer, of which one writes it or a part of it, stay in their order; a loop is one unit.
    ``scratchpad/ordering.py`` is the search.

    Before, level *divided*:
        %0 = exp(%x); %1 = exp(%y); %2 = sum(%0); %3 = sum(%1)
    After:
        %0 = exp(%x); %2 = sum(%0); %1 = exp(%y); %3 = sum(%1)
    """

    name: ClassVar[str] = "reorder-operations"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            self._reorder(func)

    def _reorder(self, func: ir.Operation) -> None:
        usage = Usage(func)
        able = self.able(usage)
        if self.load(able) <= self.space.capacity:
            return
        order = better_order(_tasks(usage.memory), [each.buffer for each in able], self.space)
        if order is None:
            return
        changed = func.clone().operation
        _apply(changed, order)
        before, after = self.price(func), self.price(changed)
        moved = sum(at != task for at, task in enumerate(order))
        if after.bytes >= before.bytes or after.nanoseconds > before.nanoseconds:
            self.remark(func, "no order", f"{before} in the order of the program, {after} in the best one known")
            return
        text = f"{moved} operations at other places: {before} in the order of the program, {after} now"
        self.remark(func, "order", text, before=before.bytes, after=after.bytes)
        replace_function(func, changed)


def _units(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block that run on the device, and its loops. All others only name values."""
    ops = [op.operation for op in block.operations]
    return [op for op in ops if op.name == LOOP or is_compute(op)]


def _tasks(memory: Memory) -> list[Task]:
    """The units of a function, each after those that make what it needs and those that its buffers make it wait for."""
    units = _units(memory.block)
    number = {op: at for at, op in enumerate(units)}
    needed = _Needed(number)
    writer: dict[ir.Value, int] = {}
    readers: dict[ir.Value, list[int]] = {}
    tasks = []
    for at, unit in enumerate(units):
        after = needed.by(unit)
        steps = _steps(unit)
        for step in steps:
            *read, written = (memory.place(value).buffer for value in memory.operands(step))
            after |= {writer[root] for root in (*read, written) if root in writer}
            after.update(readers.get(written, ()))
            for root in read:
                readers.setdefault(root, []).append(at)
            writer[written], readers[written] = at, []
        tasks.append(Task(tuple(sorted(after - {at})), len(steps)))
    return tasks


def _steps(unit: ir.Operation) -> list[ir.Operation]:
    """The compute ops of a unit."""
    return [op for op in nested_ops(body_block(unit)) if is_compute(op)] if unit.name == LOOP else [unit]


class _Needed:
    """The units that make what ops use, directly or through ops that are no units."""

    def __init__(self, number: dict[ir.Operation, int]) -> None:
        self.number = number
        self._through: dict[ir.Operation, frozenset[int]] = {}

    def by(self, op: ir.Operation) -> set[int]:
        """The numbers of the units that an op, or what is inside of it, needs."""
        found: set[int] = set()
        for value in _used(op):
            maker = defining_op(value)
            if maker in self.number:
                found.add(self.number[maker])
            elif maker is not None and maker in self._through:
                found |= self._through[maker]
        return found

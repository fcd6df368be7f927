# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes the order of independent operations so that fewer bytes are live at once."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from spyre_mlir.analysis.aliasing import AliasAnalysis, functions, is_compute
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import LOOP, body_block, nested_ops
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.scratchpad_planning import BeforePlanning, fit, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import read_by
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance

#: Search steps to compute the loss of an order.
_SELECTION_STEPS = 5_000


class Task(NamedTuple):
    """A number of consecutive ``steps`` of a program, and the indices of the tasks that must come before it."""

    after: tuple[int, ...] = ()
    steps: int = 1


@dataclass(frozen=True)
class ReorderOperations(BeforePlanning):
    """Reorder independent operations of a function, so that more buffers fit in LX.

    The order changes only if the eligible buffers do not fit in LX together, and if the planned program then moves
    fewer bytes and takes no longer by the cost model. An operation stays after the producers of its operands.
    Operations on the same buffer keep their order if one of them writes the buffer or a part of it. A loop is one unit.

    Before, level *divided*:
        %0 = exp(%x); %1 = exp(%y); %2 = sum(%0); %3 = sum(%1)
    After:
        %0 = exp(%x); %2 = sum(%0); %1 = exp(%y); %3 = sum(%1)
    """

    name: ClassVar[str] = "reorder-operations"

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        usage = usage_of(func)
        eligible, space = self.eligible(usage, evaluator), MemorySpace.of_lx(usage.memory.target)
        if fit(eligible, space):
            return
        order = better_order(tasks_of(usage.memory), [candidate.buffer for candidate in eligible], space)
        if order is None:
            return
        module = module_of(func)
        (changed,) = functions(module.operation)
        reorder(changed, order)
        before, after = evaluator.cost(module_of(func)), evaluator.cost(module_of(changed))
        if before is None or after is None:
            return
        # Reordering has no cost, so equal time is enough if fewer bytes move.
        if after.bytes >= before.bytes or after.nanoseconds > before.nanoseconds:
            text = f"{before} in program order, {after} in the best known order"
            self.remark(func, "no order", text)
            return
        text = f"{before} in program order, {after} in another order"
        self.remark(func, "order", text, before=before.bytes, after=after.bytes)
        replace_function(func, module)


def reorder(func: ir.Operation, order: Sequence[int]) -> None:
    """Move the ops of a function into an order of its tasks, before its terminator."""
    *ops, end = [op.operation for op in func.regions[0].blocks[0].operations]
    for index in order:
        ops[index].move_before(end)


def tasks_of(memory: AliasAnalysis) -> list[Task]:
    """Return the ops of a function as tasks, each after its producers and after earlier accesses to its buffers."""
    *ops, _ = [op.operation for op in memory.block.operations]
    number = {op: index for index, op in enumerate(ops)}
    writer: dict[ir.Value, int] = {}
    readers: dict[ir.Value, list[int]] = {}
    tasks = []
    for index, op in enumerate(ops):
        after = {number[maker] for maker in map(defining_op, read_by(op)) if maker in number}
        # The operations that run on the device: the op itself, or the ops of a loop.
        steps = [
            step for step in (nested_ops(body_block(op)) if op.name == LOOP else [op]) if is_compute(step)
        ]
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


# Orders of tasks with fewer bytes live at once: list scheduling, from either end.
#
# Of the two schedules and the given order, the one with the fewest bytes above the capacity is chosen, if it loses less
# by the planner's own measure (``scratchpad/buffer_selection.py``).


def better_order(
    tasks: Sequence[Task], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> list[int] | None:
    """Return the task indices in an order that loses less than the given order; None if none is known.

    The uses of ``buffers`` are steps, counted over the tasks in their order. The loss is the savings of the buffers
    that do not fit, ignoring addresses.
    """
    task_of = [index for index, task in enumerate(tasks) for _ in range(task.steps)]
    eligible = [
        buffer for buffer in buffers if buffer.saving > 0 and space.bytes_of(buffer) <= space.capacity
    ]
    buffer_uses = [
        (space.bytes_of(buffer), sorted({task_of[use] for use in buffer.uses})) for buffer in eligible
    ]
    before = [task.after for task in tasks]
    orders = [
        list(range(len(tasks))),
        list_schedule(before, buffer_uses),
        list_schedule(successors(before), buffer_uses)[::-1],
    ]
    names = {buffer.name for buffer in eligible}
    starts = itertools.accumulate((task.steps for task in tasks), initial=0)
    steps_of = [range(start, start + task.steps) for start, task in zip(starts, tasks, strict=False)]
    instances, excess = [], []
    for order in orders:
        # The uses at the steps of this order.
        moved = {step: place for place, step in enumerate(step for task in order for step in steps_of[task])}
        retimed = [
            replace(
                buffer,
                uses=tuple(sorted(moved[use] for use in buffer.uses)),
                in_place_parents=tuple(name for name in buffer.in_place_parents if name in names),
            )
            for buffer in eligible
        ]
        instances.append(Instance.of(retimed, space))
        # The bytes above the capacity, summed over all times at which a buffer begins, are quick to compute; only the
        # best order is worth the planner's own measure.
        excess.append(int(np.maximum(instances[-1].loads - space.capacity, 0).sum()))
    best = excess.index(min(excess))
    # Order 0 is the given one.
    if not best:
        return None
    # Imported on use: in most programs no other order needs less memory.
    from spyre_mlir.scratchpad.buffer_selection import select

    lost, lost_now = (
        select(instances[index], space.capacity, budget=_SELECTION_STEPS).lost for index in (best, 0)
    )
    return orders[best] if lost < lost_now else None


# List scheduling for little memory: always choose the ready task that leaves the fewest bytes live.
#
# Ties go to the first task. Scheduling from the end gives another order. Neither is best in general: to find the least
# peak is NP-hard (Sethi, 1975).


def successors(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the successors of each node of a graph that is given by predecessors."""
    followers: list[list[int]] = [[] for _ in edges]
    for task, before in enumerate(edges):
        for predecessor in before:
            followers[predecessor].append(task)
    return followers


def list_schedule(before: Sequence[Sequence[int]], uses: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """Return the order of all tasks; ``before`` are the predecessors of each.

    ``uses`` are (bytes, tasks) of each buffer: it is live from the first to the last of its tasks. A heap holds the
    bytes that each ready task adds; outdated entries stay in the heap.
    """
    count = len(before)
    followers, waits = successors(before), [len(set(predecessors)) for predecessors in before]
    of_task: list[list[int]] = [[] for _ in range(count)]
    added = [0] * count
    for buffer, (size, users) in enumerate(uses):
        for task in users:
            of_task[task].append(buffer)
            # A buffer of one task is live only within the task.
            added[task] += size if len(users) > 1 else 0
    waiting = [set(users) for _, users in uses]
    ready = [(added[task], task) for task in range(count) if not waits[task]]
    heapq.heapify(ready)
    is_scheduled = [False] * count
    order: list[int] = []
    while ready:
        bytes_added, task = heapq.heappop(ready)
        if is_scheduled[task] or bytes_added != added[task]:
            continue
        is_scheduled[task] = True
        order.append(task)
        for buffer in of_task[task]:
            size, users = uses[buffer]
            begun = len(waiting[buffer]) == len(users)
            waiting[buffer].discard(task)
            # After its first task the buffer is live, so only its last task changes the live bytes.
            changed = sorted(waiting[buffer]) if begun else []
            if len(waiting[buffer]) == 1:
                changed += waiting[buffer]
            for other in changed:
                added[other] -= size
            for other in changed:
                if not waits[other]:
                    heapq.heappush(ready, (added[other], other))
        # A predecessor that is named twice counts once, as it does in ``waits``.
        for other in dict.fromkeys(followers[task]):
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (added[other], other))
    return order

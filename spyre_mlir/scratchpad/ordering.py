# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of tasks with fewer bytes live at once: list scheduling, from either end.

Of the two schedules and the given order, the one with the fewest bytes above the capacity is chosen, if it loses less
by the planner's own measure (``buffer_selection.py``).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffer_selection import select
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance

#: Search steps to compute the loss of an order.
_STEPS = 5_000


@dataclass(frozen=True)
class Task:
    """A number of consecutive ``steps`` of a program, and the indices of the tasks that must come before it."""

    after: tuple[int, ...] = ()
    steps: int = 1


def better_order(
    tasks: Sequence[Task], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> list[int] | None:
    """Return the task indices in an order that loses less than the given order; None if none is known.

    The uses of ``buffers`` are steps, counted over the tasks in their order. The loss is the savings of the buffers
    that do not fit, ignoring addresses.
    """
    starts = list(itertools.accumulate((task.steps for task in tasks), initial=0))
    task_of = [index for index, task in enumerate(tasks) for _ in range(task.steps)]
    able = [buffer for buffer in buffers if buffer.saving > 0 and space.bytes_of(buffer) <= space.capacity]
    buffer_uses = [(space.bytes_of(buffer), sorted({task_of[use] for use in buffer.uses})) for buffer in able]
    followers = successors([task.after for task in tasks])
    orders = [
        list(range(len(tasks))),
        list_schedule([task.after for task in tasks], buffer_uses),
        list_schedule(followers, buffer_uses)[::-1],
    ]
    instances = [Instance.of(_retimed(able, tasks, starts, task_of, order), space) for order in orders]
    # The excess is quick to compute; only the best order is worth the planner's own measure.
    best = min(range(len(orders)), key=lambda index: (_excess(instances[index]), index))
    # Order 0 is the given one.
    if not best or _lost(instances[best]) >= _lost(instances[0]):
        return None
    return orders[best]


def _retimed(
    buffers: Sequence[LifetimeBoundBuffer],
    tasks: Sequence[Task],
    starts: Sequence[int],
    task_of: Sequence[int],
    order: Sequence[int],
) -> list[LifetimeBoundBuffer]:
    """Return the buffers with their uses at the steps of another order."""
    moved, step = [0] * len(tasks), 0
    for task in order:
        moved[task] = step - starts[task]
        step += tasks[task].steps
    names = {buffer.name for buffer in buffers}
    return [
        replace(
            buffer,
            uses=tuple(sorted(use + moved[task_of[use]] for use in buffer.uses)),
            in_place_parents=tuple(name for name in buffer.in_place_parents if name in names),
        )
        for buffer in buffers
    ]


def _excess(instance: Instance) -> int:
    """Return the bytes above the capacity, summed over all times at which a buffer begins."""
    return int(np.maximum(instance.loads - instance.space.capacity, 0).sum())


def _lost(instance: Instance) -> int:
    """Return the bytes of savings that a selection loses."""
    return select(instance, instance.space.capacity, budget=_STEPS).lost


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
            for other in _count_down(buffer, task, uses, waiting, added):
                if not waits[other]:
                    heapq.heappush(ready, (added[other], other))
        # A predecessor that is named twice counts once, as it does in ``waits``.
        for other in dict.fromkeys(followers[task]):
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (added[other], other))
    return order


def _count_down(
    buffer: int,
    task: int,
    uses: Sequence[tuple[int, Sequence[int]]],
    waiting: Sequence[set[int]],
    added: list[int],
) -> Sequence[int]:
    """Update the bytes that the other tasks of a buffer add after ``task``; return the tasks that changed."""
    size, users = uses[buffer]
    begun = len(waiting[buffer]) == len(users)
    waiting[buffer].discard(task)
    changed = sorted(waiting[buffer]) if begun else []
    for other in changed:
        added[other] -= size
    if len(waiting[buffer]) == 1:
        (last,) = waiting[buffer]
        added[last] -= size
        changed = [*changed, last]
    return changed

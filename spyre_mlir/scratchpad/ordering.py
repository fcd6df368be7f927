# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of tasks with less alive at once: list scheduling (``optimization/list_scheduling.py``), from either end.

Of these two and the given order the one is taken that has the fewest bytes too many, if it loses less by the planner's
own measure (``buffer_selection.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spyre_mlir.optimization.list_scheduling import list_schedule, successors
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffer_selection import select
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance

#: Steps of search for what an order loses.
_STEPS = 5_000


@dataclass(frozen=True)
class Task:
    """So many ``steps`` of a program that stay together, and the numbers of the tasks that come before it."""

    after: tuple[int, ...] = ()
    steps: int = 1


def better_order(
    tasks: Sequence[Task], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> list[int] | None:
    """The numbers of the tasks in an order that loses less than the given one; None if none is known.

    The uses of ``buffers`` are steps, counted over the tasks in their order. What is lost are the savings of the
    buffers that do not fit, addresses ignored.
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
    """The buffers with their uses at the steps of another order."""
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
    """Bytes above the capacity, over all times at which a buffer begins."""
    return int(np.maximum(instance.loads - instance.space.capacity, 0).sum())


def _lost(instance: Instance) -> int:
    """Bytes of savings that a selection loses."""
    return select(instance, instance.space.capacity, budget=_STEPS).lost

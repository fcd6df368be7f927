# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""List scheduling for little memory: of the tasks that are ready always the one that leaves the fewest bytes.

Of equal ones the first. Done from the end on it gives another order. Neither is best in general: to find the least
peak is NP-hard (Sethi, 1975).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def successors(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the successors of each node, of a graph that is given by predecessors."""
    followers: list[list[int]] = [[] for _ in edges]
    for task, before in enumerate(edges):
        for predecessor in before:
            followers[predecessor].append(task)
    return followers


def list_schedule(before: Sequence[Sequence[int]], uses: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """Return the order of all tasks; ``before`` are the predecessors of each.

    ``uses`` are (bytes, tasks) of each buffer: it is live from the first to the last of its tasks. A heap holds what
    each task that can be done adds; entries that are out of date are left in it.
    """
    count = len(before)
    followers, waits = successors(before), [len(set(predecessors)) for predecessors in before]
    of_task: list[list[int]] = [[] for _ in range(count)]
    added = [0] * count
    for buffer, (size, users) in enumerate(uses):
        for task in users:
            of_task[task].append(buffer)
            # A buffer of one task is live within it alone.
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
    """Count what the other tasks of a buffer add after ``task``; return those for which that changed."""
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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs in another order than the program's: operations, their cores and the bursts of copies, in any allowed order.

In a random schedule the parts of independent operations alternate: a part is the work of one core, or of a copy a burst
of one core, which reads its source when it runs.

Results are the same under each schedule (docs/concurrency.md). The names of choices are from "Pallas interpret mode".
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.memory import POISON_BYTE

#: The modes of the copies between device memory and LX.
EAGER, ON_WAIT, RANDOM = DMA_EXECUTION_MODES = ("eager", "on-wait", "random")

#: The byte of memory that nothing has written: NaN in every float format, or 0.
UNINITIALIZED_MEMORY = {"nan": POISON_BYTE, "zero": 0}


@dataclass(frozen=True)
class Schedule:
    """The choices of a run among the orders that the data flow allows.

    Attributes:
        dma_execution_mode: "eager" runs copies between device memory and LX as early as possible, "on-wait" as late as
            possible, "random" all operations in a random order.
        random_seed: The seed of the order of operations, of the cores of each operation, and of the bursts of copies.
        uninitialized_memory: The contents of memory that nothing has written, "nan" or "zero".
        is_checked: Whether a read of another value than the one that the program means is an error. If not, a bundle
            with a race runs, and its results may depend on the schedule.
    """

    dma_execution_mode: str = EAGER
    random_seed: int = 0
    uninitialized_memory: str = "nan"
    is_checked: bool = True


#: The number of bursts in which a core copies.
BURSTS = 4

#: Runs the parts of a run of an operation, one for each item.
Parts = Callable[[int], Iterable[None]]


def scheduled(
    waits: Sequence[Collection[int]], is_copy: Sequence[bool], mode: str, rng: random.Random, parts: Parts
) -> list[int]:
    """Run all runs in an order of a mode, each after the runs that it ``waits`` for; return them by their ends.

    In a random order the parts of runs that do not wait for each other alternate.
    """
    pending, following = [len(each) for each in waits], [list[int]() for _ in waits]
    for run, earlier in enumerate(waits):
        for each in earlier:
            following[each].append(run)
    keys = [(is_copy[run] == (mode == ON_WAIT), run) for run in range(len(waits))]
    # The runs that may begin or have begun: a heap, or in a random order a list.
    current = [keys[run] for run, count in enumerate(pending) if not count]
    heapq.heapify(current)
    begun, ended = dict[int, Iterator[None]](), list[int]()
    while current:
        place = rng.randrange(len(current)) if mode == RANDOM else 0
        _, run = current[place]
        if run not in begun:
            begun[run] = iter(parts(run))
        if next(begun[run], _END) is not _END:
            continue
        if mode == RANDOM:
            current[place] = current[-1]
            current.pop()
        else:
            heapq.heappop(current)
        ended.append(run)
        for each in following[run]:
            pending[each] -= 1
            if not pending[each]:
                heapq.heappush(current, keys[each])
    return ended


_END = object()

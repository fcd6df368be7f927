# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs in another order than the program's: operations, and the cores of each operation, in any order that is allowed.

Results are the same under each schedule (docs/concurrency.md). The names of choices are from "Pallas interpret mode".
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Sequence

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
        random_seed: The seed of the order of operations and of the cores of each operation.
        uninitialized_memory: The contents of memory that nothing has written, "nan" or "zero".
        is_checked: Whether a read of another value than the one that the program means is an error. If not, a bundle
            with a race runs, and its results may depend on the schedule.
    """

    dma_execution_mode: str = EAGER
    random_seed: int = 0
    uninitialized_memory: str = "nan"
    is_checked: bool = True


def ordered(
    waits: Sequence[Collection[int]], is_copy: Sequence[bool], mode: str, rng: random.Random
) -> list[int]:
    """Return runs in an order of a mode in which each run comes after the runs that it ``waits`` for."""
    pending, following = [len(each) for each in waits], [list[int]() for _ in waits]
    for run, earlier in enumerate(waits):
        for each in earlier:
            following[each].append(run)

    def ready(run: int) -> tuple[float, int]:
        return rng.random() if mode == RANDOM else is_copy[run] == (mode == ON_WAIT), run

    heap = [ready(run) for run, count in enumerate(pending) if not count]
    heapq.heapify(heap)
    order = []
    while heap:
        _, run = heapq.heappop(heap)
        order.append(run)
        for each in following[run]:
            pending[each] -= 1
            if not pending[each]:
                heapq.heappush(heap, ready(each))
    return order

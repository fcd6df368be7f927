# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Periodic runs of a sequence: ranges in which each item equals the item one period later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass

#: Maximum number of occurrences of an item within a period: an equal item is searched this many occurrences ahead.
_OCCURRENCES = 4

#: Number of distances that are tried: the distances of the most equal items.
_DISTANCES = 64


@dataclass(frozen=True)
class PeriodicRun:
    """``length`` items from index ``first`` on; an item equals the item ``period`` later if that is in the run."""

    first: int
    period: int
    length: int

    @property
    def count(self) -> int:
        """Number of whole periods."""
        return self.length // self.period


def periodic_runs(keys: Sequence[int], least: int = 2) -> list[PeriodicRun]:
    """Return the maximal runs of at least ``least`` periods, the longest first, ties by the shorter period.

    The time is linear in the length of the sequence, except for a sort of the items.
    """
    items = np.asarray(keys, np.int64)
    runs = []
    for distance in _distances(items):
        equal = items[distance:] == items[:-distance]
        change = np.flatnonzero(np.diff(np.concatenate([[0], equal.view(np.int8), [0]])))
        for start, end in zip(change[::2].tolist(), change[1::2].tolist(), strict=True):
            if end - start >= (least - 1) * distance:
                runs.append(PeriodicRun(start, distance, end - start + distance))
    return sorted(runs, key=lambda run: (-run.length, run.period, run.first))


def _distances(items: NDArray[np.int64]) -> list[int]:
    """Return the distances of equal items that cover most of the sequence."""
    order = np.argsort(items, kind="stable")
    distances = []
    for step in range(1, min(_OCCURRENCES, len(items) - 1) + 1):
        equal = items[order[step:]] == items[order[:-step]]
        distances.append((order[step:] - order[:-step])[equal])
    if not distances:
        return []
    values, counts = np.unique(np.concatenate(distances), return_counts=True)
    return [int(value) for value in values[np.argsort(-(values * counts), kind="stable")][:_DISTANCES]]

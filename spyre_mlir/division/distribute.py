"""The plain division of one operation: output dims by size, each by its largest divisor that fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Division:
    """Slices per dim. Core ids count the slices in mixed radix, the first dim fastest."""

    splits: tuple[int, ...]

    @property
    def cores(self) -> int:
        return math.prod(self.splits)

    def slices_of(self, core: int) -> tuple[int, ...]:
        """The slice of each dim that a core owns: ``(core floordiv prod(earlier splits)) mod split``."""
        slices = []
        for split in self.splits:
            slices.append(core % split)
            core //= split
        return tuple(slices)


def distribute(units: Sequence[int], divisible: Sequence[bool], cores: int) -> Division:
    """Divides dims of ``units`` whole sticks or rows over at most ``cores`` cores.

    Only ``divisible`` dims (those of the output) are split, the largest first; each takes its largest
    divisor that fits the cores left (work-division.txt, multi_dim_iteration_space_split without the
    reduction dims).
    """
    splits = [1] * len(units)
    left = cores
    for dim in sorted(range(len(units)), key=lambda dim: (-units[dim], dim)):
        if divisible[dim]:
            splits[dim] = max(count for count in range(1, left + 1) if units[dim] % count == 0)
            left //= splits[dim]
    return Division(tuple(splits))

"""The plain division of one operation: output dims by size, each by its largest divisor that fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Division:
    """Slices per dim, and for each core the slice of each dim that it owns."""

    splits: tuple[int, ...]
    owners: tuple[tuple[int, ...], ...]

    @classmethod
    def mixed_radix(cls, splits: Sequence[int]) -> Division:
        """Core ids count the slices, the first dim fastest: ``(core floordiv earlier splits) mod split``."""
        before = [math.prod(splits[:dim]) for dim in range(len(splits))]
        owners = tuple(
            tuple(core // step % split for step, split in zip(before, splits, strict=True))
            for core in range(math.prod(splits))
        )
        return cls(tuple(splits), owners)

    @property
    def cores(self) -> int:
        return math.prod(self.splits)


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
    return Division.mixed_radix(splits)

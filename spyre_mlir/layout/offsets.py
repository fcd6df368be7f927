# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Offsets of slices in loops: sets of numbers in equal steps, with conservative arithmetic."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Offsets:
    """The numbers ``first + k * step`` for ``k`` from 0 to ``count - 1``; ``step`` is never negative.

    The result of arithmetic contains every number that the operands can give, and perhaps more.
    """

    first: int
    step: int = 0
    count: int = 1

    @property
    def last(self) -> int:
        """The largest number."""
        return self.first + self.step * (self.count - 1)

    def __add__(self, other: Offsets) -> Offsets:
        return _between(self.first + other.first, self.last + other.last, math.gcd(self.step, other.step))

    def __mul__(self, factor: int) -> Offsets:
        first, last = sorted((self.first * factor, self.last * factor))
        return _between(first, last, abs(self.step * factor))

    def __floordiv__(self, divisor: int) -> Offsets:
        # If the divisor does not divide the step, the quotients are unevenly spaced; step 1 covers all of them.
        step = 1 if self.step % divisor else self.step // divisor
        return _between(self.first // divisor, self.last // divisor, step)

    def __mod__(self, modulus: int) -> Offsets:
        if self.first // modulus == self.last // modulus:  # no number wraps around
            return Offsets(self.first % modulus, self.step, self.count)
        # All numbers have the same remainder by this; after a wraparound nothing more is known of them.
        step = math.gcd(self.step, modulus)
        return _between(self.first % step, self.first % step + modulus - step, step)

    def modulo(self, period: int) -> Iterator[int]:
        """Yield some of the numbers, at least one for each remainder by ``period`` that occurs."""
        distinct = period // math.gcd(self.step, period)
        return (self.first + k * self.step for k in range(min(self.count, distinct)))


def _between(first: int, last: int, step: int) -> Offsets:
    """Return the offsets from ``first`` to ``last``; their distance is a multiple of ``step``."""
    return Offsets(first, step, (last - first) // step + 1) if last > first else Offsets(first)


@dataclass(frozen=True)
class Index:
    """An index in loops: its possible values, and its stride per iteration of each loop.

    ``moves`` maps each loop to a stride that is not 0; None if the index does not advance in equal steps.
    """

    offsets: Offsets
    moves: Mapping[Hashable, int] | None = field(default_factory=dict)

    def __add__(self, other: Index) -> Index:
        if self.moves is None or other.moves is None:
            return Index(self.offsets + other.offsets, None)
        total = dict(self.moves)
        for loop, step in other.moves.items():
            total[loop] = total.get(loop, 0) + step
        return Index(self.offsets + other.offsets, _without_zeros(total))

    def __mul__(self, factor: int) -> Index:
        moves = None if self.moves is None else _without_zeros({k: v * factor for k, v in self.moves.items()})
        return Index(self.offsets * factor, moves)

    def __floordiv__(self, divisor: int) -> Index:
        # The quotient of an index that advances may stay the same for some iterations: its steps may differ.
        return Index(self.offsets // divisor, None if self.moves else self.moves)

    def __mod__(self, modulus: int) -> Index:
        return Index(self.offsets % modulus, None if self.moves else self.moves)


def _without_zeros(moves: dict[Hashable, int]) -> dict[Hashable, int]:
    return {loop: step for loop, step in moves.items() if step}

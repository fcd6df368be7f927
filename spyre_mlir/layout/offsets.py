# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Offsets of slices in loops: numbers in equal steps, and arithmetic that never loses one of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Offsets:
    """The numbers ``first + k * step`` for ``k`` from 0 to ``count - 1``; ``step`` is never negative.

    Results of arithmetic contain every number that the operands can give, and perhaps more.
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
        # Steps that the divisor does not divide give quotients at uneven distances: step 1 has all of
        # them.
        step = 1 if self.step % divisor else self.step // divisor
        return _between(self.first // divisor, self.last // divisor, step)

    def __mod__(self, modulus: int) -> Offsets:
        if self.first // modulus == self.last // modulus:  # no number wraps around
            return Offsets(self.first % modulus, self.step, self.count)
        # Once numbers wrap around they have no more in common than their remainder by this.
        step = math.gcd(self.step, modulus)
        return _between(self.first % step, self.first % step + modulus - step, step)

    def modulo(self, period: int) -> Iterator[int]:
        """Yield some of the numbers, among them every remainder by ``period`` that any of them has."""
        distinct = period // math.gcd(self.step, period)
        return (self.first + k * self.step for k in range(min(self.count, distinct)))


def _between(first: int, last: int, step: int) -> Offsets:
    """The offsets from ``first`` to ``last``, which is a multiple of ``step`` away."""
    return Offsets(first, step, (last - first) // step + 1) if last > first else Offsets(first)


@dataclass(frozen=True)
class Index:
    """An index in loops: its possible values, and its stride per iteration of each loop.

    ``moves`` are the strides by loop, without zeros; None where the index does not advance in equal steps.
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
        # A quotient of what moves may stand still for some iterations; equal steps are not promised.
        return Index(self.offsets // divisor, None if self.moves else self.moves)

    def __mod__(self, modulus: int) -> Index:
        return Index(self.offsets % modulus, None if self.moves else self.moves)


def _without_zeros(moves: dict[Hashable, int]) -> dict[Hashable, int]:
    return {loop: step for loop, step in moves.items() if step}

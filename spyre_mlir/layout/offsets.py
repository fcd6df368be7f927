"""Where the slices of a loop begin: numbers in equal steps, and arithmetic that never leaves one out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


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
        step = 1 if self.step % divisor else self.step // divisor
        return _between(self.first // divisor, self.last // divisor, step)

    def __mod__(self, modulus: int) -> Offsets:
        if self.first // modulus == self.last // modulus:
            return Offsets(self.first % modulus, self.step, self.count)
        step = math.gcd(self.step, modulus)
        return _between(self.first % step, self.first % step + modulus - step, step)

    def modulo(self, period: int) -> Iterator[int]:
        """Some of the numbers, among them every remainder by ``period`` that one of them has."""
        distinct = period // math.gcd(self.step, period)
        return (self.first + k * self.step for k in range(min(self.count, distinct)))


def _between(first: int, last: int, step: int) -> Offsets:
    """From ``first`` to ``last``, which is a multiple of ``step`` away."""
    return Offsets(first, step, (last - first) // step + 1) if last > first else Offsets(first)

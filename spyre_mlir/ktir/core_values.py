# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers that differ from core to core, as values of a program: computed from the core id, or read from a table."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir

_EQUAL, _LESS = 0, 6


class CoreValues:
    """Values of the current core, one of ``cores`` cores."""

    def __init__(self, build: TensorBuilder, cores: int) -> None:
        self.build, self.cores = build, cores
        self.core = build.core

    def value(self, numbers: Sequence[int]) -> ir.Value:
        """Return the entry of ``numbers`` for this core."""
        build = self.build
        if len(set(numbers)) == 1:
            return build.number(numbers[0])
        digit = _digit(tuple(numbers))
        if digit is None:
            entry = build.op("tensor.extract", build.i64, build.table(numbers), self.core)
            return build.op("arith.index_cast", build.index, entry)
        divisor, modulus, factor, offset = digit
        value = self.core
        if divisor > 1:
            value = build.op("arith.divui", build.index, value, build.number(divisor))
        if modulus * divisor < self.cores:
            value = build.op("arith.remui", build.index, value, build.number(modulus))
        value = build.times(value, factor)
        return build.add(value, build.number(offset)) if offset else value

    def is_among(self, chosen: Sequence[bool]) -> ir.Value:
        """Return whether this core is one of the chosen cores, which must not be all cores."""
        first = sum(chosen)
        if all(chosen[:first]):
            return self.build.compare(_LESS, self.core, self.build.number(first))
        if first == 1:
            return self.build.compare(_EQUAL, self.core, self.build.number(list(chosen).index(True)))
        number = self.value([int(each) for each in chosen])
        return self.build.compare(_EQUAL, number, self.build.number(1))


@functools.lru_cache(maxsize=1 << 12)
def _digit(numbers: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Return divisor, modulus, factor and offset: ``numbers[c]`` is ``c // divisor % modulus * factor + offset``."""
    offset = numbers[0]
    divisor = next(core for core, number in enumerate(numbers) if number != offset)
    factor = numbers[divisor] - offset
    repeats = (core for core in range(divisor + 1, len(numbers)) if numbers[core] == offset)
    period = next(repeats, len(numbers))
    modulus = -(-period // divisor)
    if factor < 0 or offset < 0:
        return None
    digits = tuple(core // divisor % modulus * factor + offset for core in range(len(numbers)))
    return (divisor, modulus, factor, offset) if digits == numbers else None

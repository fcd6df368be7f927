# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cores of a program: numbers that differ from core to core, barriers, and sums over groups of cores.

A number that differs from core to core is computed from the core id, or read from a table.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from spyre_mlir.dialects import ktdp
from spyre_mlir.errors import CompileError
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

    def barrier(self) -> None:
        """Build a barrier of all cores: each core offers one number, and waits for the numbers of the others."""
        number = self.build.filled([1], "i32", 0)
        everybody = f"(i)[g] : (i - g >= 0, -i + g + {self.cores - 1} >= 0)"
        self._exchanged(number, number, "arith.addi", everybody, "(g) : (g == 0)")

    def combined(
        self, partial: ir.Value, identity: ir.Value, combine: str, groups: Sequence[Sequence[int]]
    ) -> ir.Value:
        """Build the combination of the partial results of each group of cores; ``CompileError`` if groups differ."""
        # The distance between neighbours in a group, and the size of a group.
        step, count, last = groups[0][1] - groups[0][0], len(groups[0]), self.cores - 1
        if step < 1 or any(
            list(group) != list(range(group[0], group[0] + step * count, step)) or group[0] // step % count
            for group in groups
        ):
            raise CompileError(
                "KTIR combines the sums of cores whose numbers are equally far apart, and these are not."
            )
        members = (
            f"(i)[g] : (i - ((i floordiv {step}) mod {count}) * {step} - g == 0, i >= 0, -i + {last} >= 0)"
        )
        leaders = f"(g) : ((g floordiv {step}) mod {count} == 0, g >= 0, -g + {last} >= 0)"
        return self._exchanged(partial, identity, combine, members, leaders)

    def _exchanged(
        self, partial: ir.Value, identity: ir.Value, combine: str, producers: str, groups: str
    ) -> ir.Value:
        type_, text = partial.type, {"producers": ir.StringAttr.get(producers)}
        future_type = ktdp.TileFutureType.get(ir.TypeAttr.get(type_), ir.StringAttr.get(groups))
        future = ir.Operation.create(
            "ktdp.inter_tile_produce", results=[future_type], attributes=text, regions=1
        )
        with ir.InsertionPoint(ir.Block.create_at_start(future.regions[0], [self.build.index])):
            ir.Operation.create("ktdp.yield_partial", operands=[partial])
        reduce = ir.Operation.create(
            "ktdp.inter_tile_reduce",
            results=[type_],
            operands=[future.result, identity],
            attributes=text,
            regions=1,
        )
        block = ir.Block.create_at_start(reduce.regions[0], [type_, type_])
        with ir.InsertionPoint(block):
            result = self.build.op(combine, type_, *block.arguments)
            ir.Operation.create("ktdp.yield_reduced", operands=[result])
        return reduce.result


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

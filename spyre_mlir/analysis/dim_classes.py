# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Equivalence classes of the iteration dims of neighbouring operations: the dims of a class are tiled together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from fractions import Fraction

from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis
from spyre_mlir.analysis.tile_nests import Tiled, is_expanded, trace
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import divisors
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling.hint_tree import TiledLoop


@dataclass(frozen=True)
class DimTiles:
    """Tiles of the dims of a class: their number, and the fraction of a dim in each; the last tile may be smaller."""

    tiles: int
    part: Fraction

    @classmethod
    def equal(cls, tiles: int) -> DimTiles:
        return cls(tiles, Fraction(1, tiles))

    def loop(self, name: str, dim: int, extent: int) -> TiledLoop:
        """Return the loop around an operation that has a dim of the class."""
        return TiledLoop(
            name, dim, self.tiles, None if self.tiles * self.part == 1 else int(extent * self.part)
        )

    def __str__(self) -> str:
        return (
            f"{self.tiles} tiles" if self.tiles * self.part == 1 else f"{self.tiles} tiles, the last smaller"
        )


@dataclass
class DimClass:
    """The dims of operations in a class; a number of tiles divides ``parts``; ``units``: (size, stick elements)."""

    dims: dict[Tiled, list[int]] = field(default_factory=dict)
    parts: set[int] = field(default_factory=set)
    units: set[tuple[int, int]] = field(default_factory=set)

    def allows(self, tiles: int) -> bool:
        """Return whether this number of ``tiles`` gives equal tiles of whole sticks in every operation."""
        return all(part % tiles == 0 for part in self.parts) and all(
            size // tiles % sticks == 0 for size, sticks in self.units
        )

    def cuts(self, minimum: int, limit: int, cores: int) -> Iterator[DimTiles]:
        """Yield legal cuts into ``minimum`` to ``limit`` tiles, the coarsest first.

        The tiles are equal. If no number from n to 2 n divides the extents, yield about n equal tiles that can be
        divided among all cores and a smaller last tile, whose division does not matter because it is small.
        """
        extent = math.gcd(*self.parts)
        legal = (tiles for tiles in divisors(extent, limit) if tiles == 1 or self.allows(tiles))
        equal = [tiles for tiles in legal if tiles >= minimum]
        while minimum <= min(extent, limit):
            between = [DimTiles.equal(tiles) for tiles in equal if minimum <= tiles < 2 * minimum]
            unequal = None if between else self._unequal(minimum, cores)
            yield from between if unequal is None or unequal.tiles > limit else [unequal]
            minimum *= 2

    def _unequal(self, tiles: int, cores: int) -> DimTiles | None:
        """Return about ``tiles`` equal tiles and a smaller one; None if sticks are longer than such tiles."""
        extent = math.gcd(*self.parts)
        unit = math.lcm(*(sticks // math.gcd(sticks, size // extent) for size, sticks in self.units))
        # A tile that is a multiple of the cores divides evenly; if no such tile fits, use whole sticks.
        for multiple in (math.lcm(unit, cores), unit):
            tile = extent // tiles // multiple * multiple
            if tile:
                return DimTiles(-(-extent // tile), Fraction(tile, extent))
        return None


def dim_classes(ops: Iterable[Tiled], *, by_sources: bool = True) -> list[DimClass]:
    """Return the classes of all iteration dims of some operations, in the order of their first occurrence.

    ``by_sources``: dims that read the same dim of a value from outside are equivalent, too. Without it only def-use
    edges between the operations make dims equivalent: rows and keys stay distinct if queries and keys are one tensor.
    """
    ops = list(ops)
    unions = _Classes(by_sources, _symbolic(ops))
    for op in ops:
        unions.add(op)
    return unions.classes()


def _symbolic(ops: Sequence[Tiled]) -> SymbolicAnalysis | None:
    """Return the symbolic dims of the function around some operations; None if it has none."""
    op = ops[0].op if ops else None
    while op is not None and op.name != "func.func":
        op = None if op.parent is None else op.parent.operation
    analysis = None if op is None else SymbolicAnalysis(op)
    return None if analysis is None or analysis.is_empty else analysis


class _Classes:
    """A union-find over (operation, iteration dim)."""

    def __init__(self, by_sources: bool, symbolic: SymbolicAnalysis | None) -> None:
        self.by_sources = by_sources
        self.symbolic = symbolic
        self.parent: dict[tuple[ir.Value, int], tuple[ir.Value, int]] = {}
        self.tiled: dict[ir.Value, Tiled] = {}
        self.parts: list[tuple[tuple[ir.Value, int], int]] = []
        self.units: list[tuple[tuple[ir.Value, int], int, int]] = []
        self.sources: dict[tuple[ir.Value, int], tuple[ir.Value, int]] = {}

    def add(self, op: Tiled) -> None:
        result, generic = op.result, op.generic
        self.tiled[result] = op
        for dim, extent in enumerate(generic.extents):
            self.parent[result, dim] = result, dim
            self.parts.append(((result, dim), extent))
        if self.symbolic is not None:
            # Loops have a fixed number of tiles, so a dim that follows a run-time size is one tile.
            self.parts += [((result, dim), 1) for dim in self.symbolic.iteration(generic)]
        for operand, value in enumerate(generic.inputs):
            traced = trace(value)
            for position, dim in enumerate(generic.maps[operand]):
                if dim is None or shape_of(value)[position] == 1:
                    continue
                if traced.dims[position] is None and traced.root not in self.tiled and is_expanded(value):
                    # A tensor that is reshaped outside all loops is complete, with the dims of the reshape.
                    continue
                self._meet((result, dim), traced.root, traced.dims[position], traced.parts[position])
            self._sticks(op, value, generic.maps[operand])
        self._sticks(op, op.result, generic.maps[-1])

    def _meet(self, here: tuple[ir.Value, int], root: ir.Value, dim: int | None, part: int) -> None:
        """Unite a dim of an operation with the dim that it reads, of the producer or of a value from outside."""
        self.parts.append((here, part))
        if dim is None:
            # No dim of the source has the tiles of this dim, so it cannot be cut: the only divisor of 1 is 1.
            self.parts.append((here, 1))
            return
        producer = self.tiled.get(root)
        if producer is not None:
            there = producer.generic.maps[-1][dim]
            if there is not None:
                self._union(here, (root, there))
        elif self.by_sources:
            self._union(here, self.sources.setdefault((root, dim), here))

    def _sticks(self, op: Tiled, value: ir.Value, dims: tuple[int | None, ...]) -> None:
        """Record that the last dim of a tensor is in its sticks, except for results of reductions: these are sparse."""
        reduces = DEVICE_OPS[op.generic.opcode].kind is Kind.REDUCE_STICK
        if dims and dims[-1] is not None and not (reduces and value == op.result):
            self.units.append(
                (
                    (op.result, dims[-1]),
                    shape_of(value)[-1],
                    elements_per_stick(target_of(op.op), element_of(value)),
                )
            )

    def _find(self, key: tuple[ir.Value, int]) -> tuple[ir.Value, int]:
        while self.parent[key] != key:
            # Path halving keeps later searches short.
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

    def _union(self, first_key: tuple[ir.Value, int], second_key: tuple[ir.Value, int]) -> None:
        first_root, second_root = self._find(first_key), self._find(second_key)
        self.parent[first_root] = second_root

    def classes(self) -> list[DimClass]:
        classes: dict[tuple[ir.Value, int], DimClass] = {}
        for key in self.parent:
            dim_class = classes.setdefault(self._find(key), DimClass())
            dim_class.dims.setdefault(self.tiled[key[0]], []).append(key[1])
        for key, part in self.parts:
            classes[self._find(key)].parts.add(part)
        for key, size, sticks in self.units:
            classes[self._find(key)].units.add((size, sticks))
        return list(classes.values())

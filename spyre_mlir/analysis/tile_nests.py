# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile nests: the loop nests of a function whose operations have tiling attributes, and the operations in each loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from fractions import Fraction

from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import tiling_of
from spyre_mlir.dialects.structured import (
    Known,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import divisors
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import cast_between
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, Kind
from spyre_mlir.tiling.hint_tree import TiledLoop

#: Attribute of a maximum: its name. Attribute of a sum of exponentials of x - maximum: this name (``online-softmax``).
RUNNING, RESCALED = "sdsc.running", "sdsc.rescaled"

#: Maximum number of operations that unrolled loops create from one operation: each operation has its own design.
MOST_COPIES = 64

VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "linalg.transpose")


@dataclass(eq=False)
class Nest:
    """A loop over ``tiles`` tiles; its items are operations and nests in order.

    ``part`` is the fraction of a dim in each tile; the last tile is smaller if ``part * tiles`` is more than 1.
    ``unrolled``: the iterations are written as consecutive operations.
    """

    loop: str
    tiles: int
    part: Fraction
    unrolled: bool = False
    items: list[Tiled | Nest] = field(default_factory=list)

    def operations(self) -> Iterator[Tiled]:
        """Yield the operations of the nest and of inner nests, in order."""
        for item in self.items:
            if isinstance(item, Nest):
                yield from item.operations()
            else:
                yield item

    @property
    def full_tiles(self) -> int:
        """The number of equal tiles: all tiles, or all except the last."""
        return self.tiles if self.part * self.tiles == 1 else self.tiles - 1

    def cuts(self, size: int) -> bool:
        """Return whether the tiles of a dim of this ``size`` are whole elements."""
        return (size * self.part).denominator == 1

    def tile(self, size: int) -> int:
        """Return the extent of each equal tile of a dim."""
        return int(size * self.part)


@dataclass(eq=False)
class Tiled:
    """A device operation and the nests around it, outermost first, each with the iteration dim that the nest tiles."""

    op: ir.Operation
    generic: Structured
    nests: dict[Nest, int] = field(default_factory=dict)

    @property
    def running(self) -> str | None:
        """The name of a running maximum, whose readers in its loop use the value so far; None for another operation."""
        return ir.StringAttr(self.op.attributes[RUNNING]).value if RUNNING in self.op.attributes else None

    @property
    def rescaled(self) -> str | None:
        """The name of the running maximum to which the parts of a sum are relative; None for another operation."""
        return ir.StringAttr(self.op.attributes[RESCALED]).value if RESCALED in self.op.attributes else None

    @property
    def result(self) -> ir.Value:
        return self.generic.result

    def reduces(self, nest: Nest) -> bool:
        """Return whether the loop runs over a reduced dim, not over parts of the result."""
        return self.nests[nest] in self.generic.reduced

    def result_dim(self, nest: Nest) -> int:
        """Return the dim of the result that a loop tiles."""
        return self.generic.maps[-1].index(self.nests[nest])

    def tiled_dims(self, operand: int) -> dict[int, Nest]:
        """Return the dims of an operand that loops tile, with these loops."""
        dims = self.generic.maps[operand]
        return {dims.index(dim): nest for nest, dim in self.nests.items() if dim in dims}


class Nests:
    """The items of a function in program order; ``tiled`` maps a result to its operation."""

    def __init__(self, block: ir.Block) -> None:
        self.items: list[Tiled | Nest] = []
        self.tiled: dict[ir.Value, Tiled] = {}
        self._open: list[Nest] = []
        known: Known = {}
        for op in (item.operation for item in block.operations):
            if sdsc.OP in op.attributes:
                generic = structured(op, known)
                assert generic is not None
                loops = [loop for loop in tiling_of(op) if loop.tiles > 1]
                check_loops(generic, loops)
                self._add(Tiled(op, generic), loops)

    def _add(self, tiled: Tiled, loops: Sequence[TiledLoop]) -> None:
        """Add an operation to as many open nests as it can share, and open new nests for its other loops.

        An operation that is not tiled and does not read results of the open nests is placed before these nests.
        """
        self.tiled[tiled.result] = tiled
        inputs = (producer for value in tiled.generic.inputs for producer in producers(value, self.tiled))
        if not loops and self._open and not any(map(self._is_open, inputs)):
            self.items.insert(len(self.items) - 1, tiled)
            return
        parts = [loop.part(tiled.generic.extents[loop.dim]) for loop in loops]
        shared = 0
        for nest, loop, part in zip(self._open, loops, parts, strict=False):
            key = loop.loop, loop.tiles, part, bool(loop.unrolled)
            if (nest.loop, nest.tiles, nest.part, nest.unrolled) != key:
                break
            shared += 1
        tiled.nests = {self._open[depth]: loops[depth].dim for depth in range(shared)}
        # The tiled dims of an operation follow from its nests, so all candidate nests are set first.
        shared = self._complete(tiled, shared)
        tiled.nests = {self._open[depth]: loops[depth].dim for depth in range(shared)}
        del self._open[shared:]
        for loop, part in zip(loops[shared:], parts[shared:], strict=True):
            nest = Nest(loop.loop, loop.tiles, part, bool(loop.unrolled))
            (self._open[-1].items if self._open else self.items).append(nest)
            self._open.append(nest)
            tiled.nests[nest] = loop.dim
        (self._open[-1].items if self._open else self.items).append(tiled)

    def _complete(self, tiled: Tiled, shared: int) -> int:
        """Return the number of open nests that an operation can share: in each, its input tiles are computed."""
        for operand, value in enumerate(tiled.generic.inputs):
            tiled_dims = tiled.tiled_dims(operand)
            traced = trace(value)
            producer = self.tiled.get(traced.root)
            if producer is not None:
                shared = min(shared, self._agreeing(producer, traced, tiled_dims, shared))
            elif any(self._is_open(producer) for producer in producers(value, self.tiled)):
                return 0
        return shared

    def _is_open(self, producer: Tiled) -> bool:
        return bool(self._open) and self._open[0] in producer.nests

    def _agreeing(self, producer: Tiled, traced: Traced, tiled_dims: dict[int, Nest], shared: int) -> int:
        """Return the number of outer nests in which a reader needs only the tile that the same iteration computes."""
        for depth, nest in enumerate(self._open[:shared]):
            if nest not in producer.nests:
                break  # computed outside the nest, or in a closed nest: complete
            if producer.reduces(nest):
                if producer.running is None:
                    return depth
                continue
            dim = next((dim for dim, other in tiled_dims.items() if other is nest), None)
            if dim is None:
                return depth
            if traced.dims[dim] != producer.result_dim(nest) or not nest.cuts(traced.parts[dim]):
                return depth
        return shared


def check_loops(generic: Structured, loops: Sequence[TiledLoop]) -> None:
    """Raise ``CompileError`` unless the loops tile an operation correctly and cut each dim at most once.

    The layouts, which are chosen later, determine whether tiles are whole sticks.
    """
    cut: dict[int, TiledLoop] = {}
    op, reduced, extents = generic.op, generic.reduced, generic.extents
    for loop in loops:
        what = f"loop {loop.loop} cuts dim {loop.dim}"
        if loop.dim >= len(extents):
            dims = ", ".join(f"{dim} of {size}" for dim, size in enumerate(extents)) or "none"
            raise error_at(op, f"{what}, but the iteration dims of this operation are {dims}")
        # Equal tiles, or equal tiles and a smaller last one, have to add up to the dim.
        size = extents[loop.dim]
        what_tiles = f"{what} of {size} elements into {loop.tiles} tiles"
        if loop.tile is None and size % loop.tiles:
            raise error_at(op, f"{what_tiles}, but {loop.tiles} does not divide it")
        if loop.tile is not None and -(-size // loop.tile) != loop.tiles:
            raise error_at(op, f"{what_tiles} of {loop.tile}, but these are {-(-size // loop.tile)} tiles")
        if loop.dim in reduced and generic.opcode not in COMBINE:
            raise error_at(op, f"{what}, but the parts of a '{generic.opcode}' over it cannot be combined")
        if (outer := cut.setdefault(loop.dim, loop)) is not loop:
            raise error_at(op, f"{what}, which loop {outer.loop} around it cuts already")
        reducing = [outer for outer in cut.values() if outer.dim in reduced]
        if loop.dim not in reduced and reducing:
            reason = f"{what} inside of loop {reducing[0].loop}, which cuts the reduced dim {reducing[0].dim}"
            raise error_at(op, f"{reason}; loops over reduced dims are inside of the others")
    unrolled = [loop for loop in loops if loop.unrolled]
    if (copies := _iterations(unrolled)) > MOST_COPIES:
        what = f"the unrolled loops {_nest_text(unrolled)} copy each operation {copies} times"
        raise error_at(generic.op, f"{what}; at most {MOST_COPIES} are allowed")
    if (iterations := _iterations(loops)) > (limit := target_of(generic.op).loop_iterations):
        what = f"the loops {_nest_text(loops)} have {iterations} iterations"
        raise error_at(generic.op, f"{what}; a loop nest has at most {limit}")


def _iterations(loops: Iterable[TiledLoop]) -> int:
    return math.prod(loop.tiles for loop in loops)


def _nest_text(loops: Iterable[TiledLoop]) -> str:
    return " x ".join(f"{loop.tiles} ({loop.loop})" for loop in loops)


@dataclass(frozen=True)
class Traced:
    """The source of a chain of views, and for each dim of the view the source dim that has the same tiles.

    The tiles are the same for numbers of tiles that divide ``parts``. A dim is None if no source dim has its tiles.
    """

    root: ir.Value
    dims: tuple[int | None, ...]
    parts: tuple[int, ...]


def trace(value: ir.Value) -> Traced:
    """Trace a value through views to their source."""
    dims: list[int | None] = list(range(len(shape_of(value))))
    parts = list(shape_of(value))
    while (op := defining_op(value)) is not None and op.name in VIEWS:
        where = source_dims(op)
        source = shape_of(op.operands[0])
        for index, dim in enumerate(dims):
            dims[index] = None if dim is None else where[dim]
            if (source_dim := dims[index]) is not None and source[source_dim] % parts[index]:
                parts[index] = source[source_dim]
        value = op.operands[0]
    return Traced(value, tuple(dims), tuple(parts))


def source_dims(op: ir.Operation) -> list[int | None]:
    """Return for each dim of a view's result the source dim that has the same tiles; None if there is none."""
    if op.name == "linalg.transpose":
        return list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    groups = [[ir.IntegerAttr(entry).value for entry in group] for group in op.attributes["reassociation"]]
    if op.name == "tensor.collapse_shape":
        source = shape_of(op.operands[0])
        # Only tiles of the outermost merged dim are tiles of the whole dim.
        return [next((dim for dim in group if source[dim] > 1), group[0]) for group in groups]
    result = shape_of(op.results[0])
    # Only tiles of the outermost part of a split dim are tiles of the whole dim.
    where: list[int | None] = [None] * len(result)
    for source_dim, group in enumerate(groups):
        where[next((dim for dim in group if result[dim] > 1), group[0])] = source_dim
    return where


def producers(value: ir.Value, tiled: dict[ir.Value, Tiled]) -> Iterator[Tiled]:
    """Yield the first device operations from which a value is computed, through views and insertions."""
    pending, seen = [value], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in tiled:
            yield tiled[current]
        elif (op := defining_op(current)) is not None:
            pending += op.operands


def check_running(nests: Nests) -> None:
    """Raise ``CompileError`` if loops would make online softmax wrong.

    In the loop that computes a running maximum, the direct and indirect readers of the maximum are relative to the
    maximum so far. These values are correct only in the same iteration; a sum of them is correct only if rescaled.
    """
    running = {tiled.running: tiled for tiled in nests.tiled.values() if tiled.running is not None}
    relative: dict[ir.Value, set[Nest]] = {}
    for tiled in nests.tiled.values():
        open_nests = relative[tiled.result] = set()
        inputs = (producer for value in tiled.generic.inputs for producer in producers(value, nests.tiled))
        for producer in inputs:
            open_nests |= _reduced(producer) & tiled.nests.keys() if producer.running is not None else set()
            if relative[producer.result] - tiled.nests.keys():
                raise error_at(tiled.op, _text(tiled, "reads it outside of the loop"))
            open_nests |= relative[producer.result]
        if tiled.rescaled is not None:
            maximum = running.get(tiled.rescaled)
            if maximum is None or _reduced(maximum) not in (_reduced(tiled), set()):
                raise error_at(tiled.op, _text(tiled, "is not in the loop of its maximum"))
            open_nests -= _reduced(tiled)
        if open_nests & _reduced(tiled):
            raise error_at(tiled.op, _text(tiled, "sums it without the factors between maxima"))
        users = [use.owner.operation for use in tiled.result.uses]
        if open_nests and any(sdsc.OP not in user.attributes and user.name not in VIEWS for user in users):
            raise error_at(tiled.op, _text(tiled, "produces it, and it is read outside of the loop"))


def in_format(value: ir.Value, element: str) -> ir.Value:
    """Cast a tensor to another floating-point format, at the current insertion point."""
    if element_of(value) == element:
        return value
    shape, opcode = shape_of(value), cast_between(element_of(value), element)
    dims = tuple(range(len(shape)))
    return device_op(opcode, [value], [dims], shape, element, location=maker_of(value).location)


def _reduced(tiled: Tiled) -> set[Nest]:
    return {nest for nest in tiled.nests if tiled.reduces(nest)}


def _text(tiled: Tiled, what: str) -> str:
    """Return the message of an error about a value that is relative to a running maximum."""
    return f"values of a loop are relative to the maximum so far, but '{tiled.generic.opcode}' {what}"


@dataclass(frozen=True)
class DimTiles:
    """Tiles of the dims of a class: their number, and the fraction of a dim in each; the last tile may be smaller."""

    tiles: int
    part: Fraction

    @classmethod
    def equal(cls, tiles: int) -> DimTiles:
        return cls(tiles, Fraction(1, tiles))

    @property
    def is_even(self) -> bool:
        return self.tiles * self.part == 1

    def loop(self, name: str, dim: int, extent: int) -> TiledLoop:
        """Return the loop around an operation that has a dim of the class."""
        tile = None if self.is_even else int(extent * self.part)
        return TiledLoop(name, dim, self.tiles, tile)

    def text(self, dim: int | None = None) -> str:
        """Return the text for remarks: the number of tiles, of a dim if one is given."""
        of_dim = "" if dim is None else f" of d{dim}"
        return f"{self.tiles} tiles{of_dim}{'' if self.is_even else ', the last smaller'}"


@dataclass
class DimClass:
    """The dims of operations in a class; a number of tiles divides ``parts``; ``units``: (size, stick elements)."""

    dims: dict[Tiled, list[int]] = field(default_factory=dict)
    parts: set[int] = field(default_factory=set)
    units: set[tuple[int, int]] = field(default_factory=set)

    def allows(self, tiles: int) -> bool:
        """Return whether this number of ``tiles`` gives equal tiles of whole sticks in every operation."""
        is_even = all(part % tiles == 0 for part in self.parts)
        return tiles == 1 or (is_even and all(size // tiles % sticks == 0 for size, sticks in self.units))

    def cuts(self, minimum: int, limit: int, cores: int) -> Iterator[DimTiles]:
        """Yield legal cuts into ``minimum`` to ``limit`` tiles, the coarsest first.

        The tiles are equal. If no number from n to 2 n divides the extents, yield about n equal tiles that can be
        divided among all cores and a smaller last tile, whose division does not matter because it is small.
        """
        extent = math.gcd(*self.parts)
        legal = (tiles for tiles in divisors(extent, limit) if self.allows(tiles))
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
    func = ops[0].op if ops else None
    while func is not None and func.name != "func.func":
        func = None if func.parent is None else func.parent.operation
    symbolic = None if func is None else SymbolicAnalysis(func)
    unions = _Classes(by_sources, None if symbolic is None or symbolic.is_empty else symbolic)
    for op in ops:
        unions.add(op)
    return unions.classes()


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
                maker = defining_op(value)
                is_expanded = maker is not None and maker.name == "tensor.expand_shape"
                if traced.dims[position] is None and traced.root not in self.tiled and is_expanded:
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
                self.parent[self._find(here)] = self._find((root, there))
        elif self.by_sources:
            self.parent[self._find(here)] = self._find(self.sources.setdefault((root, dim), here))

    def _sticks(self, op: Tiled, value: ir.Value, dims: tuple[int | None, ...]) -> None:
        """Record that the last dim of a tensor is in its sticks.

        Results of reductions are sparse, and a vector that fits in one stick may be: each tile has whole sticks then.
        """
        reduces = DEVICE_OPS[op.generic.opcode].kind is Kind.REDUCE_STICK
        if dims and dims[-1] is not None and not (reduces and value == op.result):
            sticks = elements_per_stick(target_of(op.op), element_of(value))
            if len(dims) == 1 and shape_of(value)[0] <= sticks:
                return
            self.units.append(((op.result, dims[-1]), shape_of(value)[-1], sticks))

    def _find(self, key: tuple[ir.Value, int]) -> tuple[ir.Value, int]:
        while self.parent[key] != key:
            # Path halving keeps later searches short.
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

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

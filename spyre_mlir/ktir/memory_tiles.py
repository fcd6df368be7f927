# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of device memory and of scratchpads: views, and loads and stores of the part of an operand on each core.

Addresses of a bundle are linear forms: a memory, bytes from its start, and bytes per iteration of enclosing loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from spyre_mlir.bundle.context import Linear, evaluate
from spyre_mlir.bundle.model import Add, Allocate, Apply, Extract, IndexConstant
from spyre_mlir.dialects import ktdp
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES, OperandTile
from spyre_mlir.ktir.tensor_builder import CoreValues, TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import extracted, inserted


class AddressValues(dict[str, Linear]):
    """The values of a bundle by name, for all statements passed to ``define``; atoms of loops are their variables."""

    def define(self, statement: Extract | Allocate | IndexConstant | Add | Apply) -> None:
        """Record the value of a statement; ``CompileError`` for a value that is not an address."""
        if isinstance(statement, Extract) and statement.what != "value":
            raise CompileError(
                f"KTIR has no parameter whose {statement.what} is read: pass sizes as constants."
            )
        self[statement.result] = evaluate(statement, self)

    def define_variable(self, name: str) -> None:
        """Record a loop variable."""
        self[name] = Linear(0, ((name, 1),))

    def constant(self, name: str) -> int:
        """Return the number of a value; ``CompileError`` for a value that is only known at run time."""
        value = self[name]
        if value.terms:
            raise CompileError(f"The bounds of a loop are constants, but '%{name}' is none.")
        return value.offset


#: Element index at which the scratchpad of each element type begins. ktir-cpu keeps copies of loaded data from index 0
#: on, and fixes the element type of memory at its first store, so the addresses of a plan begin after the copies.
SCRATCHPADS = {"f16": 1 << 29, "f32": 1 << 29, "i32": (1 << 29) + (1 << 20)}
#: Number of elements from a scratchpad of a plan to its staging area, where relayouts put data for other cores.
STAGING = 1 << 21
#: The largest LX whose addresses do not reach the next area: the numbers of i32, or the staging area of f16.
LARGEST_LX_BYTES = min(4 * (SCRATCHPADS["i32"] - SCRATCHPADS["f32"]), 2 * STAGING)
#: The number of bytes from which a tensor is staged in LX for a store on only some cores.
_STAGED_BYTES = 1 << 13

#: A function that builds a part of the given shape; None stands for a core without a part.
PartBuilder = Callable[[Sequence[int] | None], ir.Value | None]


def dense_strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense array."""
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


@dataclass(frozen=True)
class MemoryTile:
    """A tile of memory of the type ``element``: its address on each core, None if the core does not have a part.

    ``addresses`` are the addresses of each core's whole part, and ``shape`` is its shape. ``tile`` is the whole part or
    one step of an operation over the part, which begins ``shifts`` positions later along some axes.
    """

    tile: OperandTile
    element: str
    addresses: tuple[Linear | None, ...]
    shape: tuple[int, ...]
    is_local: bool = False
    shifts: Mapping[int, ir.Value] = field(default_factory=dict)


class MemoryTiles:
    """Builder of views, loads and stores; ``memories`` are the arguments of the function by name and element type.

    ``known`` has the values that are already built and visible at the insertion point.
    """

    def __init__(
        self, build: TensorBuilder, cores: CoreValues, memories: dict[tuple[str, str], ir.Value]
    ) -> None:
        self.build, self.cores, self.memories = build, cores, memories
        self.variables: dict[str, ir.Value] = {}
        self.stages: dict[tuple[str, int], int] = {}
        self.staged = 0
        self.known: dict[tuple, ir.Value] = {}
        self._boxes: dict[tuple, ir.Attribute] = {}
        self._tiles: dict[tuple[int, ...], tuple[ir.Type, ir.Attribute]] = {}

    # -- whole tiles ----------------------------------------------------------------------------------------

    def load(self, place: MemoryTile, parts: ir.Value | None = None) -> ir.Value:
        """Build a load of this core's tile, in the shape of a full share; missing elements are 0.

        ``parts`` is a view of the whole operand, if the operand is distributed over scratchpads.
        """
        if parts is None:
            view, subscripts = self._view(place)
        else:
            view, subscripts = parts, [self._subscript(place, axis) for axis in range(len(place.tile.axes))]
        shape = place.tile.shape

        def part(counts: Sequence[int] | None) -> ir.Value:
            if counts is None:
                return self.build.filled(shape, place.element, 0)
            value = self.load_from(view, subscripts, counts, place.element)
            if tuple(counts) == shape:
                return value
            return inserted(value, self.build.filled(shape, place.element, 0), [0] * len(shape))

        value = self._by_counts(place, part, self.build.type(shape, place.element))
        assert value is not None
        return value

    def store(self, place: MemoryTile, value: ir.Value) -> None:
        """Build a store of a tensor, in the shape of a full share, to the tile of this core."""
        view, subscripts = self._view(place)
        shape, source = place.tile.shape, None
        is_same = all(
            address is not None and place.tile.counts[core] == shape
            for core, address in enumerate(place.addresses)
        )
        # A large tensor that only some cores store goes through LX: ktir-cpu charges a tensor that is used in a branch
        # until the function ends.
        if not is_same and math.prod(shape) * ELEMENT_BYTES[place.element] >= _STAGED_BYTES:
            base = self.stage(place.element, math.prod(shape))
            source = self.local_view(self.build.number(base), shape, dense_strides(shape), place.element)
            self.store_to(source, [self.build.number(0)] * len(shape), value)

        def part(counts: Sequence[int] | None) -> None:
            if counts is None:
                return
            if source is None:
                tile = extracted(value, [0] * len(counts), counts, [1] * len(counts))
            else:
                tile = self.load_from(source, [self.build.number(0)] * len(counts), counts, place.element)
            self.store_to(view, subscripts, tile)

        self._by_counts(place, part, None)

    def stage(self, element: str, size: int) -> int:
        """Return the element index of an area in LX that operations use one after the other."""
        key = element, size
        if key not in self.stages:
            self.stages[key] = self.new_stage(element, size)
        return self.stages[key]

    def new_stage(self, element: str, size: int) -> int:
        """Return the element index of a new area in LX, after the buffers of the plan, that nothing else uses."""
        begin = SCRATCHPADS[element] + STAGING + self.staged
        self.staged += size
        return begin

    def _by_counts(self, place: MemoryTile, part: PartBuilder, type_: ir.Type | None) -> ir.Value | None:
        """Build a part for each distinct shape of the parts on cores, None for cores without a part."""
        counts = [
            place.tile.counts[core]
            if place.addresses[core] is not None and all(place.tile.counts[core])
            else None
            for core in range(self.cores.cores)
        ]
        return self.branches(counts, part, type_)

    def branches(
        self, counts: list[tuple[int, ...] | None], part: PartBuilder, type_: ir.Type | None
    ) -> ir.Value | None:
        """Build a branch for each distinct shape of the parts, which yields a value of ``type_`` unless it is None."""

        def among(kinds: list[tuple[int, ...] | None]) -> ir.Value | None:
            first, *others = kinds
            if not others:
                return part(first)
            condition = self.cores.is_among([each == first for each in counts])
            other = None if type_ is None and others == [None] else lambda: among(others)
            return self.build.if_(condition, lambda: part(first), other, type_)

        return among(sorted(set(counts), key=lambda count: (count is None, [-size for size in count or ()])))

    # -- views of tiles ---------------------------------------------------------------------------------------

    def part_view(self, place: MemoryTile) -> ir.Value:
        """Build a view of this core's part of an operand, from its first element on."""
        strides = [axis.stride for axis in place.tile.axes]
        origins = tuple(address.offset for address in place.addresses if address is not None)
        return self.view(self._address(place, origins), place.tile.shape, strides, place.element)

    def _view(self, place: MemoryTile) -> tuple[ir.Value, list[ir.Value]]:
        """Build the view of the operand that all cores share, and the subscripts of this core's tile."""
        view, subscripts = self._whole_view(place)
        for axis, shift in place.shifts.items():
            first = subscripts[axis]
            subscripts[axis] = shift if first == self.build.number(0) else self.build.add(first, shift)
        return view, subscripts

    def _whole_view(self, place: MemoryTile) -> tuple[ir.Value, list[ir.Value]]:
        axes, size = place.tile.axes, ELEMENT_BYTES[place.element]
        strides, zeros = [axis.stride for axis in axes], [self.build.number(0)] * len(axes)
        if place.is_local:
            address = next(each for each in place.addresses if each is not None)
            base = self.build.number(SCRATCHPADS[place.element] + address.offset // size)
            return self.local_view(base, place.shape, strides, place.element), zeros
        # The byte at which the operand begins, computed from each core's part; usually equal on all cores.
        origins = []
        for core, address in enumerate(place.addresses):
            if address is not None:
                steps = zip(place.tile.firsts[core], axes, strict=True)
                origins.append(address.offset - size * sum(first * axis.stride for first, axis in steps))
        base = self._address(place, origins)
        if len(set(origins)) > 1:
            return self.view(base, place.shape, strides, place.element), zeros
        subscripts = [self._subscript(place, axis) for axis in range(len(axes))]
        return self.view(base, [axis.size for axis in axes], strides, place.element), subscripts

    def _subscript(self, place: MemoryTile, axis: int) -> ir.Value:
        firsts = tuple(
            place.tile.firsts[core][axis] if place.addresses[core] is not None else 0
            for core in range(self.cores.cores)
        )
        return self.once("subscript", firsts, lambda: self.cores.value(firsts))

    def _address(self, place: MemoryTile, origins: Sequence[int]) -> ir.Value:
        """Build the element index of the operand in its memory, or of this core's part if the origins differ."""
        size = ELEMENT_BYTES[place.element]
        held = [address for address in place.addresses if address is not None]
        names = [name for name, _ in held[0].terms if (name, place.element) in self.memories]
        if len(names) != 1 or any(address.terms != held[0].terms for address in held):
            raise CompileError("An operand of KTIR is in one memory on all cores.")
        memory = value = self.memories[names[0], place.element]
        if len(set(origins)) > 1:
            numbers = tuple(0 if address is None else address.offset // size for address in place.addresses)
            value = self.build.add(value, self.cores.value(numbers))
        elif origins[0]:
            key = names[0], place.element, origins[0]
            offset = origins[0] // size
            value = self.once("offset", key, lambda: self.build.add(memory, self.build.number(offset)))
        for name, coefficient in held[0].terms:
            if name in self.variables:
                value = self.build.add(value, self.build.times(self.variables[name], coefficient // size))
        return value

    # -- views ------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget the values that are built in a body after the body, where they are not visible."""
        known, self.known = self.known, dict(self.known)
        yield
        self.known = known

    def once(self, what: str, key: tuple, make: Callable[[], ir.Value]) -> ir.Value:
        """Return a value, built at its first use; ``known`` forgets the values of a body after the body."""
        if (what, *key) not in self.known:
            self.known[what, *key] = make()
        return self.known[what, *key]

    def view(
        self,
        base: ir.Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        element: str,
        space: str = ktdp.GLOBAL,
    ) -> ir.Value:
        """Build a view of memory from an element index on."""
        return self.once(
            "view",
            (base, tuple(sizes), tuple(strides), element, space),
            lambda: self.new_view(base, sizes, strides, element, space),
        )

    def local_view(
        self, base: ir.Value, sizes: Sequence[int], strides: Sequence[int], element: str
    ) -> ir.Value:
        """Build a view of the scratchpad of this core."""
        return self.view(base, sizes, strides, element, ktdp.LOCAL)

    def new_view(
        self,
        base: ir.Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        element: str,
        space: str,
        core: int | None = None,
        coordinates: ir.Attribute | None = None,
    ) -> ir.Value:
        """Build a view; ``core`` owns the scratchpad, ``coordinates`` is the part of the view in a distributed view."""
        attributes: dict[str, ir.Attribute] = {
            "sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
            "strides": ir.DenseI64ArrayAttr.get(list(strides)),
            "coordinate_set": coordinates or self.box(sizes),
            "memory_space": ir.StringAttr.get(space),
        }
        if core is not None:
            attributes["ct_id"] = ir.IntegerAttr.get(self.build.i64, core)
        type_ = ir.MemRefType.get(list(sizes), ir.Type.parse(element))
        return self.build.op("ktdp.construct_memory_view", type_, base, **attributes)

    def load_from(
        self, view: ir.Value, subscripts: Sequence[ir.Value], shape: Sequence[int], element: str
    ) -> ir.Value:
        """Build a load of a tile of a view."""
        return self.build.op(
            "ktdp.load", self.build.type(shape, element), self._access_tile(view, subscripts, shape)
        )

    def store_to(self, view: ir.Value, subscripts: Sequence[ir.Value], value: ir.Value) -> None:
        """Build a store of a tensor to a tile of a view."""
        shape = list(ir.RankedTensorType(value.type).shape)
        self.build.op("ktdp.store", None, value, self._access_tile(view, subscripts, shape))

    def _access_tile(self, view: ir.Value, subscripts: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
        """Build the access tile of a view from its subscripts on."""
        key = tuple(shape)
        if key not in self._tiles:
            order = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape)))
            self._tiles[key] = ktdp.tile_type(shape), order
        type_, order = self._tiles[key]
        return self.build.op(
            "ktdp.construct_access_tile",
            type_,
            view,
            *subscripts,
            access_tile_set=self.box(shape),
            access_tile_order=order,
        )

    def box(self, sizes: Sequence[int], firsts: Sequence[int] | None = None) -> ir.Attribute:
        """Return the set of the coordinates of a box."""
        key = tuple(sizes), tuple(firsts or ())
        if key not in self._boxes:
            dims = ", ".join(f"d{dim}" for dim in range(len(sizes)))
            bounds = ", ".join(
                f"d{dim} - {begin} >= 0, -d{dim} + {begin + size - 1} >= 0"
                for dim, (begin, size) in enumerate(zip(firsts or [0] * len(sizes), sizes, strict=True))
            )
            self._boxes[key] = ir.Attribute.parse(f"affine_set<({dims}) : ({bounds})>")
        return self._boxes[key]

    def counted_loop(
        self,
        trips: ir.Value,
        initial: ir.Value | None,
        body: Callable[[ir.Value, ir.Value | None], ir.Value | None],
    ) -> ir.Value | None:
        """Build a loop whose trip count may differ from core to core, with one iter_arg or none.

        ``body`` gets the iteration index and the iter_arg, and yields the next; return the last one.
        """
        build, carried = self.build, [] if initial is None else [initial]
        types = [value.type for value in carried]
        bounds = [build.number(0), trips, build.number(1)]
        op = ir.Operation.create("scf.for", results=types, operands=[*bounds, *carried], regions=1)
        block = ir.Block.create_at_start(op.regions[0], [build.index, *types])
        with self.scope(), ir.InsertionPoint(block):
            value = body(block.arguments[0], block.arguments[1] if carried else None)
            ir.Operation.create("scf.yield", operands=[] if value is None else [value])
        return op.result if carried else None

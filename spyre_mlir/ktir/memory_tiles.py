# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of device memory and of scratchpads: loads and stores of the part of an operand on each core."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.core_values import CoreValues
from spyre_mlir.ktir.linear_addresses import LinearAddress
from spyre_mlir.ktir.memory_views import SCRATCHPADS, STAGING, MemoryViews
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES, OperandTile
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import extracted, inserted

#: The number of bytes from which a tensor is staged in LX for a store on only some cores.
_STAGED_BYTES = 1 << 13


@dataclass(frozen=True)
class MemoryTile:
    """A tile of memory of the type ``element``: its address on each core, None if the core does not have a part.

    ``addresses`` are the addresses of each core's whole part, and ``shape`` is its shape. ``tile`` is the whole part or
    one step of an operation over the part, which begins ``shifts`` positions later along some axes.
    """

    tile: OperandTile
    element: str
    addresses: tuple[LinearAddress | None, ...]
    shape: tuple[int, ...]
    is_local: bool = False
    shifts: Mapping[int, ir.Value] = field(default_factory=dict)


class MemoryTiles(MemoryViews):
    """Builder of loads and stores; ``memories`` are the arguments of the function by name and element type."""

    def __init__(
        self, build: TensorBuilder, cores: CoreValues, memories: dict[tuple[str, str], ir.Value]
    ) -> None:
        super().__init__(build)
        self.cores, self.memories = cores, memories
        self.variables: dict[str, ir.Value] = {}
        self.stages: dict[tuple[str, int], int] = {}
        self.staged = 0

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
        type_ = self.build.type(shape, place.element)

        def part(counts: Sequence[int] | None) -> ir.Value:
            if counts is None:
                return self.build.filled(shape, place.element, 0)
            value = self.load_from(view, subscripts, counts, place.element)
            if tuple(counts) == shape:
                return value
            return inserted(value, self.build.filled(shape, place.element, 0), [0] * len(shape))

        value = self._by_counts(place, part, type_)
        assert value is not None
        return value

    def store(self, place: MemoryTile, value: ir.Value) -> None:
        """Build a store of a tensor, in the shape of a full share, to the tile of this core."""
        view, subscripts = self._view(place)
        source = self._staged(place, value)

        def part(counts: Sequence[int] | None) -> None:
            if counts is None:
                return
            if source is None:
                tile = extracted(value, [0] * len(counts), counts, [1] * len(counts))
            else:
                tile = self.load_from(source, [self.build.number(0)] * len(counts), counts, place.element)
            self.store_to(view, subscripts, tile)

        self._by_counts(place, part, None)

    def _staged(self, place: MemoryTile, value: ir.Value) -> ir.Value | None:
        """Put a large tensor that only some cores store into LX, and return its view; None for other tensors.

        ktir-cpu charges a tensor that is used in a branch until the function ends.
        """
        shape = place.tile.shape
        size = math.prod(shape)
        is_same = all(
            address is not None and place.tile.counts[core] == shape
            for core, address in enumerate(place.addresses)
        )
        if is_same or size * ELEMENT_BYTES[place.element] < _STAGED_BYTES:
            return None
        base = self.stage(place.element, size)
        strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        view = self.local_view(self.build.number(base), shape, strides, place.element)
        self.store_to(view, [self.build.number(0)] * len(shape), value)
        return view

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

    def _by_counts(
        self,
        place: MemoryTile,
        part: Callable[[Sequence[int] | None], ir.Value | None],
        type_: ir.Type | None,
    ) -> ir.Value | None:
        """Build a part for each distinct shape of the parts on cores, None for cores without a part."""
        counts = [
            place.tile.counts[core]
            if place.addresses[core] is not None and all(place.tile.counts[core])
            else None
            for core in range(self.cores.cores)
        ]
        return self.branches(counts, part, type_)

    def branches(
        self,
        counts: list[tuple[int, ...] | None],
        part: Callable[[Sequence[int] | None], ir.Value | None],
        type_: ir.Type | None,
    ) -> ir.Value | None:
        """Build a branch for each distinct shape of the parts, which yields a value of ``type_`` unless it is None."""
        kinds = sorted(set(counts), key=lambda count: (count is None, [-extent for extent in count or ()]))
        return self._branches(kinds, counts, part, type_)

    def part_view(self, place: MemoryTile) -> ir.Value:
        """Build a view of this core's part of an operand, from its first element on."""
        strides = [axis.stride for axis in place.tile.axes]
        origins = tuple(address.offset for address in place.addresses if address is not None)
        return self.view(self._address(place, origins), place.tile.shape, strides, place.element)

    def _branches(
        self,
        kinds: list[tuple[int, ...] | None],
        counts: list[tuple[int, ...] | None],
        part: Callable[[Sequence[int] | None], ir.Value | None],
        type_: ir.Type | None,
    ) -> ir.Value | None:
        first, *others = kinds
        if not others:
            return part(first)
        condition = self.cores.is_among([each == first for each in counts])
        other = (
            None
            if type_ is None and others == [None]
            else lambda: self._branches(others, counts, part, type_)
        )
        return self.build.if_(condition, lambda: part(first), other, type_)

    # -- views ------------------------------------------------------------------------------------------------

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
        first = self._origins(place, size)
        base = self._address(place, first)
        if len(set(first)) > 1:
            return self.view(base, place.shape, strides, place.element), zeros
        subscripts = [self._subscript(place, axis) for axis in range(len(axes))]
        return self.view(base, [axis.total for axis in axes], strides, place.element), subscripts

    def _subscript(self, place: MemoryTile, axis: int) -> ir.Value:
        firsts = place.tile.firsts
        return self.once(
            "subscript",
            tuple(
                firsts[core][axis] if place.addresses[core] is not None else 0
                for core in range(self.cores.cores)
            ),
            lambda numbers: self.cores.value(numbers),
        )

    def _origins(self, place: MemoryTile, size: int) -> tuple[int, ...]:
        """Return the byte at which the operand begins, computed from each core's part; usually equal on all cores."""
        begins = []
        for core, address in enumerate(place.addresses):
            if address is None:
                continue
            steps = zip(place.tile.firsts[core], place.tile.axes, strict=True)
            begins.append(address.offset - size * sum(first * axis.stride for first, axis in steps))
        return tuple(begins)

    def _address(self, place: MemoryTile, origins: tuple[int, ...]) -> ir.Value:
        """Build the element index of the operand in its memory, or of this core's part if the origins differ."""
        size = ELEMENT_BYTES[place.element]
        held = [address for address in place.addresses if address is not None]
        names = [name for name in held[0].terms if (name, place.element) in self.memories]
        if len(names) != 1 or any(address.terms != held[0].terms for address in held):
            raise CompileError("An operand of KTIR is in one memory on all cores.")
        value = self.memories[names[0], place.element]
        if len(set(origins)) > 1:
            numbers = tuple(0 if address is None else address.offset // size for address in place.addresses)
            value = self.build.add(value, self.cores.value(numbers))
        elif origins[0]:
            value = self.once(
                "offset",
                (names[0], place.element, origins[0]),
                lambda _: self.plus(value, origins[0] // size),
            )
        for name, coefficient in held[0].terms.items():
            if name in self.variables:
                value = self.build.add(value, self.build.times(self.variables[name], coefficient // size))
        return value

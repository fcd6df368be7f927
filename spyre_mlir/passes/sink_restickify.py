# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts tiles in the loop that reads them, instead of the whole tensor before the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import BufferUse, Usage
from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.analysis.loops import LOOP, executions
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.analysis.view_ops import view_of as viewed
from spyre_mlir.cost.cost_model import access_ns
from spyre_mlir.cost.of_space import even_work, operation_work
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import same_owners
from spyre_mlir.division.cores import core_order
from spyre_mlir.division.matching import Mapping, matching_division, view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.division.relayout import copy_division
from spyre_mlir.division_search.work_division import cheapest_split
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.padding import UNDEFINED
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.clones import division_of_copy, insert_clone, read_instead
from spyre_mlir.rewriting.divider import core_map

#: Operations that convert a tensor to another stick dim or to another order of its dims.
_CONVERSIONS = ("stick.restickify", "sdsc.clone")

#: The cores that read a tile convert it themselves, unless that makes reading slower by more than this factor.
_TOO_SLOW = 2


@dataclass(frozen=True)
class SinkRestickify(Pass):
    """Move a restickify, or a copy to another layout, into the loops that read tiles of its result, which stay in LX.

    A conversion before a loop moves the whole result through device memory once more. In the loop, each tile is
    converted by the cores that read it, into their scratchpads. If several cores read the same part, each tile is
    converted with the cheapest division, and a shuffle copies it to its readers. This is done if the readers of a tile
    have equal divisions, the tiles use at most three quarters of LX, and the saved traffic takes longer than the
    additional waits for the first byte.

    Before, level *divided*:
        %r = restickify(%x); scf.for { %t = slice %r; %s = matmul(%t, ..) }
    After:
        scf.for { %y = slice %x; %t = restickify(%y); %s = matmul(%t, ..) }
    """

    name: ClassVar[str] = "sink-restickify"

    def run(self, module: ir.Operation) -> None:
        # The rest of LX is for the other operands of the same loop.
        tile_bytes = target_of(module).usable_lx_bytes * 3 // 4
        for func in functions(module):
            # Only loops read tiles, and computing the usage of a large function is slow.
            if not any(op.operation.name == LOOP for op in func.regions[0].blocks[0].operations):
                continue
            usage = Usage(func)
            for user in usage.ops:
                if user.op.name in _CONVERSIONS and user.executions == 1:
                    self._sink(usage, user, tile_bytes)

    def _sink(self, usage: Usage, user: Divided, tile_bytes: int) -> None:
        """Move a restickify after the slices that read it, if all of them are tiles in loops and it saves time."""
        slices = [use.owner.operation for use in user.op.results[0].uses]
        # Slices in loops, which move with the loops.
        if not slices or any(
            slice_.name != "tensor.extract_slice" or executions(slice_) < 2 for slice_ in slices
        ):
            return
        if not all(usage.memory.place(slice_.results[0]).moves for slice_ in slices):
            return
        # Readers may rely on known numbers in the padding of the result.
        states = stick.padding_of(user.op.attributes).values()
        if any(state is not UNDEFINED for state in states) or pins_of(user.op).slices is not None:
            return
        conversions = [_tile_conversion(usage, user, slice_, tile_bytes) for slice_ in slices]
        possible = [conversion for conversion in conversions if conversion is not None]
        # All tiles or none are moved: a single reader of the whole result keeps the whole conversion.
        if len(possible) < len(slices):
            return
        # The time to write the whole tensor and to read it back.
        work = operation_work(user.opcode, user.space, user.division)
        saved = access_ns(work, work.operands[-1])
        for access in (access for slice_ in slices for access in _readers(usage, slice_)):
            read = operation_work(access.user.opcode, access.user.space, access.user.division)
            saved += access.user.executions * access_ns(read, read.operands[access.operand])
        # Each tile waits for its first byte, but the whole tensor waited only once.
        if saved <= usage.memory.target.hbm_access_ns * sum(map(executions, slices)):
            return
        name = sdsc.name_of(user.op)
        for number, (slice_, conversion) in enumerate(zip(slices, possible, strict=True)):
            tile_op = _convert(usage, user.op, slice_, conversion.mapping)
            # Plan files distinguish the conversion of a tile from the whole conversion.
            if name is not None:
                tile_op.attributes[sdsc.NAME] = ir.StringAttr.get(f"{name}/tile.{number}", tile_op.context)
            if conversion.shared:
                self._gather(usage.func, tile_op)
        text = f"{len(slices)} tiles are converted in the loops that read them, into LX"
        self.remark(user.op, "restickify", text)
        user.op.erase()

    def _gather(self, func: ir.Operation, conversion: ir.Operation) -> None:
        """Shuffle the parts of a tile to all cores that read them."""
        usage, tile = Usage(func), conversion.results[0]
        readers = usage.buffers[tile].reads
        first = readers[0]
        reader_view = view_of(first.user.space, first.operand, first.user.division)
        division = None if reader_view is None else division_of_copy(usage.memory, tile, reader_view)
        if division is None:
            return
        point = ir.InsertionPoint.after(conversion)
        reason = f"{division.copies} cores read each part of the tile"
        shuffled = insert_clone(
            tile, division, point, conversion.location, self.name, reason, over_the_ring=True
        )
        read_instead(shuffled, tile, readers)


def _readers(usage: Usage, op: ir.Operation) -> list[BufferUse]:
    """Return the accesses to the buffer of a restickify through one slice of it."""
    place = usage.memory.place(op.results[0])
    pending, aliases = [op.results[0]], set()
    while pending:
        value = pending.pop()
        aliases.add(value)
        for use in value.uses:
            user = use.owner.operation
            if user.results and usage.memory.place(user.results[0]).buffer == place.buffer:
                pending.append(user.results[0])
    buffer = usage.buffers[place.buffer]
    return [access for access in buffer.reads if access.user.values[access.operand] in aliases]


@dataclass(frozen=True)
class _TileConversion:
    """Slices and core order of the restickify of a tile; ``shared``: several cores read each part, over the ring."""

    mapping: Mapping
    shared: bool


def _tile_conversion(
    usage: Usage, user: Divided, op: ir.Operation, tile_bytes: int
) -> _TileConversion | None:
    """Return the division by which the reading cores convert a slice of the result; None if there is none."""
    readers = _readers(usage, op)
    views = [view_of(access.user.space, access.operand, access.user.division) for access in readers]
    if (
        not views
        or views[0] is None
        or any(view is None or not same_owners(views[0], view) for view in views)
    ):
        return None
    sizes = (local_bytes(access.user.space, access.operand, access.user.division) for access in readers)
    if max(sizes) > tile_bytes:
        return None
    source = usage.memory.place(maker_of(op.operands[0]).operands[0])
    try:
        before = viewed(op, source.view)
    except ViewError:
        return None  # the tile cuts the sticks of the source
    result = op.results[0]
    space = usage.memory.copy_space(result, [usage.memory.place(result).view, before])
    mapping = matching_division(space, 0, views[0])
    # The split is chosen as if the source were the result.
    turned = replace(space, views=space.views[::-1], present=space.present[::-1])
    splits = cheapest_split(user.opcode, turned, len(views[0].regions))
    # Converting on the reading cores saves the shuffle, which is worth a slower read.
    if mapping is not None and _read_ns(user, space, mapping[0]) <= _TOO_SLOW * _read_ns(user, space, splits):
        return _TileConversion(mapping, shared=False)
    if copy_division(space, views[0]) is None:
        return None if mapping is None else _TileConversion(mapping, shared=False)
    return _TileConversion((splits, core_order(splits, ())), shared=True)


def _read_ns(user: Divided, space: Space, splits: Sequence[int]) -> float:
    """Return the time for all cores to read their parts of a tile from device memory, with the given splits."""
    work = even_work(user.opcode, space, splits)
    return access_ns(work, work.operands[1])


def _convert(usage: Usage, restickify: ir.Operation, op: ir.Operation, mapping: Mapping) -> ir.Operation:
    """Replace a slice of the result by a converted slice of the source, and return the conversion."""
    source = restickify.operands[0]
    layout = viewed(op, usage.memory.place(source).view).layout
    tile = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(op), op.location:
        slice_ = op.clone().operation
        slice_.operands[0] = source
        plain = ir.RankedTensorType.get(tile.shape, tile.element_type)
        slice_.results[0].set_type(stick.with_layout(plain, layout))
        conversion = ir.Operation.create(
            restickify.name, results=[tile], operands=[slice_.results[0]], loc=restickify.location
        )
    sdsc.inherit(conversion, restickify)
    conversion.attributes[sdsc.DIVISION] = sdsc.division_attr(mapping[0], core_map(*mapping))
    if stick.PADDING in restickify.attributes:
        conversion.attributes[stick.PADDING] = restickify.attributes[stick.PADDING]
    sdsc.record(conversion, "remap", "sink-restickify", "the tile is converted where it is read")
    op.results[0].replace_all_uses_with(conversion.results[0])
    op.erase()
    return conversion

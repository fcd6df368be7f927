# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns operations with ``sdsc.tiling`` into loops over tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.attention_pattern import FINITE_LOW, KnownMask, known_mask
from spyre_mlir.analysis.loops import LOOP
from spyre_mlir.analysis.tile_nests import (
    VIEWS,
    Nest,
    Nests,
    Tiled,
    check_running,
    in_format,
    producers,
    source_dims,
    trace,
)
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.sdsc import HIDES
from spyre_mlir.dialects.structured import (
    defining_op,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
    use_empty,
)
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import read_by, set_function_type
from spyre_mlir.rewriting.tensor_builders import (
    affine_apply,
    constant,
    element_type,
    empty,
    extracted,
    index_constant,
    sliced,
)
from spyre_mlir.target.ops import COMBINE
from spyre_mlir.tiling import TiledLoop
from spyre_mlir.tiling.mask_tiles import Range, TileClass

# Tile slices: the tiles of values in the current iteration of nested loops, as slices and views.


@dataclass(frozen=True, eq=False)
class MaskPart:
    """Numbers of a mask for the current rows and the keys from tile ``first`` on; None: use the mask operand itself.

    Numbers of the operand may be -infinity; masks of tiles do not contain -infinity.
    """

    first: int
    numbers: NDArray[Any] | None


#: The mask of operations in some iterations: a part of the mask, or None: no mask. Other operations use their operand.
Masks = Mapping[Tiled, MaskPart | None]


@dataclass
class LoopLevel:
    """A nest that is being written, with its induction variable, or with the number of a peeled iteration.

    Operations that run once per iteration of the outer level are written before ``loop``, which is None if peeled.
    """

    nest: Nest
    variable: ir.Value | int
    loop: ir.Operation | None = None
    masks: Masks = field(default_factory=dict)
    offsets: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    slices: dict[tuple, ir.Value] = field(default_factory=dict)

    def extent(self, size: int) -> int:
        """Return the extent of the tile of a dim in this iteration."""
        tile, full = self.nest.tile(size), self.nest.full_tiles
        is_smaller = isinstance(self.variable, int) and self.variable == full
        return size - tile * full if is_smaller else tile


@dataclass
class AvailablePart:
    """The available part of a value: a tile per iteration of the nests ``tiled_by``, or the whole value."""

    value: ir.Value
    tiled_by: tuple[Nest, ...] = ()


class TileSlices:
    """The available ``parts`` of values, sliced to tiles of the current iteration of ``levels``, outermost first.

    ``waiting`` are the results of operations that are not moved into their loops yet.
    """

    def __init__(self, waiting: set[ir.Value]) -> None:
        self.waiting = waiting
        self.parts: dict[ir.Value, AvailablePart] = {}
        self.levels: list[LoopLevel] = []

    def tile(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Return the tile of a value in the current iteration of the nests that tile its dims."""
        part = self.parts.get(value)
        op = defining_op(value)
        if part is None and op is not None and op.name in VIEWS and op.results[0] in self.waiting:
            tiled_by = self.parts[trace(value).root].tiled_by
            tile = self._view(op, {dim: nest for dim, nest in tiled_dims.items() if nest in tiled_by})
            inside = {dim: nest for dim, nest in tiled_dims.items() if nest not in tiled_by}
            return self._cut(tile, inside) if inside else tile
        if part is None:
            part = AvailablePart(value)
        missing = {dim: nest for dim, nest in tiled_dims.items() if nest not in part.tiled_by}
        return self._sliced(part.value, missing) if missing else part.value

    def _view(self, op: ir.Operation, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Build a view of the tile of a value that is computed in the nest."""
        where, source_tiles = source_dims(op), dict[int, Nest]()
        for dim, nest in tiled_dims.items():
            source_dim = where[dim]
            assert source_dim is not None, "operations share a nest only where views keep tiles"
            source_tiles[source_dim] = nest
        source = self.tile(op.operands[0], source_tiles)
        shape, element = self._tile_shape(op.results[0], tiled_dims), element_type(op.results[0])
        destination = empty(shape, element) if len(op.operands) > 1 else None
        view = op.clone().operation
        view.operands[0] = source
        view.results[0].set_type(ir.RankedTensorType.get(shape, element))
        if destination is not None:
            view.operands[1] = destination
        if op.name == "tensor.expand_shape":
            view.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(shape)
        return view.results[0]

    def _sliced(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Return the slice of a value, built once per iteration of the innermost loop that moves it."""
        levels = {level.nest: depth for depth, level in enumerate(self.levels)}
        depth = max(levels[nest] for nest in tiled_dims.values())
        level = self.levels[depth]
        key = (value, *((dim, id(tiled_dims[dim])) for dim in sorted(tiled_dims)))
        if key not in level.slices:
            # In an iteration of the level, before the inner loop that is being written, if any.
            inner = next((inner.loop for inner in self.levels[depth + 1 :] if inner.loop is not None), None)
            with ir.InsertionPoint(inner) if inner is not None else nullcontext():
                level.slices[key] = self._cut(value, tiled_dims)
        return level.slices[key]

    def _cut(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Build the slice of a value in the current iteration of the nests that tile its dims."""
        levels = {level.nest: level for level in self.levels}
        type_ = ir.RankedTensorType.get(self._tile_shape(value, tiled_dims), element_type(value))
        return slice_op([value], {dim: levels[nest] for dim, nest in tiled_dims.items()}, type_)

    def _tile_shape(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> list[int]:
        """Return the shape of the tile of a value in the current iteration."""
        levels = {level.nest: level for level in self.levels}
        shape = list(shape_of(value))
        for dim, nest in tiled_dims.items():
            shape[dim] = levels[nest].extent(shape[dim])
        return shape


def slice_op(operands: list[ir.Value], moving: dict[int, LoopLevel], type_: ir.Type) -> ir.Value:
    """Build the extraction or insertion of the tile that some levels move; the last operand is the whole tensor."""
    whole = shape_of(operands[-1])
    sizes = [moving[dim].extent(size) if dim in moving else size for dim, size in enumerate(whole)]
    offsets: list[int | ir.Value] = [0] * len(whole)
    for dim, level in sorted(moving.items()):
        if isinstance(level.variable, int):
            offsets[dim] = level.variable * level.nest.tile(whole[dim])
        else:
            offsets[dim] = _offset(level, level.variable, sizes[dim])
    return sliced(operands, offsets, sizes, [1] * len(sizes), type_)


def part_slice(value: ir.Value, dim: int, level: LoopLevel, first: int, size: int) -> ir.Value:
    """Return the tile of an iteration from a value that contains tiles from ``first`` on of a dim of ``size``."""
    shape = list(shape_of(value))
    tile = min(level.nest.tile(size), shape[dim])
    if tile == shape[dim]:
        return value
    variable, offsets = level.variable, list[int | ir.Value]([0] * len(shape))
    is_known = isinstance(variable, int)
    offsets[dim] = (variable - first) * tile if is_known else _offset(level, variable, tile, first)
    shape[dim] = tile
    return extracted(value, offsets, shape)


def _offset(level: LoopLevel, variable: ir.Value, tile: int, first: int = 0) -> ir.Value:
    """Build, at the start of the loop body, the offset of an iteration's tile relative to tile ``first``."""
    if (tile, first) not in level.offsets:
        map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * tile - first * tile])
        with ir.InsertionPoint.at_block_begin(variable.owner):
            level.offsets[tile, first] = affine_apply(map_, [variable])
    return level.offsets[tile, first]


@dataclass(frozen=True)
class CoarseTiling(Pass):
    """Convert runs of operations with one tiling to ``scf.for`` nests ("Working Set Reduction", transformation).

    Adjacent operations whose ``sdsc.tiling`` begins with the same loops share these loops, as long as each operation
    reads, of values computed in a loop, only the tile of its own iteration; a sum over a loop is available after the
    loop. A value that is read only in the loop is a tile; a value that is read after it is a full tensor into which
    each tile is inserted; a value from outside is sliced. A reduced dim gives partial results, which are combined in an
    accumulator: the first iteration, which initialises it, is written before the loop. If the last tile is smaller, its
    iteration is written after the loop, because shapes are static and a bundle supports only constant bounds.

    Before, level *device-ops*:
        %0 = exp(%x) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}]}
        %1 = mul(%0, %x) {sdsc.tiling = [{loop = "1.M", dim = 0, tiles = 8}]}
    After:
        scf.for %i = 0 to 8 { %x0 = slice %x; %0 = exp(%x0); %1 = mul(%0, %x0); insert %1 }
    """

    name: ClassVar[str] = "coarse-tiling"

    def run_on(self, func: ir.Operation) -> None:
        block = func.regions[0].blocks[0]
        attributes = (op_view.operation.attributes for op_view in block.operations)
        if not any(TILING in names or sdsc.NAME in names for names in attributes):
            return
        nests = Nests(block)
        # Checked before the rewrite: a maximum that is not complete may be read only in its own loops.
        check_running(nests)
        for tiled_op in nests.tiled.values():
            op, loops = tiled_op.op, [loop.settled() for loop in tiling_of(tiled_op.op)]
            if TILING in op.attributes:
                del op.attributes[TILING]
            if sdsc.NAME not in op.attributes:
                continue
            # An operation with a name keeps its loops for plan files. A running maximum always has a loop over its
            # reduced dim there, even of a single tile, which records that ``online-softmax`` was applied.
            reduced = tiled_op.generic.reduced
            if tiled_op.running is not None and not any(loop.dim in reduced for loop in loops):
                loops.append(TiledLoop(f"attention{tiled_op.running}.keys", min(reduced), 1))
            op.attributes[sdsc.TILED] = tiling_attr(loops)
        if not any(isinstance(item, Nest) for item in nests.items):
            return
        for item in nests.items:
            if isinstance(item, Nest):
                self._report(item)
        LoopWriter(block, nests).run()
        if "arg_attrs" not in func.attributes:
            return
        # Masks without readers were replaced by much smaller constants for parts of them.
        attributes = list(func.attributes["arg_attrs"])
        for number, value in reversed(list(enumerate(block.arguments))):
            if sdsc.RUNS in attributes[number] and use_empty(value):
                block.erase_argument(number)
                del attributes[number]
        func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        set_function_type(func)

    def _report(self, nest: Nest) -> None:
        ops = [item for item in nest.items if isinstance(item, Tiled)]
        if ops:
            rest = "" if nest.tiles == nest.full_tiles else ", the last smaller"
            unrolled = ", unrolled" if nest.unrolled else ""
            text = f"{len(ops)} operations in {nest.tiles} tiles by loop {nest.loop}{rest}{unrolled}"
            self.remark(ops[0].op, "tiling", text)
        for item in nest.items:
            if isinstance(item, Nest):
                self._report(item)


# Writing nests of tiled operations as ``scf.for``.


@dataclass
class _Maximum:
    """A running maximum in an iteration: the previous and the new value, and the factor between their exponentials."""

    producer: Tiled
    before: ir.Value
    now: ir.Value
    factor: ir.Value | None = None


class LoopWriter:
    """Writes the items of a block in order before the terminator, operands first, and erases unused operations."""

    def __init__(self, block: ir.Block, nests: Nests) -> None:
        self.block = block
        self.nests = nests
        self.end = block.operations[len(block.operations) - 1].operation
        self.old = [op.operation for op in block.operations if op.operation != self.end]
        # Constants are not moved, because bodies of operations may also use them.
        self.old = [op for op in self.old if op.name != "arith.constant"]
        # By result: the hash of an op changes with its operands.
        self.waiting = {op.results[0] for op in self.old}
        self.tiles = TileSlices(self.waiting)
        self.parts, self.levels = self.tiles.parts, self.tiles.levels
        self.sums: dict[Tiled, ir.Value] = {}
        self.results: dict[Tiled, AvailablePart] = {}  # the iter_args of enclosing loops, for full results
        self.maxima: dict[str, _Maximum] = {}
        self.constants: dict[int, ir.Value] = {}
        self.masks = MaskConstants(block)
        self.inside: dict[Nest, set[ir.Value]] = {}

    def run(self) -> None:
        for item in self.nests.items:
            if isinstance(item, Tiled):
                self._move(item.result)
                continue
            members, inside = list(item.operations()), self._inside(item)
            for tiled in members:
                for value in tiled.generic.inputs:
                    # An operand is moved unless an operation of the nest computes it.
                    if not any(producer.result in inside for producer in producers(value, self.nests.tiled)):
                        self._move(value)
            with ir.InsertionPoint(self.end), _location(item):
                self._nest(item)
            for tiled in members:
                tiled.result.replace_all_uses_with(self.parts[tiled.result].value)
        for value in self.end.operands:
            self._move(value)
        # In reverse, so that no op is erased before its users.
        for op in reversed(self.old):
            if op.results[0] in self.waiting:
                op.erase()
        for op in reversed([op.operation for op in self.block.operations]):
            if op.name == "arith.constant" and use_empty(op.results[0]):
                op.erase()

    # -- operations outside of the nests -----------------------------------------------------------------

    def _move(self, value: ir.Value) -> None:
        """Move the defining op of a value, and the ops that it depends on, to the insertion point."""
        op = defining_op(value)
        if op is None or op.results[0] not in self.waiting or value in self.parts:
            return
        self.waiting.remove(op.results[0])
        for operand in read_by(op):
            self._move(operand)
        op.move_before(self.end)

    # -- nests ----------------------------------------------------------------------------------------

    def _nest(self, nest: Nest) -> None:
        """Write the loop of a nest. A first iteration that begins partial sums and a smaller last one are peeled.

        All iterations are peeled if the nest is unrolled. Iterations that masks hide are omitted.
        """
        outside = tuple(level.nest for level in self.levels)
        carried = [tiled for tiled in nest.operations() if self._escapes(tiled, nest)]
        # A sum begins with its first part, because a neutral element would have to be written to memory.
        begins = any(tiled.reduces(nest) and tiled not in self.sums for tiled in carried)
        results = {tiled: self._destination(tiled, nest) for tiled in carried if not tiled.reduces(nest)}
        values: list[Any] = [results[t].value if t in results else self.sums.get(t) for t in carried]
        before, self.results = self.results, {**self.results, **results}
        for segment in segments(nest, self.levels, self.masks.of(nest)):
            is_peeled = nest.unrolled or segment.is_peeled
            peeled = segment.end if is_peeled else segment.first + int(begins)
            for number in range(segment.first, peeled):
                level = LoopLevel(nest, number, masks=segment.masks)
                values = self._iteration(level, carried, values)
            if segment.end > peeled:
                values = self._loop(nest, replace(segment, first=peeled), carried, values)
            begins = False
        self.results = before
        for tiled, value in zip(carried, values, strict=True):
            if tiled.reduces(nest):
                self.parts[tiled.result] = AvailablePart(value, outside)
                self.sums[tiled] = value
            else:
                self.parts[tiled.result] = AvailablePart(value, results[tiled].tiled_by)

    def _destination(self, tiled: Tiled, nest: Nest) -> AvailablePart:
        """Return the destination of a nest's result tiles: an iter_arg of enclosing loops, or a buffer read there.

        Only an unrolled nest can write such a buffer in LX.
        """
        outside = tuple(level.nest for level in self.levels)
        carried = self.results.get(tiled)
        if carried is None:
            return AvailablePart(self._empty(tiled), outside)
        around = self._inside(outside[-1]) - self._inside(nest) if nest.unrolled else set()
        if not any(user.results and user.results[0] in around for user in _readers(tiled.result)):
            return carried
        return AvailablePart(self._empty(tiled), outside)

    def _loop(
        self, nest: Nest, segment: Segment, carried: Sequence[Tiled], initial: Sequence[ir.Value]
    ) -> list[ir.Value]:
        types = [value.type for value in initial]
        bounds = [self._index(bound) for bound in (segment.first, segment.end, 1)]
        loop = ir.Operation.create(LOOP, results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *types])
        variable, *arguments = block.arguments
        with ir.InsertionPoint(block):
            values = self._iteration(LoopLevel(nest, variable, loop, segment.masks), carried, arguments)
            ir.Operation.create("scf.yield", operands=values)
        return list(loop.results)

    def _iteration(
        self, level: LoopLevel, carried: Sequence[Tiled], values: Sequence[ir.Value | None]
    ) -> list[ir.Value]:
        """Write one iteration from initial values (None for sums that begin in it); return the yielded values."""
        nest, before = level.nest, dict(self.sums)
        for tiled, value in zip(carried, values, strict=True):
            if value is not None and tiled.reduces(nest):
                self.sums[tiled] = value
            elif value is not None:
                self.results[tiled] = AvailablePart(value, self.results[tiled].tiled_by)
        self.levels.append(level)
        for item in nest.items:
            if isinstance(item, Nest):
                with _location(item):
                    self._nest(item)
            else:
                with item.op.location:
                    self._operation(item)
        yielded = [self._yielded(tiled, nest) for tiled in carried]
        self.levels.pop()
        self.sums = before
        return yielded

    def _yielded(self, tiled: Tiled, nest: Nest) -> ir.Value:
        """Return the sum so far, or the full result with this iteration's tile inserted if it is not yet inserted."""
        part = self.parts[tiled.result]
        if tiled.reduces(nest) or nest not in part.tiled_by:
            return part.value
        whole, tile = self.results[tiled], part.value
        if maker_of(tile).name in (LOOP, "tensor.insert_slice"):
            tile = sdsc.clone(tile, tiled.op.location)  # the tile has a separate buffer
            sdsc.record(maker_of(tile), "clone", "coarse-tiling", "a part of a result of the loop")
        moving = {
            tiled.result_dim(level.nest): level for level in self.levels if level.nest not in whole.tiled_by
        }
        return slice_op([tile, whole.value], moving, whole.value.type)

    def _escapes(self, tiled: Tiled, nest: Nest) -> bool:
        """Return whether a result of a nest is read outside of it; always true for a sum, complete after the nest."""
        if tiled.reduces(nest):
            return True
        inside = self._inside(nest)
        return any(not user.results or user.results[0] not in inside for user in _readers(tiled.result))

    def _inside(self, nest: Nest) -> set[ir.Value]:
        """Return the results of the operations of a nest."""
        if nest not in self.inside:
            self.inside[nest] = {member.result for member in nest.operations()}
        return self.inside[nest]

    def _empty(self, tiled: Tiled) -> ir.Value:
        """Return an empty tensor for the full result in an iteration of the enclosing loops."""
        shape = list(shape_of(tiled.result))
        for level in self.levels:
            if not tiled.reduces(level.nest):
                dim = tiled.result_dim(level.nest)
                shape[dim] = level.extent(shape[dim])
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(tiled.result.type).element_type)
        return ir.Operation.create("tensor.empty", results=[type_]).result

    # -- operations -----------------------------------------------------------------------------------

    def _operation(self, tiled: Tiled) -> None:
        """Write an operation on one tile, and combine the result with earlier tiles."""
        generic, opcode, location = tiled.generic, tiled.generic.opcode, tiled.op.location
        inputs = self._inputs(tiled)
        if len(inputs) == 1 < len(generic.inputs):
            self.parts[tiled.result] = AvailablePart(inputs[0], tuple(tiled.nests))
            return
        extents = list(generic.extents)
        for level in self.levels:
            dim = tiled.nests[level.nest]
            extents[dim] = level.extent(extents[dim])
        if opcode == "batchmatmul" and all(extents[dim] == 1 for dim in generic.reduced):
            # A single contracted element has no stick to contract, so the matmul is an elementwise product.
            whole = [dim for dim in generic.maps[-1] if dim is not None]
            maps = [
                tuple(whole.index(dim) if dim in whole else None for dim in dims)
                for dims in generic.maps[:-1]
            ]
            shape = [extents[dim] for dim in whole]
            value = device_op("mul", inputs, maps, shape, element_of(generic.result), location=location)
            reason = "a tile of one element that is contracted"
            sdsc.record(maker_of(value), "decomposition", "coarse-tiling", reason)
        else:
            value = rebuilt(generic, inputs, extents)
        if tiled in self.sums:
            before, shape = self.sums[tiled], shape_of(value)
            if tiled.rescaled in self.maxima:
                before = _rescaled(tiled, before, self.maxima[tiled.rescaled])
            dims, element = tuple(range(len(shape))), element_of(value)
            operands = [before, value]
            value = device_op(COMBINE[opcode], operands, [dims, dims], shape, element, location=location)
            sdsc.record(maker_of(value), "decomposition", "coarse-tiling", f"parts of '{opcode}'")
            if tiled.running is not None:
                self.maxima[tiled.running] = _Maximum(tiled, self.sums[tiled], value)
            self.sums[tiled] = value
        self.parts[tiled.result] = AvailablePart(value, tuple(tiled.nests))

    def _inputs(self, tiled: Tiled) -> list[ir.Value]:
        """Return the tiles of the operands, with the mask of a tile as a constant, or without a neutral mask."""
        generic = tiled.generic

        def tile(operand: int) -> ir.Value:
            return self.tiles.tile(generic.inputs[operand], tiled.tiled_dims(operand))

        level = next((level for level in self.levels if tiled in level.masks), None)
        if level is None:
            return [tile(operand) for operand in range(len(generic.inputs))]
        mask, part = self.masks.of(level.nest)[tiled], level.masks[tiled]
        if part is None:
            return [tile(mask.masked)]
        numbers = part.numbers
        inputs = [
            value if numbers is not None and operand == mask.mask else tile(operand)
            for operand, value in enumerate(generic.inputs)
        ]
        if numbers is not None:
            value = self.masks.value(generic.inputs[mask.mask], numbers)
            dim = generic.maps[mask.mask].index(mask.keys)
            inputs[mask.mask] = part_slice(value, dim, level, part.first, mask.tiles.keys)
        elif mask.is_infinite:
            inputs[mask.mask] = self.masks.finite(inputs[mask.mask])
        if mask.infinite is not None:
            inputs[mask.infinite] = self.masks.number(generic.inputs[mask.infinite].type)
        return inputs

    def _index(self, value: int) -> ir.Value:
        """Return an index constant at the beginning of the block."""
        if value not in self.constants:
            with ir.InsertionPoint.at_block_begin(self.block):
                self.constants[value] = index_constant(value)
        return self.constants[value]


def _rescaled(tiled: Tiled, before: ir.Value, maximum: _Maximum) -> ir.Value:
    """Rescale a sum of exponentials from one running maximum to the next: times exp(maximum before - maximum now)."""
    shape, element, location = shape_of(maximum.now), element_of(maximum.now), tiled.op.location
    dims, every = tuple(range(len(shape))), tuple(range(len(shape_of(before))))
    if maximum.factor is None:
        operands = [maximum.before, maximum.now]
        less = device_op("sub", operands, [dims, dims], shape, element, location=location)
        maximum.factor = device_op("exp", [less], [dims], shape, element, location=location)
    whole, element = shape_of(before), element_of(before)
    operands = [before, in_format(maximum.factor, element)]
    rescaled = device_op("mul", operands, [every, dims], whole, element, location=location)
    sdsc.record(maker_of(rescaled), "decomposition", "coarse-tiling", "the sum for the current maximum")
    return rescaled


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """Yield the ops that read a value or a view of the value."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name not in VIEWS:
                yield user
            elif user.results[0] not in seen:
                seen.add(user.results[0])
                pending.append(user.results[0])


def _location(nest: Nest) -> ir.Location:
    """Return the location of the first operation of a nest."""
    return next(nest.operations()).op.location


# Tiles of keys under known masks: a tile is hidden, unchanged, or masked by a small constant.


@dataclass(frozen=True)
class Segment:
    """Adjacent iterations of a nest that are written as one loop, or one after the other if ``is_peeled``."""

    first: int
    end: int
    is_peeled: bool = False
    masks: Masks = field(default_factory=dict)


def segments(nest: Nest, levels: Sequence[LoopLevel], masks: Mapping[Tiled, KnownMask]) -> list[Segment]:
    """Return the iterations of a nest that must be written, in the order in which they are written.

    Without masks these are the equal tiles and a smaller last tile. With masks, completely hidden tiles are omitted.
    The rest is one peeled tile, the first or the last, and one loop over the others: if sums went through more loops,
    the search for layouts, which covers the whole program, would find worse layouts. The peeled tile is a tile that
    masks cut through, so that most loops need no mask.
    """
    if not masks:
        last = [Segment(nest.full_tiles, nest.tiles, True)] if nest.tiles > nest.full_tiles else []
        return [Segment(0, nest.full_tiles), *last]
    rows, are_rows_known = {}, True
    for tiled, mask in masks.items():
        rows[tiled] = (0, mask.tiles.rows)
        level = next((level for level in levels if tiled.nests.get(level.nest) == mask.rows), None)
        if level is not None and isinstance(level.variable, int):
            first = level.variable * level.nest.tile(mask.tiles.rows)
            rows[tiled] = first, first + level.extent(mask.tiles.rows)
        elif level is not None:
            # A loop over rows moves the rows, and then a tile cannot have a constant mask.
            are_rows_known = False

    def keys(mask: KnownMask, first: int, end: int) -> Range:
        size = nest.tile(mask.tiles.keys)
        return first * size, min(end * size, mask.tiles.keys)

    def effects(first: int, end: int) -> dict[Tiled, TileClass]:
        return {
            tiled: mask.tiles.classify(rows[tiled], keys(mask, first, end)) for tiled, mask in masks.items()
        }

    def segment(first: int, end: int, is_peeled: bool) -> Segment:
        """Return tiles with the masks that they need: none, a constant, or the operand if a loop moves the rows."""
        needed: dict[Tiled, MaskPart | None] = {}
        for tiled, effect in effects(first, end).items():
            numbers = None
            if effect is not TileClass.NEUTRAL and are_rows_known:
                numbers = masks[tiled].part(rows[tiled], keys(masks[tiled], first, end))
            needed[tiled] = None if effect is TileClass.NEUTRAL else MaskPart(first, numbers)
        return Segment(first, end, is_peeled, needed)

    by_tile = {tile: effects(tile, tile + 1) for tile in range(nest.tiles)}
    seen = [
        tile
        for tile, effect_of in by_tile.items()
        if not any(masks[tiled].hides and effect is TileClass.HIDDEN for tiled, effect in effect_of.items())
    ]
    first, last = seen[0], seen[-1]
    is_mixed = any(effect is not TileClass.NEUTRAL for effect in by_tile[last].values())
    # A smaller last tile is always peeled.
    peeled = last if last >= nest.full_tiles or is_mixed else first
    first, end = (first, last) if peeled == last else (first + 1, last + 1)
    loop = [segment(first, end, False)] if first < end else []
    return [segment(peeled, peeled + 1, True), *loop]


class MaskConstants:
    """Masks of nests, and the constants of masked tiles at the beginning of a block; equal constants are shared."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._values: dict[ir.Attribute, ir.Value] = {}
        self._masks: dict[Nest, Mapping[Tiled, KnownMask]] = {}

    def of(self, nest: Nest) -> Mapping[Tiled, KnownMask]:
        """Return the masks of scores and weights in a nest over keys.

        The result is cached: unrolled enclosing nests write the nest several times.
        """
        if nest not in self._masks:
            masks = {}
            for tiled in nest.operations():
                if HIDES in tiled.op.attributes and (mask := known_mask(tiled.generic)) is not None:
                    masks[tiled] = mask
            is_over_keys = all(tiled.nests.get(nest) == mask.keys for tiled, mask in masks.items())
            self._masks[nest] = masks if is_over_keys else {}
        return self._masks[nest]

    def value(self, mask: ir.Value, numbers: NDArray[Any]) -> ir.Value:
        """Return a constant of these rows and keys, with the dims of the operand ``mask``."""
        sizes = iter(numbers.shape)
        shape = [1 if size == 1 else next(sizes) for size in shape_of(mask)]
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(mask.type).element_type)
        dtype = np.float32 if str(type_.element_type) == "f32" else np.float16
        array = np.ascontiguousarray(numbers.reshape(shape).astype(dtype))
        return self._constant(ir.DenseElementsAttr.get(array, type=type_))

    def number(self, type_: ir.Type) -> ir.Value:
        """Return a constant whose elements are all the finite number that hides a score."""
        tensor = ir.RankedTensorType(type_)
        attr = ir.DenseElementsAttr.get_splat(tensor, ir.FloatAttr.get(tensor.element_type, FINITE_LOW))
        return self._constant(attr)

    def finite(self, mask: ir.Value) -> ir.Value:
        """Return a tile of a mask without -infinity, at the current insertion point."""
        shape, element = shape_of(mask), element_of(mask)
        low = self.number(ir.RankedTensorType.get([], ir.RankedTensorType(mask.type).element_type))
        whole, location = tuple(range(len(shape))), ir.Location.current
        return device_op("maximum", [mask, low], [whole, ()], shape, element, location=location)

    def _constant(self, attr: ir.DenseElementsAttr) -> ir.Value:
        # The context uniques attributes, so they are compared without reading their elements.
        if attr not in self._values:
            with ir.InsertionPoint.at_block_begin(self._block):
                self._values[attr] = constant(attr)
        return self._values[attr]

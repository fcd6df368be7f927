"""Writes nests of tiled operations as ``scf.for``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from spyre_mlir.analysis.loops import LOOP
from spyre_mlir.analysis.tile_nests import VIEWS, Nest, Nests, Tiled, in_format, makers, source_dims, trace
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
)
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import COMBINE

_DYNAMIC = -(1 << 63)


@dataclass
class _Level:
    """A nest that is being written: its induction variable, or the number of a peeled iteration.

    Operations that run once per iteration of the level outside are written before ``loop``; None if peeled.
    """

    nest: Nest
    variable: ir.Value | int
    loop: ir.Operation | None = None
    offsets: dict[int, ir.Value] = field(default_factory=dict)
    slices: dict[tuple, ir.Value] = field(default_factory=dict)

    def extent(self, size: int) -> int:
        """The extent of the tile of a dim in this iteration."""
        tile, full = self.nest.tile(size), self.nest.full_tiles
        is_smaller = isinstance(self.variable, int) and self.variable == full
        return size - tile * full if is_smaller else tile


@dataclass
class _Maximum:
    """A running maximum in an iteration: its values before and now, and the factor between their exponentials."""

    maker: Tiled
    before: ir.Value
    now: ir.Value
    factor: ir.Value | None = None


@dataclass
class _Part:
    """The available part of a value: a tile per iteration of the nests ``tiled_by``, or all of it."""

    value: ir.Value
    tiled_by: tuple[Nest, ...] = ()


class LoopWriter:
    """Writes the items of a block in order before its end, operands first, and erases what is not needed."""

    def __init__(self, block: ir.Block, nests: Nests) -> None:
        self.block = block
        self.nests = nests
        self.end = block.operations[len(block.operations) - 1].operation
        self.old = [op.operation for op in block.operations if op.operation != self.end]
        # Constants stay where they are: bodies of operations may use them, too.
        self.old = [op for op in self.old if op.name != "arith.constant"]
        # By result: the hash of an op changes with its operands.
        self.waiting = {op.results[0] for op in self.old}
        self.parts: dict[ir.Value, _Part] = {}
        self.levels: list[_Level] = []
        self.sums: dict[Tiled, ir.Value] = {}
        self.results: dict[Tiled, _Part] = {}  # the iter_args of loops around, for full results
        self.maxima: dict[str, _Maximum] = {}
        self.constants: dict[int, ir.Value] = {}
        self.inside: dict[Nest, set[ir.Value]] = {}

    def run(self) -> None:
        for item in self.nests.items:
            if isinstance(item, Tiled):
                self._move(item.result)
                continue
            members, inside = list(item.operations()), self._inside(item)
            for tiled in members:
                for value in tiled.generic.inputs:
                    self._move_outside(value, inside)
            with ir.InsertionPoint(self.end), _location(item):
                self._nest(item)
            for tiled in members:
                tiled.result.replace_all_uses_with(self.parts[tiled.result].value)
        for value in self.end.operands:
            self._move(value)
        for op in reversed(self.old):
            if op.results[0] in self.waiting:
                op.erase()
        for op in reversed([op.operation for op in self.block.operations]):
            if op.name == "arith.constant" and not any(True for _ in op.results[0].uses):
                op.erase()

    # -- operations outside of the nests -----------------------------------------------------------------

    def _move(self, value: ir.Value) -> None:
        """Move the op of a value, and those that it needs, to the insertion point."""
        op = defining_op(value)
        if op is None or op.results[0] not in self.waiting or value in self.parts:
            return
        self.waiting.remove(op.results[0])
        for operand in op.operands:
            self._move(operand)
        op.move_before(self.end)

    def _move_outside(self, value: ir.Value, inside: set[ir.Value]) -> None:
        """Move an operand of a nest that no operation of the nest computes."""
        if not any(producer.result in inside for producer in makers(value, self.nests.tiled)):
            self._move(value)

    # -- nests ----------------------------------------------------------------------------------------

    def _nest(self, nest: Nest) -> None:
        """Write the loop of a nest. Peeled are the first iteration if partial sums begin with it, and a smaller last.

        All iterations are peeled if it is unrolled.
        """
        outside = tuple(level.nest for level in self.levels)
        carried = [tiled for tiled in nest.operations() if self._escapes(tiled, nest)]
        begins = any(tiled.reduces(nest) and tiled not in self.sums for tiled in carried)
        results = {tiled: self._destination(tiled, nest) for tiled in carried if not tiled.reduces(nest)}
        values = [results[tiled].value if tiled in results else self.sums.get(tiled) for tiled in carried]
        before, self.results = self.results, {**self.results, **results}
        peeled = nest.full_tiles if nest.unrolled else int(begins)
        for number in range(peeled):
            values = self._iteration(_Level(nest, number), carried, values)
        if nest.full_tiles > peeled:
            values = self._loop(nest, peeled, carried, values)
        if nest.tiles > nest.full_tiles:
            values = self._iteration(_Level(nest, nest.full_tiles), carried, values)
        self.results = before
        for tiled, value in zip(carried, values, strict=True):
            if tiled.reduces(nest):
                self.parts[tiled.result] = _Part(value, outside)
                self.sums[tiled] = value
            else:
                self.parts[tiled.result] = _Part(value, results[tiled].tiled_by)

    def _destination(self, tiled: Tiled, nest: Nest) -> _Part:
        """The destination of a nest's tiles of a result: an iter_arg of loops around, or a buffer for readers there.

        Only an unrolled nest can write that buffer in LX.
        """
        outside = tuple(level.nest for level in self.levels)
        carried = self.results.get(tiled)
        if carried is not None and not (nest.unrolled and self._is_read_in(outside[-1], tiled, nest)):
            return carried
        return _Part(self._empty(tiled), outside)

    def _loop(
        self, nest: Nest, begin: int, carried: Sequence[Tiled], initial: Sequence[ir.Value]
    ) -> list[ir.Value]:
        types = [value.type for value in initial]
        bounds = [self._index(bound) for bound in (begin, nest.full_tiles, 1)]
        loop = ir.Operation.create(LOOP, results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *types])
        variable, *arguments = block.arguments
        with ir.InsertionPoint(block):
            values = self._iteration(_Level(nest, variable, loop), carried, arguments)
            ir.Operation.create("scf.yield", operands=values)
        return list(loop.results)

    def _iteration(
        self, level: _Level, carried: Sequence[Tiled], values: Sequence[ir.Value | None]
    ) -> list[ir.Value]:
        """Write one iteration from initial values, None for sums that begin in it; return the yielded values."""
        nest, before = level.nest, dict(self.sums)
        for tiled, value in zip(carried, values, strict=True):
            if value is not None and tiled.reduces(nest):
                self.sums[tiled] = value
            elif value is not None:
                self.results[tiled] = _Part(value, self.results[tiled].tiled_by)
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
        """The sum so far; or the full result with this iteration's tile inserted, if it is not there yet."""
        part = self.parts[tiled.result]
        if tiled.reduces(nest) or nest not in part.tiled_by:
            return part.value
        whole, tile = self.results[tiled], part.value
        if maker_of(tile).name in (LOOP, "tensor.insert_slice"):
            tile = sdsc.clone(tile, tiled.op.location)  # it has a buffer of its own
            sdsc.record(maker_of(tile), "clone", "coarse-tiling", "a part of what leaves the loop")
        moving = {
            tiled.result_dim(level.nest): level for level in self.levels if level.nest not in whole.tiled_by
        }
        return self._slice_op("tensor.insert_slice", [tile, whole.value], moving, whole.value.type)

    def _escapes(self, tiled: Tiled, nest: Nest) -> bool:
        """Return whether a result of a nest is read outside of it; a sum is, for it is complete when the nest ends."""
        if tiled.reduces(nest):
            return True
        inside = self._inside(nest)
        return any(not user.results or user.results[0] not in inside for user in _readers(tiled.result))

    def _is_read_in(self, outer: Nest, tiled: Tiled, nest: Nest) -> bool:
        """Return whether a result of a nest is read in the one around it."""
        around = self._inside(outer) - self._inside(nest)
        return any(user.results and user.results[0] in around for user in _readers(tiled.result))

    def _inside(self, nest: Nest) -> set[ir.Value]:
        """The results of the operations of a nest."""
        if nest not in self.inside:
            self.inside[nest] = {member.result for member in nest.operations()}
        return self.inside[nest]

    def _empty(self, tiled: Tiled) -> ir.Value:
        """An empty tensor for the full result of an iteration of the levels around."""
        shape = list(shape_of(tiled.result))
        for level in self.levels:
            if not tiled.reduces(level.nest):
                dim = tiled.result_dim(level.nest)
                shape[dim] = level.extent(shape[dim])
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(tiled.result.type).element_type)
        return ir.Operation.create("tensor.empty", results=[type_]).result

    # -- operations -----------------------------------------------------------------------------------

    def _operation(self, tiled: Tiled) -> None:
        """Write an operation on one tile, and its combination with the tiles before."""
        generic = tiled.generic
        inputs = [
            self._tile(value, tiled.tiled_dims(operand)) for operand, value in enumerate(generic.inputs)
        ]
        extents = list(generic.extents)
        for level in self.levels:
            dim = tiled.nests[level.nest]
            extents[dim] = level.extent(extents[dim])
        is_product = generic.opcode == "batchmatmul" and all(extents[dim] == 1 for dim in generic.reduced)
        value = _product(generic, inputs, extents) if is_product else rebuilt(generic, inputs, extents)
        if tiled in self.sums:
            before = self.sums[tiled]
            if tiled.rescaled in self.maxima:
                before = self._rescaled(tiled, before)
            value = self._combined(tiled, before, value)
            if tiled.running is not None:
                self.maxima[tiled.running] = _Maximum(tiled, self.sums[tiled], value)
            self.sums[tiled] = value
        self.parts[tiled.result] = _Part(value, tuple(tiled.nests))

    def _combined(self, tiled: Tiled, before: ir.Value, value: ir.Value) -> ir.Value:
        shape = shape_of(value)
        dims = tuple(range(len(shape)))
        opcode = COMBINE[tiled.generic.opcode]
        combined = device_op(
            opcode, [before, value], [dims, dims], shape, element_of(value), location=tiled.op.location
        )
        sdsc.record(
            maker_of(combined), "decomposition", "coarse-tiling", f"parts of '{tiled.generic.opcode}'"
        )
        return combined

    def _rescaled(self, tiled: Tiled, before: ir.Value) -> ir.Value:
        """A sum of exponentials less one maximum as one less the next: times exp(maximum before - maximum now)."""
        assert tiled.rescaled is not None
        maximum = self.maxima[tiled.rescaled]
        shape = shape_of(maximum.now)
        dims, location = tuple(range(len(shape))), tiled.op.location
        if maximum.factor is None:
            element = element_of(maximum.now)
            less = device_op(
                "sub", [maximum.before, maximum.now], [dims, dims], shape, element, location=location
            )
            maximum.factor = device_op("exp", [less], [dims], shape, element, location=location)
        whole = shape_of(before)
        every = tuple(range(len(whole)))
        factor = in_format(maximum.factor, element_of(before))
        rescaled = device_op(
            "mul", [before, factor], [every, dims], whole, element_of(before), location=location
        )
        sdsc.record(
            maker_of(rescaled), "decomposition", "coarse-tiling", "the sum so far for the maximum so far"
        )
        return rescaled

    def _tile(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """The tile of a value in the current iteration of the nests that tile its dims."""
        part = self.parts.get(value)
        op = defining_op(value)
        if part is None and op is not None and op.name in VIEWS and op.results[0] in self.waiting:
            tiled_by = self.parts[trace(value).root].tiled_by
            tile = self._view(op, {dim: nest for dim, nest in tiled_dims.items() if nest in tiled_by})
            inside = {dim: nest for dim, nest in tiled_dims.items() if nest not in tiled_by}
            return self._cut(tile, inside) if inside else tile
        if part is None:
            part = _Part(value)
        missing = {dim: nest for dim, nest in tiled_dims.items() if nest not in part.tiled_by}
        return self._sliced(part.value, missing) if missing else part.value

    def _view(self, op: ir.Operation, tiled_dims: dict[int, Nest]) -> ir.Value:
        """A view of the tile of a value that is computed in the nest."""
        where = source_dims(op)
        source = self._tile(op.operands[0], {_known(where[dim]): nest for dim, nest in tiled_dims.items()})
        shape = self._tile_shape(op.results[0], tiled_dims)
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(op.results[0].type).element_type)
        empty = ir.Operation.create("tensor.empty", results=[type_]).result if len(op.operands) > 1 else None
        view = op.clone().operation
        view.operands[0] = source
        view.results[0].set_type(type_)
        if empty is not None:
            view.operands[1] = empty
        if op.name == "tensor.expand_shape":
            view.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(shape)
        return view.results[0]

    def _sliced(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """The slice of a value, written once per iteration of the innermost loop that moves it."""
        levels = {level.nest: depth for depth, level in enumerate(self.levels)}
        depth = max(levels[nest] for nest in tiled_dims.values())
        level = self.levels[depth]
        key = (
            value,
            *((dim, id(nest)) for dim, nest in sorted(tiled_dims.items(), key=lambda item: item[0])),
        )
        if key not in level.slices:
            with self._at(depth):
                level.slices[key] = self._cut(value, tiled_dims)
        return level.slices[key]

    def _cut(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """The slice of a value in the current iteration of the nests that tile its dims."""
        levels = {level.nest: level for level in self.levels}
        shape = self._tile_shape(value, tiled_dims)
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
        moving = {dim: levels[nest] for dim, nest in tiled_dims.items()}
        return self._slice_op("tensor.extract_slice", [value], moving, type_)

    def _tile_shape(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> list[int]:
        """The shape of the tile of a value in the current iteration."""
        levels = {level.nest: level for level in self.levels}
        shape = list(shape_of(value))
        for dim, nest in tiled_dims.items():
            shape[dim] = levels[nest].extent(shape[dim])
        return shape

    def _at(self, depth: int) -> AbstractContextManager:
        """The insertion point of an iteration of a level: before the loop in it that is being written, if any."""
        inner = next((level.loop for level in self.levels[depth + 1 :] if level.loop is not None), None)
        return ir.InsertionPoint(inner) if inner is not None else nullcontext()

    def _slice_op(
        self,
        name: str,
        operands: list[ir.Value],
        moving: dict[int, _Level],
        type_: ir.Type,
    ) -> ir.Value:
        """The extraction, or insertion, of the tile that some levels move, from the last of the operands."""
        whole = shape_of(operands[-1])
        sizes = [moving[dim].extent(size) if dim in moving else size for dim, size in enumerate(whole)]
        offsets = [0] * len(sizes)
        dynamic = []
        for dim, level in sorted(moving.items()):
            if isinstance(level.variable, int):
                offsets[dim] = level.variable * level.nest.tile(whole[dim])
            else:
                offsets[dim] = _DYNAMIC
                dynamic.append(self._offset(level, level.variable, sizes[dim]))
        segments = [*(1 for _ in operands), len(dynamic), 0, 0]
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
            "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        }
        slice_ = ir.Operation.create(
            name, results=[type_], operands=[*operands, *dynamic], attributes=attributes
        )
        return slice_.result

    def _offset(self, level: _Level, variable: ir.Value, tile: int) -> ir.Value:
        """The offset of the tile of an iteration, at the top of its loop."""
        if tile not in level.offsets:
            map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * tile])
            with ir.InsertionPoint.at_block_begin(variable.owner):
                level.offsets[tile] = ir.Operation.create(
                    "affine.apply",
                    results=[ir.IndexType.get()],
                    operands=[variable],
                    attributes={"map": ir.AffineMapAttr.get(map_)},
                ).result
        return level.offsets[tile]

    def _index(self, value: int) -> ir.Value:
        """A constant, at the top of the block."""
        if value not in self.constants:
            index = ir.IndexType.get()
            with ir.InsertionPoint.at_block_begin(self.block):
                self.constants[value] = ir.Operation.create(
                    "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, value)}
                ).result
        return self.constants[value]


def _product(generic: Structured, inputs: Sequence[ir.Value], extents: Sequence[int]) -> ir.Value:
    """A matmul that contracts one element, in which there is no stick: a product, element by element."""
    whole = [dim for dim in generic.maps[-1] if dim is not None]
    maps = [tuple(whole.index(dim) if dim in whole else None for dim in dims) for dims in generic.maps[:-1]]
    shape, location = [extents[dim] for dim in whole], generic.op.location
    product = device_op("mul", inputs, maps, shape, element_of(generic.result), location=location)
    sdsc.record(
        maker_of(product), "decomposition", "coarse-tiling", "a tile of one element that is contracted"
    )
    return product


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """The ops that read a value or views of it."""
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
    """The location of the first operation of a nest."""
    return next(nest.operations()).op.location


def _known(dim: int | None) -> int:
    assert dim is not None, "operations share a nest only where views keep tiles"
    return dim

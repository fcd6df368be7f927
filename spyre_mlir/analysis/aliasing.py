# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Alias analysis: the buffer of each value and the value's view of it, for all levels from *laid out* on.

A view lies in the buffer of its source. An inserted slice lies in its region of the destination; the result of an
insertion is the destination buffer. An iter_arg of a loop is one buffer before, in and after the loop. An operand and
the result that overwrites it are one buffer, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import cast

from spyre_mlir.analysis.loops import LOOP, body_block, carried_by, initial_of, nested_ops
from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis
from spyre_mlir.analysis.view_ops import VIEWS, moves_of, place_of, step_of, windows_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Known,
    Map,
    Structured,
    defining_op,
    extents_of,
    reduced_dims,
    structured,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.cores import Division
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space, SymbolicDims, Windows, gathered, refined
from spyre_mlir.layout.view_transforms import Slice, applied
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.liveness import LiveRange, LoopAccesses, OpAccesses, live_ranges
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.target.target import Target

COPIES = ("sdsc.clone", "sdsc.shuffle", "stick.restickify")


@dataclass(frozen=True)
class Place:
    """The buffer of a value (the value that owns the buffer) and the value's view of it.

    The view is the view in the first iterations of the loops around the value. ``moves`` maps the variable of each
    loop that moves the view to its stride: the elements by which the view advances per iteration.
    """

    buffer: ir.Value
    view: BufferView
    moves: Mapping[ir.Value, int] = field(default_factory=dict)


class AliasAnalysis:
    """The places of all tensors of one function.

    Attributes:
        target: The device that the function is for.
    """

    def __init__(self, func: ir.Operation) -> None:
        """Read a function, ``func``, at a level from *laid out* on."""
        self.target: Target = target_of(func)
        self.block: ir.Block = func.regions[0].blocks[0]
        self._places: dict[ir.Value, Place] = {}
        # A function has few types and divisions, and reading each takes time.
        self._layouts: dict[ir.Type, StickLayout | None] = {}
        self._divisions: dict[ir.Attribute, Division] = {}
        self._known: Known = {}
        self.symbolic: SymbolicAnalysis = SymbolicAnalysis(func, self._known)

    def place(self, value: ir.Value) -> Place:
        """Return the buffer of a ``value`` and the value's view of it."""
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = self._resolve(value)
        return place

    def _resolve(self, value: ir.Value) -> Place:
        op = defining_op(value)
        if op is not None and op.name in VIEWS:
            source, step = self.place(op.operands[0]), step_of(op)
            moves = moves_of(op, step, source.view) if isinstance(step, Slice) else {}
            return Place(source.buffer, applied(step, source.view), _together(source.moves, moves))
        if op is not None and op.name == "tensor.insert_slice":
            return self.place(op.operands[1])
        # A pass has decided that the result overwrites this operand: one buffer for both.
        overwritten = None if op is None else sdsc.overwritten_operand(op)
        if overwritten is not None:
            return self.place(overwritten)
        # The op that computes a slice writes directly into the region of its insertion, which saves a copy. A value
        # that is operand 1 of an insertion, the destination, has its own buffer.
        for use in value.uses:
            insertion = use.owner.operation
            if insertion.name == "tensor.insert_slice" and use.operand_number == 0:
                whole, part = self.place(insertion.operands[1]), place_of(insertion)
                moves = _together(whole.moves, moves_of(insertion, part, whole.view))
                return Place(whole.buffer, applied(part, whole.view), moves)
        # An iter_arg keeps the buffer of its initial value, so iterations need no copy.
        before = initial_of(value) or carried_by(value)
        return Place(value, BufferView.of(self.layout(value))) if before is None else self.place(before)

    def is_whole(self, value: ir.Value) -> bool:
        """Return whether a ``value`` is its whole buffer, not a slice of it."""
        place = self.place(value)
        return not place.moves and place.view == BufferView.of(self.layout(place.buffer))

    def operands(self, op: ir.Operation) -> tuple[ir.Value, ...]:
        """Return the tensors that a compute ``op`` reads and writes, the output last."""
        if op.name in COPIES:
            return op.operands[0], op.results[0]
        generic, _ = self._generic(op)
        # The destination is omitted: none of its elements is read, and the result represents its buffer.
        return (*generic.inputs, generic.result)

    def _generic(self, op: ir.Operation) -> tuple[Structured, str]:
        """Return the structured view of a device operation, and its opcode."""
        generic = structured(op, self._known)
        opcode = "" if generic is None else generic.opcode
        if generic is None or opcode not in DEVICE_OPS:
            raise error_at(op, "this is not a device operation; run verify-device-ops for the reason")
        return generic, opcode

    def division(self, op: ir.Operation) -> Division:
        """Return the division that an ``op`` records; ``CompileError`` if it has none."""
        if sdsc.DIVISION not in op.attributes:
            raise error_at(op, "this operation has no division; run work-distribution first")
        attribute = op.attributes[sdsc.DIVISION]
        if attribute not in self._divisions:
            self._divisions[attribute] = sdsc.division_from(attribute)
        return self._divisions[attribute]

    @functools.cached_property
    def live_ranges(self) -> dict[ir.Value, LiveRange]:
        """The live range of each buffer, in positions of compute ops, for the program at the time of the first call."""
        return cast("dict[ir.Value, LiveRange]", live_ranges(self.steps()))

    def steps(self, block: ir.Block | None = None) -> list[OpAccesses | LoopAccesses]:
        """Return a block, by default the function, in the form for liveness: the buffer accesses of each compute op."""
        accesses: list[OpAccesses | LoopAccesses] = []
        for op in (item.operation for item in (block or self.block).operations):
            if op.name == LOOP:
                accesses.append(LoopAccesses(tuple(self.steps(body_block(op)))))
            elif is_compute(op):
                *reads, write = (self.place(value).buffer for value in self.operands(op))
                accesses.append(OpAccesses(tuple(reads), (write,)))
        return accesses

    def layout(self, value: ir.Value) -> StickLayout:
        """Return the layout of the type of a ``value``; ``CompileError`` if it has none."""
        type_ = value.type
        if type_ not in self._layouts:
            self._layouts[type_] = stick.layout_of(type_, self.target)
        layout = self._layouts[type_]
        if layout is None:
            op = defining_op(value)
            owner = op or value.owner.owner.operation
            raise error_at(
                owner,
                f"{'this tensor' if op else 'an argument'} has no #stick.layout; run choose-layouts first",
            )
        return layout

    def space(self, op: ir.Operation) -> tuple[str, Space, tuple[ir.Value, ...]]:
        """Return the opcode of a compute ``op``, its iteration space and its operands, the output last."""
        if op.name in COPIES:
            values = self.operands(op)
            views = [self.place(value).view for value in values]
            space = replace(self.copy_space(values[0], views), halos=sdsc.halos_of(op))
            is_same_stick = views[0].stick_dim == views[1].stick_dim
            opcode = "identity" if is_same_stick else "ReStickifyOpHBM"
            opcode = "shuffle" if op.name == "sdsc.shuffle" else opcode
            return opcode, _unique(space.repeated(sdsc.copies_of(op))), values
        generic, opcode = self._generic(op)
        space, table = self._space(generic, opcode), DEVICE_OPS[opcode].table
        space = space if table is None else gathered(space, table)
        return opcode, space, (*generic.inputs, generic.result)

    def copy_space(self, value: ir.Value, views: Sequence[BufferView]) -> Space:
        """Return the space of a copy of a ``value``, from the views of its source and of its target."""
        space = _copy_space(*views)
        if self.symbolic.is_empty:
            return space
        return _with_symbolic(space, self.symbolic.of_pieces(value, space.sizes))

    def addressed_space(self, op: ir.Operation) -> Space:
        """Return the iteration space with whole operands: for a gather the whole table, not only the moved rows."""
        if op.name in COPIES:
            return self.space(op)[1]
        return self._space(*self._generic(op))

    def _space(self, generic: Structured, opcode: str) -> Space:
        views = tuple(self.place(value).view for value in (*generic.inputs, generic.result))
        space = _space(opcode, views, generic.maps, generic.iterators, windows_of(generic))
        return space if self.symbolic.is_empty else _with_symbolic(space, self.symbolic.iteration(generic))


def _with_symbolic(space: Space, dims: SymbolicDims) -> Space:
    return _unique(replace(space, symbolic=tuple(sorted(dims.items())))) if dims else space


@functools.lru_cache(maxsize=1 << 12)
def _space(
    opcode: str,
    operands: tuple[BufferView, ...],
    maps: tuple[Map, ...],
    iterators: tuple[str, ...],
    windows: Windows = (),
) -> Space:
    """Return the space of an operation over the views of its operands. Cached: a program repeats few spaces."""
    extents = extents_of(maps, [view.shape for view in operands], len(iterators))
    reduced = frozenset(reduced_dims(iterators))
    views = [view.rename(dims, len(extents), extents) for view, dims in zip(operands, maps, strict=True)]
    present = tuple(frozenset(dim for dim in dims if dim is not None) for dims in maps)
    # A sparse tensor has a dim of size 1 in the stick if the operation needs this dim there.
    kind, stick_dims = DEVICE_OPS[opcode].kind if opcode in DEVICE_OPS else None, list[frozenset[int]]()
    if kind in (Kind.MATMUL, Kind.CONVOLUTION):
        # The first operand has the contracted dim in its sticks; the weight and the result have the columns.
        columns = present[1] - present[0]
        stick_dims = [reduced, columns, columns]
    elif kind is Kind.REDUCE_STICK:
        stick_dims = [reduced, frozenset()]
    for number, dims in enumerate(stick_dims):
        unit = next((dim for dim in dims if extents[dim] == 1), None)
        if views[number].stick_dim is None and unit is not None:
            views[number] = replace(views[number], stick_dim=unit)
    return _unique(Space(extents, tuple(views), present, reduced, windows))


@functools.lru_cache(maxsize=1 << 12)
def _unique(space: Space) -> Space:
    """Return the one object for equal spaces, also of different operations: cache keys then compare by identity."""
    return space


@functools.lru_cache(maxsize=1 << 12)
def _copy_space(source: BufferView, target: BufferView) -> Space:
    """Return the space of a copy. Cached: a program repeats few such spaces."""
    return refined([source, target])


def _together(moves: Mapping[ir.Value, int], more: Mapping[ir.Value, int]) -> Mapping[ir.Value, int]:
    """Return the loop strides of a slice of a slice: the sum of the strides per loop variable."""
    if not moves or not more:
        return moves or more
    return {variable: moves.get(variable, 0) + more.get(variable, 0) for variable in {**moves, **more}}


def is_compute(op: ir.Operation) -> bool:
    """Return whether an ``op`` executes on the device."""
    return op.name in COPIES or sdsc.OP in op.attributes


def is_in_lx(buffer: ir.Value) -> bool:
    """Return whether a buffer is placed in LX."""
    owner = defining_op(buffer)
    return owner is not None and isinstance(sdsc.placement_of(owner), sdsc.LxAttr)


def functions(module: ir.Operation) -> list[ir.Operation]:
    """Return the functions of a ``module`` that have a body."""
    ops = [op.operation for op in module.regions[0].blocks[0].operations]
    return [op for op in ops if op.name == "func.func" and op.regions[0].blocks]


def argument_attributes(func: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """Return the attributes of each argument of a function by name."""
    return [attributes_of(argument) for argument in func.regions[0].blocks[0].arguments]


def attributes_of(argument: ir.Value) -> dict[str, ir.Attribute]:
    """Return the attributes of one argument of a function by name."""
    func = argument.owner.owner.operation
    if "arg_attrs" not in func.attributes:
        return {}
    entry = ir.ArrayAttr(func.attributes["arg_attrs"])[argument.arg_number]
    return {named.name: named.attr for named in ir.DictAttr(entry)}


def updated_arguments(func: ir.Operation, result: int | None = None) -> list[ir.Value]:
    """Return the arguments that the program updates in place; with ``result``, the arguments of this result."""
    arguments = func.regions[0].blocks[0].arguments
    return [
        value
        for value, attributes in zip(arguments, argument_attributes(func), strict=True)
        if sdsc.UPDATED in attributes and result in (None, ir.IntegerAttr(attributes[sdsc.UPDATED]).value)
    ]


def all_ops(func: ir.Operation) -> list[ir.Operation]:
    """Return the ops of a function ``func`` and of its loops, in program order."""
    return nested_ops(func.regions[0].blocks[0])

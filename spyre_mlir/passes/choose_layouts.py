"""Gives every device tensor a stick layout; restickifies where a stick rule needs another one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.layout import BufferView, StickLayout, ViewError
from spyre_mlir.layout.orders import batch_outermost, keep_order
from spyre_mlir.layout.space import refined
from spyre_mlir.mlir import ir
from spyre_mlir.passes._insertions import Insertions
from spyre_mlir.passes._layout_types import RESTICKIFY, apply_layouts
from spyre_mlir.passes._terms import fail
from spyre_mlir.passes._view_ops import VIEWS, root_dim, view_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_STICK_FORM = {name + "nonstick": name for name in ("sum", "max", "min", "absmax", "mean")}
_OTHER_FORM = {stick_form: other for other, stick_form in _STICK_FORM.items()}


@dataclass(frozen=True)
class ChooseLayouts(Pass):
    """Choose a stick for every op in program order and convert operands that have another.

    Inputs come in the default layout (the last dim is the stick); parameters and constants take the
    layout of their first reader, at no run-time cost. A pointwise op takes the stick that converts the
    fewest elements; a reduction becomes its stick or non-stick form; a matmul is turned round if that
    converts less. Views compose; one that cuts sticks moves the stick to another dim first.

    Before: level *device ops*. After: every tensor type has ``#stick.layout``, every conversion is a
    ``stick.restickify``.
    """

    name: ClassVar[str] = "choose-layouts"

    def run(self, module: ir.Operation) -> None:
        for op in list(module.regions[0].blocks[0].operations):
            if op.operation.name == "func.func" and op.operation.regions[0].blocks:
                _Chooser(self, op.operation).run()


class _Chooser:
    """Walks one function; ``views`` says how each value lies in its buffer, as decided so far."""

    def __init__(self, owner: ChooseLayouts, func: ir.Operation) -> None:
        self.owner = owner
        self.func = func
        self.block = func.regions[0].blocks[0]
        self.views: dict[ir.Value, BufferView] = {}
        self.layouts: dict[ir.Value, StickLayout] = {}  # of values with a buffer of their own
        self.free: set[ir.Value] = set()
        self.insertions = Insertions()
        self.converted: dict[tuple[ir.Value, int | None], ir.Value] = {}

    def run(self) -> None:
        for index, argument in enumerate(self.block.arguments):
            self._argument(index, argument)
        for op in [op.operation for op in self.block.operations]:
            with ir.InsertionPoint(op), op.location:
                self._visit(op)
        for value in list(self.free):
            self._give(value, _default(value))
        apply_layouts(self.func, self.layouts)

    # -- values ---------------------------------------------------------------------------------------

    def _argument(self, index: int, argument: ir.Value) -> None:
        pinned = stick.layout_of(argument.type)
        host = ir.DictAttr(self.func.attributes["arg_attrs"][index])[sdsc.HOST]
        if pinned is not None:
            self._give(argument, pinned)
        elif ir.StringAttr(host.kind).value == "input":
            self._give(argument, _default(argument))
        else:
            self.free.add(argument)

    def _give(self, value: ir.Value, layout: StickLayout) -> None:
        self.free.discard(value)
        self.layouts[value] = layout
        self.views[value] = BufferView.of(layout)

    def _view(self, value: ir.Value) -> BufferView:
        if value in self.free:
            self._give(value, _default(value))
        return self.views[value]

    def _lane(self, value: ir.Value) -> int | None:
        return self._view(value).lane

    # -- conversions ----------------------------------------------------------------------------------

    def _with_stick(
        self, value: ir.Value, dim: int | None, why: str, plain_for: Structured | None = None
    ) -> ir.Value:
        """The value with logical ``dim`` in the stick (None: sparse), converted if it must be."""
        shape = shape_of(value)
        if dim is not None and shape[dim] == 1:
            dim = None
        if value in self.free:
            self._give(value, _with_stick(value, dim))
        view = self._view(value)
        if view.lane == dim and (plain_for is None or view.why_not_plain() is None):
            return value
        reason = why if view.lane != dim else f"{view.why_not_plain()}"
        return self._converted(value, dim, reason)

    def _converted(self, value: ir.Value, dim: int | None, reason: str) -> ir.Value:
        if (value, dim) in self.converted:
            return self.converted[value, dim]
        layout = _with_stick(value, dim)
        made = self._restickify(value, layout, reason)
        self.converted[value, dim] = made
        return made

    def _restickify(self, value: ir.Value, layout: StickLayout, reason: str) -> ir.Value:
        """Moves the data: pads both sides to whole sticks of each other's stick dim."""
        try:
            refined([self._view(value), BufferView.of(layout)])
        except ViewError:  # the pieces of the view do not fall on the new sticks
            value = self._unpadded(value)
        source = self._view(value)
        if layout.stick_dim is not None:
            value = self._padded(value, layout.stick_dim, layout.elements_per_stick)
            source = self._view(value)
        if source.lane is not None:
            layout = layout.padded(source.lane, layout.elements_per_stick)
        provisional = ir.RankedTensorType.get(shape_of(value), ir.RankedTensorType(value.type).element_type)
        location = ir.Location.current
        op = ir.Operation.create("sdsc.clone", results=[provisional], operands=[value], loc=location)
        op.attributes[RESTICKIFY] = ir.StringAttr.get(reason)
        self._give(op.result, layout)
        self.owner.remark(op, "restickify", reason, before=0, after=2 * layout.bytes)
        return op.result

    def _padded(self, value: ir.Value, dim: int, multiple: int) -> ir.Value:
        """The value with room for whole multiples in a dim that is not its stick; a copy if need be."""
        if shape_of(value)[dim] % multiple == 0 or shape_of(value)[dim] == 1:
            return value
        root, at = root_dim(value, dim)
        if root is None or root not in self.layouts:
            value = root = self._unpadded(value)
            at = dim
        if self._gathers(root) or not self._can_pad(root, at, multiple):
            value = root = self._unpadded(value)
            at = dim
        self._give(root, self.layouts[root].padded(at, multiple))
        self._refresh(root)
        return value

    def _unpadded(self, value: ir.Value) -> ir.Value:
        """A copy without the room that a restickify leaves in the former stick dim."""
        made = sdsc.clone(value, ir.Location.current)
        self._give(made, _plain(self._view(value)))
        return made

    def _gathers(self, root: ir.Value) -> bool:
        """Whether a value is a copy out of pieces, which have no room between them."""
        op = defining_op(root)
        return (
            op is not None
            and op.name == "sdsc.clone"
            and self._view(op.operands[0]).why_not_plain() is not None
        )

    def _can_pad(self, root: ir.Value, dim: int, multiple: int) -> bool:
        """Whether all views of a buffer remain views when it gets more room."""
        pending = [(root, BufferView.of(self.layouts[root].padded(dim, multiple)))]
        while pending:
            value, view = pending.pop()
            readers = [use.owner.operation for use in value.uses]
            for op in readers:
                if op.name in VIEWS and op.operands[0] == value and op.results[0] in self.views:
                    try:
                        pending.append((op.results[0], view_of(op, view)))
                    except ViewError:
                        return False
        return True

    def _refresh(self, root: ir.Value) -> None:
        """Recomputes the views of a buffer whose layout got more room."""
        for use in root.uses:
            op = use.owner.operation
            if op.name in VIEWS and op.operands[0] == root and op.results[0] in self.views:
                self.views[op.results[0]] = view_of(op, self.views[root])
                self._refresh(op.results[0])

    # -- ops ------------------------------------------------------------------------------------------

    def _visit(self, op: ir.Operation) -> None:
        generic = structured(op) if sdsc.opcode_of(op) is not None else None
        if generic is not None:
            self._device_op(generic)
        elif op.name == "sdsc.clone":
            self._clone(op)
        elif op.name in VIEWS:
            self._view_op(op)
        elif op.name == "tensor.insert_slice":
            self._insert(op)
        elif op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            self.free.add(op.results[0])
        elif op.name == "stick.restickify":
            self._pinned(op)

    def _pinned(self, op: ir.Operation) -> None:
        """A restickify of the programmer's stays where it stands."""
        layout = stick.layout_of(op.results[0].type)
        if layout is None:
            raise fail(op, "a stick.restickify names the layout of its result")
        self._give(op.results[0], layout)

    def _device_op(self, op: Structured) -> None:
        kind = DEVICE_OPS[op.opcode].kind
        if kind is Kind.MATMUL:
            result = self._matmul(op)
        elif kind in (Kind.REDUCE_STICK, Kind.REDUCE_OTHER):
            result = self._reduction(op)
        else:
            result = self._pointwise(op)
        self._place_in_chain(result)

    def _pointwise(self, op: Structured) -> ir.Value:
        chain = self.insertions.of(op.result)
        result_map = op.maps[-1]
        if chain is not None:
            lane = self.insertions.whole(chain).stick_dim
            chosen = None if lane is None else result_map[lane]
        else:
            chosen = self._cheapest_stick(op)
        for index, value in enumerate(op.inputs):
            at = op.maps[index].index(chosen) if chosen in op.maps[index] and chosen is not None else None
            why = f"'{op.opcode}' wants one stick for all its operands"
            op.op.operands[index] = self._with_stick(value, at, why, plain_for=op)
        current = structured(op.op)
        assert current is not None
        lane = result_map.index(chosen) if chosen is not None else None
        self._give(
            op.result, keep_order(shape_of(op.result), element_of(op.result), lane, self._template(current))
        )
        if DEVICE_OPS[op.opcode].kind is Kind.CAST and lane is not None:
            self._pad_cast(current, lane)
        return op.result

    def _pad_cast(self, op: Structured, lane: int) -> None:
        """2- and 4-byte sticks of one dim: both sides hold whole sticks of the longer."""
        at = op.maps[0].index(op.maps[-1][lane])
        longest = max(self._view(value).elements_per_stick for value in (op.inputs[0], op.result))
        self._give(op.result, self.layouts[op.result].padded(lane, longest))
        source = self._view(op.inputs[0])
        if source.elements_per_stick < longest:
            op.op.operands[0] = self._padded(op.inputs[0], at, longest)

    def _template(self, op: Structured) -> BufferView | None:
        """The first operand that has all result dims, its dims renamed to those of the result."""
        where = {dim: at for at, dim in enumerate(op.maps[-1])}
        best: BufferView | None = None
        for value, dims in zip(op.inputs, op.maps, strict=False):
            if {dim for dim in dims if dim is not None} == set(where) and None not in dims:
                view = self._view(value).rename([where[dim] for dim in dims], len(where), shape_of(op.result))
                if view.why_not_plain() is None and best is None:
                    best = view
        return best

    def _cheapest_stick(self, op: Structured) -> int | None:
        """The iteration dim in the stick that converts the fewest elements of the operands."""
        known = [
            (value, dims) for value, dims in zip(op.inputs, op.maps, strict=False) if value not in self.free
        ]
        lanes: list[int] = []
        for value, dims in known:
            lane = self._lane(value)
            dim = None if lane is None else dims[lane]
            if dim is not None and dim not in lanes:
                lanes.append(dim)
        if not lanes:
            return self._default_stick(op, known)
        extents = op.extents
        return min(
            lanes, key=lambda lane: (self._elements_to_convert(known, lane, extents), lanes.index(lane))
        )

    def _default_stick(self, op: Structured, known: list) -> int | None:
        """All operands are sparse, scalar or free: the last dim that none of the sparse ones has."""
        taken = {
            dim for value, dims in known for dim, size in zip(dims, shape_of(value), strict=True) if size > 1
        }
        extents = op.extents
        loose = [dim for dim in op.maps[-1] if dim is not None and dim not in taken and extents[dim] > 1]
        return loose[-1] if loose else None

    def _elements_to_convert(self, known: list, lane: int, extents: tuple[int, ...]) -> int:
        total = 0
        for value, dims in known:
            wanted = dims.index(lane) if lane in dims and extents[lane] > 1 else None
            if self._lane(value) != wanted:
                total += math.prod(shape_of(value))
        return total

    def _clone(self, op: ir.Operation) -> None:
        value = op.operands[0]
        view = self._view(value)
        chain = self.insertions.of(op.results[0])
        if chain is None:
            self._give(op.results[0], _plain(view))
            return
        wanted = self.insertions.wanted(op.results[0], chain)
        if wanted.stick_dim != view.lane:
            op.operands[0] = self._restickify(value, wanted, "the buffer it is put into has another stick")
        self._give(op.results[0], wanted)

    # -- reductions and matmul ------------------------------------------------------------------------

    def _reduction(self, op: Structured) -> ir.Value:
        value, dims = op.inputs[0], op.maps[0]
        reduced = set(op.reduced)
        lane = self._lane(value)
        over_stick = lane is not None and dims[lane] in reduced
        only_stick = op.opcode == "exx2_zeromean"
        if only_stick and not over_stick:
            value = self._with_stick(
                value, dims.index(op.reduced[0]), "a mean square reduces over the stick", op
            )
            over_stick = True
        elif over_stick and (len(reduced) > 1 or op.opcode == "prod"):
            kept = [at for at, dim in enumerate(dims) if dim not in reduced and shape_of(value)[at] > 1]
            other = max(kept, key=lambda at: shape_of(value)[at], default=None)
            value = self._with_stick(value, other, f"'{op.opcode}' over these dims keeps its stick", op)
            over_stick = False
        value = self._with_stick(value, self._lane(value), "", op)
        op.op.operands[0] = value
        table = _STICK_FORM if over_stick else _OTHER_FORM
        opcode = table.get(op.opcode, op.opcode)
        op.op.attributes[sdsc.OP] = sdsc.op_attr(opcode, sdsc.constants_of(op.op))
        self._give(op.result, self._reduced_layout(op, value, dims))
        return op.result

    def _reduced_layout(self, op: Structured, value: ir.Value, dims: tuple) -> StickLayout:
        where = {dim: at for at, dim in enumerate(op.maps[-1])}
        view = self._view(value)
        axes = tuple(axis for axis in view.axes if dims[axis.dim] in where)
        lane = where.get(dims[view.lane]) if view.lane is not None else None
        kept = [where.get(dim) for dim in dims]
        template = BufferView(
            view.shape, view.dtype, axes, view.lane if lane is not None else None, view.elements_per_stick
        )
        renamed = template.rename(kept, len(where), shape_of(op.result))
        return keep_order(shape_of(op.result), element_of(op.result), lane, renamed)

    def _matmul(self, op: Structured) -> ir.Value:
        ways = [way for way in (_Orientation.of(op, 0, 1), _Orientation.of(op, 1, 0)) if way is not None]
        if not ways:
            raise fail(
                op.op,
                "batchmatmul takes one contracted dim, at most 2 row and 2 batch dims and one column dim",
            )
        way = min(ways, key=lambda way: self._matmul_cost(op, way))
        rows, columns = op.inputs[way.first], op.inputs[way.second]
        left = self._with_stick(
            rows, way.rows_stick, "matmul: input 1 has the contracted dim in the stick", op
        )
        right = self._with_stick(
            columns, way.columns_stick, "matmul: input 2 has its columns in the stick", op
        )
        right = self._padded(right, way.contracted_at, self._view(right).elements_per_stick)
        if way.first == 0:
            op.op.operands[0], op.op.operands[1] = left, right
            result = op.result
        else:
            result = device_op(
                "batchmatmul",
                [left, right],
                [op.maps[1], op.maps[0]],
                op.extents,
                element_of(op.result),
                location=op.op.location,
                reduced=op.reduced,
                result_map=op.maps[-1],
            )
            sdsc.inherit(maker_of(result), op.op)
            op.result.replace_all_uses_with(result)
        batch = sum(1 for dim in op.maps[-1] if dim in op.maps[0] and dim in op.maps[1])
        lane = op.maps[-1].index(way.column)
        self._give(result, batch_outermost(shape_of(result), element_of(result), lane, batch))
        if way.first == 1:
            op.op.erase()
        return result

    def _matmul_cost(self, op: Structured, way: _Orientation) -> int:
        total = 0
        for index, wanted in ((way.first, way.rows_stick), (way.second, way.columns_stick)):
            value = op.inputs[index]
            if value not in self.free and self._lane(value) != wanted:
                total += math.prod(shape_of(value))
        return total

    # -- views and insertions -------------------------------------------------------------------------

    def _view_op(self, op: ir.Operation) -> None:
        source = self._with_room_for_steps(op)
        try:
            self.views[op.results[0]] = view_of(op, self._view(source))
            return
        except ViewError as error:
            reason = str(error)
        shape = shape_of(source)
        others = sorted((dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -shape[dim])
        for dim in (*others, None):
            trial = BufferView.of(_with_stick(source, dim))
            try:
                view_of(op, trial)
            except ViewError:
                continue
            moved = self._converted(source, dim, f"a view needs another stick: {reason}")
            if self.layouts[moved] != _with_stick(source, dim):
                moved = self._unpadded(moved)
            op.operands[0] = moved
            source = self._with_room_for_steps(op)
            self.views[op.results[0]] = view_of(op, self._view(source))
            return
        raise fail(op, f"this view has no device form: {reason}")

    def _with_room_for_steps(self, op: ir.Operation) -> ir.Value:
        """The source of a view; a slice with steps needs room for a whole number of them."""
        if op.name == "tensor.extract_slice":
            for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
                if step != 1 and dim != self._lane(op.operands[0]):
                    op.operands[0] = self._padded(op.operands[0], dim, step)
        return op.operands[0]

    def _insert(self, op: ir.Operation) -> None:
        source, whole = op.operands[0], op.operands[1]
        layout = self.insertions.whole(op)
        if maker_of(whole).name == "tensor.empty":
            self._give(whole, layout)  # each chain gets an empty tensor of its own
        elif maker_of(whole).name != "tensor.insert_slice" and (
            self.layouts.get(whole) != layout or _is_shared(whole)
        ):
            op.operands[1] = self._copied_as(whole, layout)
        wanted = self.insertions.part(op)
        # A part is written after the whole: if that is copied only here, the part must be too.
        if self.layouts.get(source) != wanted or op.operands[1] != whole or _is_shared(source):
            op.operands[0] = self._copied_as(source, wanted)
        self.layouts[op.results[0]] = layout
        self.views[op.results[0]] = BufferView.of(layout)

    def _copied_as(self, value: ir.Value, wanted: StickLayout) -> ir.Value:
        """A copy in exactly this layout: a restickify leaves room that a place among others has not."""
        if self._view(value).lane != BufferView.of(wanted).lane:
            value = self._restickify(value, wanted, "the buffer it is put into has another stick")
        made = sdsc.clone(value, ir.Location.current)
        self._give(made, wanted)
        return made

    def _place_in_chain(self, value: ir.Value) -> None:
        """Gives a value that is put into a larger buffer the layout of its place there, if it can have it."""
        chain = self.insertions.of(value)
        if chain is None:
            return
        wanted = self.insertions.wanted(value, chain)
        if self.layouts[value].stick_dim == wanted.stick_dim:
            self._give(value, wanted)


@dataclass(frozen=True)
class _Orientation:
    """A matmul with ``first`` as input 1 (rows, stick on the contracted dim), ``second`` as input 2."""

    first: int
    second: int
    rows_stick: int
    columns_stick: int
    contracted_at: int
    column: int

    @classmethod
    def of(cls, op: Structured, first: int, second: int) -> _Orientation | None:
        rows, columns, contracted = op.maps[first], op.maps[second], op.reduced[0]
        own_rows = [dim for dim in rows if dim not in columns]
        own_columns = [dim for dim in columns if dim not in rows and dim is not None]
        batch = [dim for dim in rows if dim in columns and dim != contracted]
        if len(own_columns) != 1 or len(own_rows) > 2 or len(batch) > 2:
            return None
        column = own_columns[0]
        return cls(
            first, second, rows.index(contracted), columns.index(column), columns.index(contracted), column
        )


def _default(value: ir.Value) -> StickLayout:
    return StickLayout.for_tensor(shape_of(value), element_of(value))


def _with_stick(value: ir.Value, dim: int | None) -> StickLayout:
    """Default order of the other dims, ``dim`` in the stick (None: sparse)."""
    rank = len(shape_of(value))
    others = [other for other in range(rank) if other != dim]
    return StickLayout.for_tensor(shape_of(value), element_of(value), [*others, -1 if dim is None else dim])


def _plain(view: BufferView) -> StickLayout:
    """A dense layout with the stick, and if it can the order, of a view."""
    return keep_order(view.shape, view.dtype, view.lane, view if view.why_not_plain() is None else None)


def _is_shared(value: ir.Value) -> bool:
    """Whether a value has a second reader: equal fills of two buffers are one op after CSE."""
    return sum(1 for _ in value.uses) > 1

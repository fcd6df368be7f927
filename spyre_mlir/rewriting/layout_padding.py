"""Room for whole sticks: what the layouts of operations and conversions need beyond the tensor's own shape."""

from __future__ import annotations

from collections.abc import Callable

from spyre_mlir.analysis.layout_views import Views
from spyre_mlir.analysis.loops import LOOP, ancestor_in, block_of, nested_ops
from spyre_mlir.analysis.view_ops import VIEWS, root_dim
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import defining_op, shape_of, structured
from spyre_mlir.layout import BufferView, StickLayout, ViewError
from spyre_mlir.layout.orders import keep_order
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.stick_layout import elements_per_stick, is_convertible
from spyre_mlir.layout_search.op_layouts import OpLayout
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import RemarkEmitter
from spyre_mlir.target.device import device


def make_room(
    owner: RemarkEmitter,
    func: ir.Operation,
    layouts: dict[ir.Value, StickLayout],
    ways: dict[ir.Value, OpLayout],
    fixed: set[ir.Value],
    views: Views,
) -> None:
    """Pads buffers in ``layouts``, or copies what cannot be padded, in program order.

    Both sides of a conversion hold whole sticks of the other's stick dim; an operand holds whole sticks of a
    dim that another operand has in its stick (``StickAssignment.padded_dims``); a slice with steps has a whole number
    of them. ``fixed`` buffers stay as they are.
    """
    _Rooms(owner, func, layouts, ways, fixed, views).run()


class _Rooms:
    def __init__(
        self,
        owner: RemarkEmitter,
        func: ir.Operation,
        layouts: dict[ir.Value, StickLayout],
        ways: dict[ir.Value, OpLayout],
        fixed: set[ir.Value],
        views: Views,
    ) -> None:
        self.owner = owner
        self.block = func.regions[0].blocks[0]
        self.layouts = layouts
        self.ways = ways
        self.fixed = fixed
        self.views = views

    def run(self) -> None:
        for op in nested_ops(self.block):
            need = self._need(op)
            if need is not None:
                with ir.InsertionPoint(op), op.location:
                    need(op)

    def _need(self, op: ir.Operation) -> Callable[[ir.Operation], None] | None:
        """What makes the room that an op may need; None for most."""
        if op.name == "linalg.generic":
            way = self.ways.get(op.results[0])
            return self._operation if way is not None and way.assignment.padded_dims else None
        if op.name == "tensor.extract_slice":
            return self._steps
        converts = op.name == "stick.restickify" or RESTICKIFY in op.attributes
        return self._conversion if converts or self._is_tiled(op) else None

    def _is_tiled(self, op: ir.Operation) -> bool:
        """Whether an op copies out of pieces, or into them, that are not a whole number of their dim."""
        if op.name != "sdsc.clone":
            return False
        values = (op.operands[0], op.results[0])
        return any(
            view.shape[dim] % piece
            for view in map(self.views.__getitem__, values)
            for dim, piece in pieces(view)
        )

    # -- needs ----------------------------------------------------------------------------------------

    def _steps(self, op: ir.Operation) -> None:
        view = self.views[op.operands[0]]
        for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
            if step != 1 and dim != view.stick_dim:
                op.operands[0] = self._padded(op.operands[0], dim, step, op)

    def _operation(self, op: ir.Operation) -> None:
        way = self.ways[op.results[0]]
        generic = structured(op)
        assert generic is not None
        values = (*generic.inputs, generic.result)
        for original, dim in way.assignment.padded_dims:
            last = original == len(generic.inputs)
            at = original if last else way.assignment.inputs.index(original)
            multiple = max(
                elements_per_stick(device(), value_dtype)
                for value_dtype, stick_dim in zip(
                    (self.views[value].dtype for value in _in_order(values, way)),
                    way.assignment.stick_dims,
                    strict=True,
                )
                if stick_dim == dim
            )
            where = generic.maps[at].index(dim)
            if last:
                self._pad_result(op, where, multiple)
            else:
                op.operands[at] = self._padded(values[at], where, multiple, op)

    def _conversion(self, op: ir.Operation) -> None:
        value, result = op.operands[0], op.results[0]
        source, target = self.views[value], self.views[result]
        for dim, piece in pieces(source):
            self._pad_result(op, dim, piece)
        for dim, piece in pieces(target):
            value = op.operands[0] = self._padded(value, dim, piece, op)
        if source.stick_dim == target.stick_dim:
            return
        try:
            refined([source, target])
        except ViewError:  # the pieces of the view do not fall on the new sticks
            value = self._unpadded(value, op)
        if target.stick_dim is not None:
            value = self._padded(value, target.stick_dim, target.elements_per_stick, op)
        op.operands[0] = value
        if source.stick_dim is not None:
            self._pad_result(op, source.stick_dim, source.elements_per_stick)

    # -- room -----------------------------------------------------------------------------------------

    def _padded(self, value: ir.Value, dim: int, multiple: int, reader: ir.Operation) -> ir.Value:
        """The value with room for whole multiples in a dim that is not its stick; a copy if need be.

        ``reader`` is the op that needs the room.
        """
        if shape_of(value)[dim] % multiple == 0 or shape_of(value)[dim] == 1:
            return value
        root, at = root_dim(value, dim)
        if root is None or root not in self.layouts or not self._can_pad(root, at, multiple):
            value = root = self._unpadded(value, reader)
            at = dim
        self._give(root, self.layouts[root].padded(at, multiple))
        return value

    def _pad_result(self, op: ir.Operation, dim: int, multiple: int) -> None:
        """Gives a result more room; where its place has none, it is made apart and copied there."""
        result = op.results[0]
        if shape_of(result)[dim] % multiple == 0 or shape_of(result)[dim] == 1:
            return
        if self._can_pad(result, dim, multiple):
            self._give(result, self.layouts[result].padded(dim, multiple))
            return
        with ir.InsertionPoint.after(op):
            made = sdsc.clone(result, op.location)
        wanted = self.layouts[result]
        result.replace_all_uses_except(made, defining_op(made))
        self._give(made, wanted)
        self._refresh(made)
        self._give(result, _plain(self.views[result]).padded(dim, multiple))

    def _can_pad(self, root: ir.Value, dim: int, multiple: int) -> bool:
        """Whether a buffer can have more room: no part of another, no gathered pieces, all its views stay views."""
        if root in self.fixed or self._gathers(root, dim):
            return False
        pending = [(root, BufferView.of(self.layouts[root].padded(dim, multiple)))]
        while pending:
            value, view = pending.pop()
            for use in value.uses:
                op = use.owner.operation
                if op.name in ("tensor.insert_slice", LOOP, "scf.yield"):
                    return False
                if op.name == "tensor.extract_slice" and not _has_whole_steps(op, view):
                    return False
                if op.name in VIEWS:
                    try:
                        pending.append((op.results[0], self.views.after(op, view)))
                    except ViewError:
                        return False
        return True

    def _gathers(self, root: ir.Value, dim: int) -> bool:
        """Whether a value is a copy out of pieces that have no room for whole multiples of a dim."""
        op = defining_op(root)
        if op is None or op.name != "sdsc.clone":
            return False
        source = self.views[op.operands[0]]
        has_room = any(own == dim and source.shape[dim] % piece for own, piece in pieces(source))
        return source.why_not_addressable() is not None and not has_room

    def _unpadded(self, value: ir.Value, reader: ir.Operation) -> ir.Value:
        """A copy into a buffer of its own, without the room of the source; outside the loops that it is."""
        if not is_convertible(self.views[value].dtype):
            raise error_at(
                reader, f"its operand {value.type} has no room for whole sticks, and no operation copies it"
            )
        with ir.InsertionPoint(ancestor_in(block_of(value), reader)):
            made = sdsc.clone(value, reader.location)
        self._give(made, _plain(self.views[value]))
        self.owner.remark(
            defining_op(made),
            "copy",
            "its buffer has no room for whole sticks",
            before=0,
            after=2 * self.layouts[made].bytes,
        )
        return made

    def _give(self, value: ir.Value, layout: StickLayout) -> None:
        self.layouts[value] = layout
        self.views[value] = BufferView.of(layout)
        self._refresh(value)

    def _refresh(self, root: ir.Value) -> None:
        """Recomputes the views of a buffer whose layout got more room."""
        for use in root.uses:
            op = use.owner.operation
            if op.name in VIEWS and op.operands[0] == root and op.results[0] in self.views:
                self.views[op.results[0]] = self.views.after(op, self.views[root])
                self._refresh(op.results[0])


def _has_whole_steps(op: ir.Operation, view: BufferView) -> bool:
    """Whether a slice steps over all that lies between two rows of a dim in a whole number of steps.

    That is the room of the dim, which may be more than its size: a design has gaps in whole steps only.
    """
    for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
        own = next((axis.stride for axis in view.axes if axis.dim == dim), None)
        if step == 1 or dim == view.stick_dim or own is None:
            continue
        outer = min((axis.stride for axis in view.axes if axis.stride > own), default=0)
        if view.shape[dim] % step == 0 and outer % (own * step):
            return False
    return True


def _in_order(values: tuple[ir.Value, ...], way: OpLayout) -> list[ir.Value]:
    """Operands in the original order, as ``StickAssignment.stick_dims`` counts them."""
    *inputs, result = values
    return [*(inputs[way.assignment.inputs.index(at)] for at in range(len(inputs))), result]


def _plain(view: BufferView) -> StickLayout:
    """A dense layout with the stick, and if it can the order, of a view."""
    return keep_order(
        device(), view.shape, view.dtype, view.stick_dim, view if view.why_not_addressable() is None else None
    )

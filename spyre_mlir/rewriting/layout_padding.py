# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Padding of layouts to whole sticks, where operations and conversions need more than the tensor's own shape."""

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


def pad_layouts(
    owner: RemarkEmitter,
    func: ir.Operation,
    layouts: dict[ir.Value, StickLayout],
    op_layouts: dict[ir.Value, OpLayout],
    fixed: set[ir.Value],
    views: Views,
) -> None:
    """Pad buffers in ``layouts``, or copy those that cannot be padded, in program order.

    Both sides of a conversion hold whole sticks of the other's stick dim; an operand holds whole sticks of a
    dim that another operand has in its stick (``StickAssignment.padded_dims``); a slice with steps has a whole number
    of them. ``fixed`` buffers stay as they are.
    """
    _Padding(owner, func, layouts, op_layouts, fixed, views).run()


class _Padding:
    """The padding of the buffers of one function, with the layouts and views chosen so far."""

    def __init__(
        self,
        owner: RemarkEmitter,
        func: ir.Operation,
        layouts: dict[ir.Value, StickLayout],
        op_layouts: dict[ir.Value, OpLayout],
        fixed: set[ir.Value],
        views: Views,
    ) -> None:
        self.owner = owner
        self.block = func.regions[0].blocks[0]
        self.layouts = layouts
        self.op_layouts = op_layouts
        self.fixed = fixed
        self.views = views

    def run(self) -> None:
        for op in nested_ops(self.block):
            pad = self._padding_rule(op)
            if pad is not None:
                with ir.InsertionPoint(op), op.location:
                    pad(op)

    def _padding_rule(self, op: ir.Operation) -> Callable[[ir.Operation], None] | None:
        """The method that pads the buffers of an op; None for most ops."""
        if op.name == "linalg.generic":
            op_layout = self.op_layouts.get(op.results[0])
            return self._operation if op_layout is not None and op_layout.assignment.padded_dims else None
        if op.name == "tensor.extract_slice":
            return self._steps
        converts = op.name == "stick.restickify" or RESTICKIFY in op.attributes
        return self._conversion if converts or self._is_tiled(op) else None

    def _is_tiled(self, op: ir.Operation) -> bool:
        """Return whether an op copies between tiles of a dim whose size is no multiple of the tile."""
        if op.name != "sdsc.clone":
            return False
        values = (op.operands[0], op.results[0])
        return any(
            view.shape[dim] % piece
            for view in map(self.views.__getitem__, values)
            for dim, piece in pieces(view)
        )

    # -- rules ----------------------------------------------------------------------------------------

    def _steps(self, op: ir.Operation) -> None:
        view = self.views[op.operands[0]]
        for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
            if step != 1 and dim != view.stick_dim:
                op.operands[0] = self._padded(op.operands[0], dim, step, op)

    def _operation(self, op: ir.Operation) -> None:
        op_layout = self.op_layouts[op.results[0]]
        generic = structured(op)
        assert generic is not None
        values = (*generic.inputs, generic.result)
        for original, dim in op_layout.assignment.padded_dims:
            last = original == len(generic.inputs)
            operand = original if last else op_layout.assignment.inputs.index(original)
            multiple = max(
                elements_per_stick(view.target, view.dtype)
                for view, stick_dim in zip(
                    (self.views[value] for value in _in_order(values, op_layout)),
                    op_layout.assignment.stick_dims,
                    strict=True,
                )
                if stick_dim == dim
            )
            where = generic.maps[operand].index(dim)
            if last:
                self._pad_result(op, where, multiple)
            else:
                op.operands[operand] = self._padded(values[operand], where, multiple, op)

    def _conversion(self, op: ir.Operation) -> None:
        value, result = op.operands[0], op.results[0]
        source, target = self.views[value], self.views[result]
        # The tiles of each side pad the other: a copy moves whole tiles.
        for dim, piece in pieces(source):
            self._pad_result(op, dim, piece)
        for dim, piece in pieces(target):
            value = op.operands[0] = self._padded(value, dim, piece, op)
        if source.stick_dim == target.stick_dim:
            return
        try:
            refined([source, target])
        except ViewError:  # the pieces of the view do not fall on the new sticks
            value = self._copied(value, op)
        if target.stick_dim is not None:
            value = self._padded(value, target.stick_dim, target.elements_per_stick, op)
        op.operands[0] = value
        if source.stick_dim is not None:
            self._pad_result(op, source.stick_dim, source.elements_per_stick)

    # -- buffers -----------------------------------------------------------------------------------------

    def _padded(self, value: ir.Value, dim: int, multiple: int, reader: ir.Operation) -> ir.Value:
        """The value with a dim outside of its stick padded to whole multiples; a copy if need be.

        ``reader`` is the op that needs the padding.
        """
        if shape_of(value)[dim] % multiple == 0 or shape_of(value)[dim] == 1:
            return value
        root, source_dim = root_dim(value, dim)
        if root is None or root not in self.layouts or not self._can_pad(root, source_dim, multiple):
            value = root = self._copied(value, reader)
            source_dim = dim
        self._set_layout(root, self.layouts[root].padded(source_dim, multiple))
        return value

    def _pad_result(self, op: ir.Operation, dim: int, multiple: int) -> None:
        """Pad a result; where its buffer cannot be padded, it is computed in another one and copied."""
        result = op.results[0]
        if shape_of(result)[dim] % multiple == 0 or shape_of(result)[dim] == 1:
            return
        if self._can_pad(result, dim, multiple):
            self._set_layout(result, self.layouts[result].padded(dim, multiple))
            return
        with ir.InsertionPoint.after(op):
            copy = sdsc.clone(result, op.location)
        layout = self.layouts[result]
        # Readers keep the layout that was chosen for them, now of the copy.
        result.replace_all_uses_except(copy, defining_op(copy))
        self._set_layout(copy, layout)
        self._refresh(copy)
        self._set_layout(result, _dense(self.views[result]).padded(dim, multiple))

    def _can_pad(self, root: ir.Value, dim: int, multiple: int) -> bool:
        """Return whether a buffer can be padded: it is no slice, no copy of tiles, and all its views stay views."""
        if root in self.fixed or self._gathers(root, dim):
            return False
        pending = [(root, BufferView.of(self.layouts[root].padded(dim, multiple)))]
        while pending:
            value, view = pending.pop()
            for use in value.uses:
                op = use.owner.operation
                # Insertions and loops tie the layout to that of other buffers.
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
        """Return whether a value is a copy of a view that is not addressable, whose tiles of a dim are not padded."""
        op = defining_op(root)
        if op is None or op.name != "sdsc.clone":
            return False
        source = self.views[op.operands[0]]
        is_padded = any(tile_dim == dim and source.shape[dim] % piece for tile_dim, piece in pieces(source))
        return source.why_not_addressable() is not None and not is_padded

    def _copied(self, value: ir.Value, reader: ir.Operation) -> ir.Value:
        """A dense copy in a buffer of its own, in the block that defines the source: once, not per iteration."""
        if not is_convertible(self.views[value].dtype):
            raise error_at(
                reader, f"its operand {value.type} has no room for whole sticks, and no operation copies it"
            )
        # In the block of the value: outside of loops around the reader it is copied once.
        with ir.InsertionPoint(ancestor_in(block_of(value), reader)):
            copy = sdsc.clone(value, reader.location)
        self._set_layout(copy, _dense(self.views[value]))
        self.owner.remark(
            defining_op(copy),
            "copy",
            "its buffer has no room for whole sticks",
            before=0,
            after=2 * self.layouts[copy].bytes,
        )
        return copy

    def _set_layout(self, value: ir.Value, layout: StickLayout) -> None:
        self.layouts[value] = layout
        self.views[value] = BufferView.of(layout)
        self._refresh(value)

    def _refresh(self, root: ir.Value) -> None:
        """Recompute the views of a buffer whose layout was padded."""
        for use in root.uses:
            op = use.owner.operation
            if op.name in VIEWS and op.operands[0] == root and op.results[0] in self.views:
                self.views[op.results[0]] = self.views.after(op, self.views[root])
                self._refresh(op.results[0])


def _has_whole_steps(op: ir.Operation, view: BufferView) -> bool:
    """Return whether the padded size of each dim that a slice steps over is a whole number of steps.

    A design has gaps in whole steps only.
    """
    for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
        stride = next((axis.stride for axis in view.axes if axis.dim == dim), None)
        if step == 1 or dim == view.stick_dim or stride is None:
            continue
        outer = min((axis.stride for axis in view.axes if axis.stride > stride), default=0)
        if view.shape[dim] % step == 0 and outer % (stride * step):
            return False
    return True


def _in_order(values: tuple[ir.Value, ...], op_layout: OpLayout) -> list[ir.Value]:
    """Operands in the original order, as ``StickAssignment.stick_dims`` counts them."""
    *inputs, result = values
    return [*(inputs[op_layout.assignment.inputs.index(index)] for index in range(len(inputs))), result]


def _dense(view: BufferView) -> StickLayout:
    """A dense layout with the stick, and if it can the order, of a view."""
    return keep_order(
        view.target,
        view.shape,
        view.dtype,
        view.stick_dim,
        view if view.why_not_addressable() is None else None,
    )

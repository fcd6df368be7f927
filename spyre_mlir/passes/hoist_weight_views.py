# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns views of weights into arguments, so that the host cuts weights into the pieces that the program reads."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.view_ops import VIEWS, step_of
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.indices import SYMBOLIC
from spyre_mlir.dialects.structured import element_of, shape_of, use_empty
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.stick_layout import StickLayout, elements_per_stick
from spyre_mlir.layout.view_transforms import Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import set_function_type


@dataclass(frozen=True)
class HoistWeightViews(Pass):
    """Turn slices and reshapes of weights into separate arguments, which the host's transfer cuts out.

    A view of a tiled tensor may cut its sticks, so that the device would have to move the data in every run.
    The host can transfer any part of a weight ahead of time. Transposes are kept: layouts express them for free.
    From an input the host cuts only views that no layout can express: a last dim whose sticks gather pieces from
    several places, as the patches of an image. If the pieces of other dims do not fall on sticks, the argument gets a
    layout with the last dim in the stick. A weight that is also read in other ways, or in several pieces, becomes
    several arguments (``sdsc.source``); ``sdsc.host_view`` gives the elements of the host array in an argument.

    Before, with ``%w: tensor<512x96xf16>`` a parameter:
        %v = tensor.extract_slice %w[0, 5] [512, 64] [1, 1]
    After:
        %w: tensor<512x64xf16> {sdsc.host_view = {array = [512, 96], offset = 5, strides = [96, 1]}}
    """

    name: ClassVar[str] = "hoist-weight-views"

    def run_on(self, func: ir.Operation) -> None:
        if "arg_attrs" in func.attributes:
            _Hoist(self, func).run()


class _Hoist:
    def __init__(self, owner: HoistWeightViews, func: ir.Operation) -> None:
        self.owner, self.func, self.target = owner, func, target_of(func)
        self.block = func.regions[0].blocks[0]
        self.attrs = [ir.DictAttr(attrs) for attrs in func.attributes["arg_attrs"]]
        self.views: dict[ir.Value, tuple[ir.Value, HostView, bool]] = {}  # root, view, and whether it cuts
        self.cut_arguments: dict[tuple[int, HostView], ir.Value] = {}

    def run(self) -> None:
        for argument, attrs in zip(self.block.arguments, self.attrs, strict=True):
            is_filled_by_host = sdsc.HOST in attrs and ir.StringAttr(attrs[sdsc.HOST].kind).value != "result"
            # The caller's layout or view already determines how the host transfers the argument, and an argument with
            # a run-time size is not a view of an array of fixed size.
            is_whole = sdsc.HOST_VIEW not in attrs and SYMBOLIC not in attrs
            if is_filled_by_host and not stick.has_layout(argument.type) and is_whole:
                self.views[argument] = (argument, HostView.whole(shape_of(argument)), False)
        for op in [op.operation for op in self.block.operations]:
            if op.name in VIEWS and op.operands[0] in self.views:
                self._view(op)
        if not self.cut_arguments:
            return
        # Erased before arguments are rewritten, because a dead view would keep the old weight alive.
        for op in reversed([op.operation for op in self.block.operations]):
            if op.name in VIEWS and use_empty(op.results[0]):
                op.erase()
        for (number, view), value in self.cut_arguments.items():
            self._add_argument(number, view, value)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(self.attrs)
        set_function_type(self.func)

    def _view(self, op: ir.Operation) -> None:
        root, source, cuts = self.views[op.operands[0]]
        step = step_of(op)
        view = source.after(step)
        if view is None:
            return
        result = op.results[0]
        cuts = cuts or not isinstance(step, Transpose)
        self.views[result] = (root, view, cuts)
        # A view that only other views read is composed into those views; windows overlap, so they are read.
        uses = [(use.owner.operation, use.operand_number) for use in result.uses]
        uses = [(op, number) for op, number in uses if op.name not in VIEWS or op.name == "sdsc.windows"]
        if not uses or not self._is_cut(root, view, cuts):
            return
        key = (root.arg_number, view)
        if key not in self.cut_arguments:
            self.cut_arguments[key] = self.block.add_argument(result.type, op.location)
            text = f"the host cuts {list(view.shape)} out of {list(view.array_shape)}"
            self.owner.remark(op, "hoist", text)
        for user, number in uses:
            user.operands[number] = self.cut_arguments[key]

    def _is_cut(self, root: ir.Value, view: HostView, cuts: bool) -> bool:
        if view.in_pieces:
            return view.gathers_sticks(elements_per_stick(self.target, element_of(root)))
        return cuts and ir.StringAttr(self.attrs[root.arg_number][sdsc.HOST].kind).value != "input"

    def _add_argument(self, number: int, view: HostView, value: ir.Value) -> None:
        """Write the attributes of a new argument. A weight without remaining readers is replaced by its first view."""
        root = self.block.arguments[number]
        entries: dict[str, ir.Attribute] = {sdsc.HOST_VIEW: sdsc.host_view_attr(view)}
        if use_empty(root) and sdsc.HOST_VIEW not in self.attrs[number]:
            root.set_type(value.type)
            value.replace_all_uses_with(root)
            self.attrs[number] = _with(self.attrs[number], entries)
            self.block.erase_argument(value.arg_number)
            value = root
        else:
            self.attrs.append(_with(sdsc.again(self.attrs, number), entries))
        element = element_of(value)
        lanes = elements_per_stick(self.target, element)
        if not all(view.falls_on(dim, lanes) for dim in range(len(view.dims))):
            layout = StickLayout.for_tensor(self.target, view.shape, element)
            value.set_type(stick.with_layout(value.type, layout))


def _with(attrs: ir.DictAttr, more: dict[str, ir.Attribute]) -> ir.DictAttr:
    return ir.DictAttr.get({**{entry.name: entry.attr for entry in attrs}, **more})

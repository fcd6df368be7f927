"""Gives every device tensor a stick layout, the cheapest for the whole program; restickifies where rules need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.layout_pins import LayoutPins
from spyre_mlir.analysis.layout_views import Views
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.layout_search.minimum_cost import LayoutError, LayoutPlan, choose
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.rewriting.layout_padding import pad_layouts
from spyre_mlir.rewriting.layout_rewriter import LayoutRewrite
from spyre_mlir.rewriting.layout_types import apply_layouts
from spyre_mlir.timing import scope


@dataclass(frozen=True)
class ChooseLayouts(Pass):
    """Choose the layouts of all tensors of a function at once, so that transfers and conversions cost least.

    Inputs come in the layout of their type; large ones without one in the default, or the cheapest, with a price for
    what the host then does (``argument_layouts=default``: all in the default); parameters and constants in any, ahead
    of time. What the program names (``stick.pin``, ``stick.restickify`` with ``stick.to``) and what a plan file
    pins (``apply-plan``) holds. A reduction
    becomes its stick or non-stick form, the operands of a matmul are swapped where that costs less. The cost, the
    candidates and the search are those of ``spyre_mlir/layout_search/minimum_cost.py``.

    ``stick_outermost`` makes the default order that of the tiled-tensor RFC. ``width`` is that of the beam
    for functions whose choice is too wide to be exact.

    Before: level *device ops*. After: every tensor type has ``#stick.layout``, every conversion is a
    ``stick.restickify``.

        %y = linalg.generic .. : tensor<8x256xf16>
    ->  %y = linalg.generic .. : tensor<8x256xf16, #stick.layout<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>
    """

    name: ClassVar[str] = "choose-layouts"
    stick_outermost: bool = False
    argument_layouts: Literal["price", "default"] = "price"
    width: int = 200

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            self._lay_out(func)

    def _lay_out(self, func: ir.Operation) -> None:
        _separate_fills(func)
        source = LayoutGraph(func, by_price=self.argument_layouts == "price")
        plan = self._choose(source)
        rewrite = LayoutRewrite(self, source, plan)
        rewrite.run()
        # Only after the rewrite: it adds restickifies, whose results need room for whole sticks, too.
        layouts = rewrite.layouts
        pad_layouts(self, func, layouts, rewrite.op_layouts, source.fixed, Views(layouts, source.steps))
        apply_layouts(func, layouts, Views(layouts, source.steps))
        self._report(func, plan)

    @scope("choice")
    def _choose(self, source: LayoutGraph) -> LayoutPlan:
        """Return the cheapest layouts that keep what a plan file pins."""
        pins = LayoutPins(source)
        # A pin becomes a constraint only when a choice breaks it; the next choice may break others.
        while True:
            try:
                plan = choose(source.graph, stick_outermost=self.stick_outermost, width=self.width)
            except LayoutError as error:
                raise pins.error(error) from error
            if not pins.impose(plan):
                return plan

    def _report(self, func: ir.Operation, plan: LayoutPlan) -> None:
        proof = (
            "no other choice costs less"
            if plan.proven
            else f"no choice costs less than {plan.bound / PICOSECONDS:.0f}"
        )
        converted = sum(conversion.cost for decision in plan.decisions for conversion in decision.relayouts)
        self.remark(
            func,
            "layouts",
            f"{len(plan.decisions)} tensors, conversions are {converted / PICOSECONDS:.0f} of the nanoseconds; {proof}",
            before=plan.bound / PICOSECONDS,
            after=plan.cost / PICOSECONDS,
        )


def _separate_fills(func: ir.Operation) -> None:
    """Give each buffer that begins with a fill a fill of its own, since the parts are written over it.

    Fills with one number are one value after CSE. A new one is just before the first part, for the shortest live range.
    """
    filled: set[ir.Operation] = set()
    for op in all_ops(func):
        fill = defining_op(op.operands[1]) if op.name == "tensor.insert_slice" else None
        if fill is None or not _is_fill(fill):
            continue
        # The first buffer may keep the fill; a second one written over it would mix the parts.
        if fill not in filled and all(_is_filled(use) for use in fill.results[0].uses):
            filled.add(fill)
            continue
        part = defining_op(op.operands[0])
        follows = part is not None and part.block == fill.block and fill.is_before_in_block(part)
        with ir.InsertionPoint(part) if part is not None and follows else ir.InsertionPoint.after(fill):
            op.operands[1] = fill.clone().operation.results[0]


def _is_fill(op: ir.Operation) -> bool:
    """Return whether an op writes one number everywhere."""
    return sdsc.opcode_of(op) == "identity" and op.name == "linalg.generic" and shape_of(op.operands[0]) == ()


def _is_filled(use: ir.OpOperand) -> bool:
    """Return whether a use is the buffer of an insertion."""
    return use.owner.operation.name == "tensor.insert_slice" and use.operand_number == 1

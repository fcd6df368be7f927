# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives every device tensor a stick layout, the cheapest for the whole program; restickifies where rules need it."""

from __future__ import annotations

from typing import ClassVar, Literal

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.layout_pins import LayoutPins
from spyre_mlir.analysis.layout_views import Views
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.layout_search.minimum_cost import LayoutError, LayoutPlan, choose
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.rewriting.layout_padding import pad_layouts
from spyre_mlir.rewriting.layout_rewriter import LayoutRewrite, has_arguments_by_price
from spyre_mlir.rewriting.layout_types import apply_layouts
from spyre_mlir.timing import scope


@dataclass(frozen=True)
class ChooseLayouts(EvaluatingPass):
    """Choose the layouts of all tensors of a function at once, so that transfers and conversions cost least.

    Inputs come in the layout of their type; large ones without one in the default, or the cheapest, with a price for
    what the host then does, where the program then takes less time by its timeline, after the rest of the pipeline
    (``argument_layouts=default``: all in the default); parameters and constants in any, ahead of time. What the
    program names (``stick.pin``, ``stick.restickify`` with ``stick.to``) and what a plan file pins (``apply-plan``)
    holds. A reduction becomes its stick or non-stick form, the operands of a matmul are swapped where that costs less.
    The cost, the candidates and the search are those of ``spyre_mlir/layout_search/minimum_cost.py``.

    ``stick_outermost`` makes the default order that of RFC 0047. ``width`` is that of the beam
    for functions whose choice is too wide to be exact; ``layout_choice`` is the name of another search
    (docs/writing-an-algorithm.md).

    Before: level *device ops*. After: every tensor type has ``#stick.layout``, every conversion is a
    ``stick.restickify``.

        %y = linalg.generic .. : tensor<8x256xf16>
    ->  %y = linalg.generic .. : tensor<8x256xf16, #stick.layout<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>
    """

    name: ClassVar[str] = "choose-layouts"
    is_evaluated: ClassVar[bool] = True
    stick_outermost: bool = False
    argument_layouts: Literal["price", "default"] = "price"
    width: int = 200
    layout_choice: str = "elimination"

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place; the cost of conversions alone decides about inputs."""
        for func in functions(module):
            _separate_fills(func)
            self._lay_out(*self._planned(func, by_price=self.argument_layouts == "price"))

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            _separate_fills(func)
            source, plan = self._planned(func, by_price=self.argument_layouts == "price")
            is_other = has_arguments_by_price(source, plan, self.stick_outermost)
            if is_other and self._prefers_default(func, evaluator):
                source, plan = self._planned(func, by_price=False)
            self._lay_out(source, plan)

    def _planned(self, func: ir.Operation, *, by_price: bool) -> tuple[LayoutGraph, LayoutPlan]:
        source = LayoutGraph(func, by_price=by_price)
        return source, self._choose(source)

    def _prefers_default(self, func: ir.Operation, evaluator: Evaluator) -> bool:
        """Return whether a function takes less time with all inputs in the default layout, and say so.

        Conversions are a part of the cost alone: what a layout does to divisions and loads the rest of the pipeline
        tells.
        """
        default, by_price = (self._time(func, evaluator, by_price=by_price) for by_price in (False, True))
        if default is None or (by_price is not None and not default.is_better_than(by_price)):
            return False
        text = f"inputs stay in the default: {default}; the layouts whose conversions cost least: "
        self.remark(func, "argument layouts", text + str(by_price or "not possible"))
        return True

    def _time(self, func: ir.Operation, evaluator: Evaluator, *, by_price: bool) -> ProgramCost | None:
        """Evaluate a copy of a function; None where it has no layouts, or the rest of the pipeline refuses them."""
        module = module_of(func)
        # Remarks about a copy are not those about the program.
        with Remarks().collecting():
            try:
                with problems.collecting(None):
                    self._lay_out(*self._planned(functions(module.operation)[0], by_price=by_price))
            except AlgorithmError:
                raise
            except (CompileError, ViewError):
                return None
        return evaluator.time(module)

    def _lay_out(self, source: LayoutGraph, plan: LayoutPlan) -> None:
        func, rewrite = source.func, LayoutRewrite(self, source, plan)
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
                plan = choose(
                    source.graph,
                    stick_outermost=self.stick_outermost,
                    width=self.width,
                    choice=self.layout_choice,
                )
            except LayoutError as error:
                raise pins.error(error) from error
            if not pins.impose(plan):
                return plan

    def _report(self, func: ir.Operation, plan: LayoutPlan) -> None:
        proof = (
            "no other choice takes less"
            if plan.proven
            else f"no choice takes less than {plan.bound / PICOSECONDS:,.0f} ns"
        )
        converted = sum(conversion.cost for decision in plan.decisions for conversion in decision.relayouts)
        self.remark(
            func,
            "layouts",
            f"{len(plan.decisions)} tensors; conversions between layouts take {converted / PICOSECONDS:,.0f} of "
            f"{plan.cost / PICOSECONDS:,.0f} ns; {proof}",
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

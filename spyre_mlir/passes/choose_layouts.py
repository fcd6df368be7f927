# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assigns each device tensor a stick layout, the cheapest for the whole program, and inserts required restickifies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

from spyre_mlir import problems
from spyre_mlir.analysis import loops
from spyre_mlir.analysis.aliasing import all_ops, argument_attributes, functions
from spyre_mlir.analysis.carried_buffers import why_not_in_place
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import LOOP, ancestor_in, block_of, carried_values, nested_ops
from spyre_mlir.analysis.plan_pins import argument_layouts, layout_value, pins_of, refused
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.analysis.view_ops import VIEWS, place_of, root_dim, step_of
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import (
    DESTINATION,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.layout import BufferView, StickLayout, ViewError
from spyre_mlir.layout.requests import same_order
from spyre_mlir.layout.rules import sentence
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.stick_layout import elements_per_stick, is_convertible, is_restickified
from spyre_mlir.layout.view import keep_order
from spyre_mlir.layout.view_transforms import ViewTransform, applied
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    OpLayout,
    candidate_of,
    image,
    relayout_cost,
)
from spyre_mlir.layout_search.minimum_cost import Decision, LayoutError, LayoutPlan, choose
from spyre_mlir.layout_search.tensor_graph import ArgumentNode, Compute, IterArg, TensorNode, ViewNode
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.plans.plan_file import json_text
from spyre_mlir.records import Statement, dataclass
from spyre_mlir.remarks import WARNING, RemarkEmitter, Remarks
from spyre_mlir.rewriting.outlining import set_function_type
from spyre_mlir.rewriting.tensor_builders import empty_like, retyped
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.timing import scope


class ChosenLayouts(Statement):
    """The layouts of the tensors of a function: costs of conversions and of all accesses, and a lower bound, in ps."""

    tensors: int
    converted: float
    cost: float
    bound: float

    @property
    def detail(self) -> str:
        converted, cost, bound = (
            f"{each / PICOSECONDS:,.0f}" for each in (self.converted, self.cost, self.bound)
        )
        is_proven = self.cost <= self.bound
        proof = "no other choice takes less" if is_proven else f"no choice takes less than {bound} ns"
        return f"{self.tensors} tensors; conversions between layouts take {converted} of {cost} ns; {proof}"


#: Costs of layouts up to which a plan is evaluated, as a multiple of the least cost.
_NEARLY = 1.1


def _orders_of_matmuls(plan: LayoutPlan) -> dict[int, tuple[int, ...]]:
    """Return the order of the operands of each matmul of a plan, by the number of its tensor."""
    assignments = {
        number: decision.state.produced.op_layout.assignment
        for number, decision in enumerate(plan.decisions)
        if decision.state.produced.op_layout is not None
    }
    return {number: each.inputs for number, each in assignments.items() if KINDS[each.opcode] is Kind.MATMUL}


@dataclass(frozen=True)
class ChooseLayouts(EvaluatingPass):
    """Choose the layouts of all tensors of a function at once, so that transfers and conversions cost least.

    Inputs have the layout of their type. A large input without a layout gets the default one, or the cheapest layout,
    including a cost for the host's conversion, if that shortens the timeline of the program after the rest of the
    pipeline (``argument_layouts=default``: always the default). Parameters and constants may have any layout, because
    they are converted ahead of time. Layouts that the program names (``stick.pin``, ``stick.restickify`` with
    ``stick.to``) or a plan file pins (``apply-plan``) are kept. A reduction becomes its stick or non-stick form, and
    the operands of a matmul are swapped if that costs less. Cost, candidates and search are in
    ``spyre_mlir/layout_search/minimum_cost.py``. ``stick_outermost`` selects the order of RFC 0047 as the default.
    ``width`` is the beam width for functions that are too wide for an exact choice; ``layout_choice`` is the name of
    another search (docs/writing-an-algorithm.md).

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
        """Rewrite ``module`` in place; the layouts of inputs are chosen by the cost of conversions alone."""
        for func in functions(module):
            _separate_fills(func)
            self._lay_out(*self._planned(func, by_price=self.argument_layouts == "price"))

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            _separate_fills(func)
            self._lay_out(*self._compared(func, evaluator))

    def _planned(
        self,
        func: ir.Operation,
        *,
        by_price: bool,
        in_lx: bool = True,
        ineligible: Mapping[int, tuple[int, ...]] | None = None,
    ) -> tuple[LayoutGraph, LayoutPlan]:
        source = LayoutGraph(func, by_price=by_price, in_lx=in_lx, ineligible=ineligible)
        return source, self._choose(source)

    def _compared(self, func: ir.Operation, evaluator: Evaluator) -> tuple[LayoutGraph, LayoutPlan]:
        """Return the plan with the shortest timeline after the rest of the pipeline.

        The cost of layouts is only a part of the cost: their effect on divisions and loads is known only then. So the
        plan is compared with the plan for the default layouts of inputs, with the plan for tensors that all pass
        through device memory, if that has other conversions, and with the plan for matmuls with their operands in the
        other order, if that costs nearly as little.
        """
        by_price = self.argument_layouts == "price"
        source, plan = self._planned(func, by_price=by_price)
        others = list[tuple[str, dict[str, Any]]]()
        in_memory: dict[str, Any] = {"by_price": by_price, "in_lx": False}
        if _converted(self._planned(func, **in_memory)[1]) != _converted(plan):
            others.append(("costs of transfers for all tensors", in_memory))
        if has_arguments_by_price(source, plan, self.stick_outermost):
            others.append(("inputs keep the default layout", {"by_price": False}))
        turned: dict[str, Any] = {"by_price": by_price, "ineligible": _orders_of_matmuls(plan)}
        other = _attempted(lambda: self._planned(func, **turned)[1]) if turned["ineligible"] else None
        if other is not None and other.cost <= _NEARLY * plan.cost:
            others.append(("operands of matmuls in the other order", turned))
        costs = [self._time(func, evaluator, **options) for _, options in others]
        if not any(costs):
            return source, plan
        first = least = self._time(func, evaluator, by_price=by_price)
        chosen = None
        for (name, options), cost in zip(others, costs, strict=True):
            if cost is not None and (least is None or cost.is_better_than(least)):
                least, chosen = cost, (name, options)
        if chosen is None:
            return source, plan
        text = f"{chosen[0]}: {least}; with the layouts of least cost: {first or 'not possible'}"
        self.remark(func, "argument layouts", text)
        return self._planned(func, **chosen[1])

    def _time(self, func: ir.Operation, evaluator: Evaluator, **options: Any) -> ProgramCost | None:
        """Evaluate a copy of a function; None if no such layouts exist, or the rest of the pipeline refuses them."""
        module = module_of(func)
        # Remarks about a copy are not remarks about the program.
        with Remarks().collecting(), problems.collecting(None):
            (copy,) = functions(module.operation)
            planned = _attempted(lambda: self._lay_out(*self._planned(copy, **options)))
        return evaluator.time(module) if planned is not None else None

    def _lay_out(self, source: LayoutGraph, plan: LayoutPlan) -> LayoutPlan:
        """Rewrite the function with the layouts of a plan, and return the plan."""
        func, rewrite = source.func, LayoutRewrite(self, source, plan)
        rewrite.run()
        # Only after the rewrite, which adds restickifies: their results must also be padded to whole sticks.
        layouts = rewrite.layouts
        views = Views(layouts, source.steps)
        LayoutPadding(self, func, layouts, rewrite.op_layouts, source.fixed, views).run()
        apply_layouts(func, layouts, Views(layouts, source.steps))
        chosen = ChosenLayouts(len(plan.decisions), _converted(plan), plan.cost, plan.bound)
        self.remark(func, "layouts", chosen, before=plan.bound / PICOSECONDS, after=plan.cost / PICOSECONDS)
        return plan

    @scope("choice")
    def _choose(self, source: LayoutGraph) -> LayoutPlan:
        """Return the cheapest layouts that satisfy the pins of a plan file."""
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


def _converted(plan: LayoutPlan) -> float:
    """Return the picoseconds of all conversions between layouts."""
    return sum(conversion.cost for decision in plan.decisions for conversion in decision.relayouts)


def _attempted(plan: Callable[[], LayoutPlan]) -> LayoutPlan | None:
    """Return a plan; None if its layouts are not possible. Errors of user-defined algorithms are raised."""
    try:
        return plan()
    except AlgorithmError:
        raise
    except (CompileError, ViewError):
        return None


def _separate_fills(func: ir.Operation) -> None:
    """Give each buffer that begins with a fill a separate fill, because the parts overwrite the fill.

    After CSE, equal fills are one value. A new fill is inserted just before the first part, for a short live range.
    """
    filled: set[ir.Operation] = set()
    for op in all_ops(func):
        fill = defining_op(op.operands[1]) if op.name == "tensor.insert_slice" else None
        if fill is None or fill.name != "linalg.generic" or sdsc.opcode_of(fill) != "identity":
            continue
        if shape_of(fill.operands[0]) != ():
            continue  # a copy of a tensor, not a number
        destinations = [
            use.owner.operation.name == "tensor.insert_slice" and use.operand_number == 1
            for use in fill.results[0].uses
        ]
        # The first buffer may keep the fill; a second buffer in the same memory would mix the parts.
        if fill not in filled and all(destinations):
            filled.add(fill)
            continue
        part = defining_op(op.operands[0])
        follows = part is not None and part.block == fill.block and fill.is_before_in_block(part)
        with ir.InsertionPoint(part) if part is not None and follows else ir.InsertionPoint.after(fill):
            op.operands[1] = fill.clone().operation.results[0]


# The layouts that a plan file pins, as constraints on the layout choice.


@dataclass(frozen=True)
class PinnedTensor:
    """A tensor of a graph, its layouts in the plan file (one per copy of an argument), and its defining op."""

    tensor: int
    layouts: tuple[StickLayout, ...]
    op: ir.Operation


class LayoutPins:
    """Adds pins as constraints in rounds, but only pins that the choice would not satisfy anyway.

    Therefore a plan that is applied unchanged does not change any choice, or the order among equal choices.
    """

    def __init__(self, source: LayoutGraph) -> None:
        self.source = source
        self.pinned: dict[int, PinnedTensor] = {}
        self._imposed: set[int] = set()
        arguments = source.func.regions[0].blocks[0].arguments
        for value, attributes in zip(arguments, argument_attributes(source.func), strict=True):
            layouts = argument_layouts(attributes, value.type, source.graph.target)
            if layouts:
                self._add(PinnedTensor(source.tensors[value], layouts, source.func))
        for op in all_ops(source.func):
            layout = pins_of(op).layout if sdsc.PINS in op.attributes else None
            if layout is not None:
                self._add(PinnedTensor(source.tensors[op.results[0]], (layout,), op))

    def _add(self, pin: PinnedTensor) -> None:
        self.pinned[pin.tensor] = pin

    def impose(self, plan: LayoutPlan) -> bool:
        """Add the pins that a choice breaks as constraints; return whether there are new ones."""
        count = len(self._imposed)
        for pin in self.pinned.values():
            node, state = self.source.graph.nodes[pin.tensor], plan.decisions[pin.tensor].state
            # Only a free argument may have several layouts, one for each of its copies.
            layouts = (
                state.base if isinstance(node, ArgumentNode) and node.free else (state.produced.candidate,)
            )
            holds = len(layouts) == len(pin.layouts) and all(
                same_order(candidate.layout, layout)
                for candidate, layout in zip(layouts, pin.layouts, strict=True)
            )
            if not holds and pin.tensor not in self._imposed:
                self._imposed.add(pin.tensor)
                self._impose(pin)
        return len(self._imposed) > count

    def error(self, error: LayoutError) -> CompileError:
        """Return the error for a choice that has no solution under the constraints so far."""
        pinned = self.pinned.get(error.node)
        if pinned is not None and pinned.tensor in self._imposed and pinned.op != self.source.func:
            return refused(pinned.op, f"the layout {json_text(layout_value(pinned.layouts[0]))}", str(error))
        return self.source.error(error)

    def _impose(self, pinned: PinnedTensor) -> None:
        node, layout = self.source.graph.nodes[pinned.tensor], pinned.layouts[0]
        if isinstance(node, ArgumentNode):
            if node.free:
                node.layouts = pinned.layouts
                return
            default = StickLayout.for_tensor(self.source.graph.target, node.shape, node.dtype)
            if node.by_price and same_order(default, layout):
                # Instead of a pin, the argument is fixed to its default layout, with the same conversions.
                node.by_price = False
                return
        self.source.pin(pinned.op, pinned.tensor, layout)


# Writing chosen layouts into the types of a function, and replacing converting clones by restickifies.

_EMPTY = ("tensor.empty", "linalg.fill")


def apply_layouts(func: ir.Operation, layouts: dict[ir.Value, StickLayout], views: Views) -> None:
    """Set the type of every value: ``layouts`` for buffers, ``views`` for views of them.

    Each destination of an op or a loop gets a separate empty tensor, because two ops of one shape may differ in layout.
    """
    _Types(layouts, views).write(func.regions[0].blocks[0])
    set_function_type(func)


@dataclass
class _Types:
    """Writes the types of a block; ``_types`` caches the types built so far, of which a program has few."""

    layouts: dict[ir.Value, StickLayout]
    views: Views
    _types: dict[tuple[ir.Type, StickLayout], ir.Type] = field(default_factory=dict)

    def write(self, block: ir.Block) -> None:
        for argument in block.arguments:
            self._set(argument, self.layouts[argument])
        for op in nested_ops(block):
            with ir.InsertionPoint(op), op.location:
                self._op(op)
        # In reverse, so that a fill is erased before the empty tensor that it fills.
        for op in reversed(nested_ops(block)):
            if op.name in _EMPTY and use_empty(op.results[0]):
                op.erase()

    def _type(self, value: ir.Value, layout: StickLayout) -> ir.Type:
        key = (value.type, layout)
        if key not in self._types:
            self._types[key] = stick.with_layout(value.type, layout)
        return self._types[key]

    def _set(self, value: ir.Value, layout: StickLayout) -> None:
        value.set_type(self._type(value, layout))

    def _op(self, op: ir.Operation) -> None:
        """Write the chosen layout into the types of an op; a clone that changes the stick becomes a restickify."""
        if op.name == LOOP:
            for iter_arg in carried_values(op):
                self._set(iter_arg.argument, self.layouts[iter_arg.argument])
                self._set(iter_arg.result, self.layouts[iter_arg.result])
                _set_destination(op, iter_arg.operand, iter_arg.result.type)
            return
        if op.name in (*_EMPTY, "func.return") or not op.results:
            return
        result = op.results[0]
        if not isinstance(result.type, ir.RankedTensorType):
            return
        if op.name == "tensor.insert_slice":
            _set_destination(op, 1, self._type(result, self.layouts[result]))
        self._set(result, self.views[result].layout if op.name in VIEWS else self.layouts[result])
        if op.name in DESTINATION:
            _set_destination(op, len(op.operands) - 1, result.type)
        if op.name == "arith.constant":
            op.attributes["value"] = retyped(op.attributes["value"], result.type)
        # A clone that changes the stick becomes a restickify.
        if RESTICKIFY in op.attributes:
            restickify = ir.Operation.create("stick.restickify", [result.type], [op.operands[0]])
            reason = ir.StringAttr(op.attributes[RESTICKIFY]).value
            sdsc.record(restickify, "remap", "choose-layouts", reason)
            self.layouts[restickify.result] = self.layouts[result]
            result.replace_all_uses_with(restickify.result)
            op.erase()


def _set_destination(op: ir.Operation, index: int, type_: ir.Type) -> None:
    """Replace an empty or filled destination by a new one of the given type."""
    old = defining_op(op.operands[index])
    if old is None or old.name not in _EMPTY:
        return
    empty = ir.Operation.create("tensor.empty", results=[type_]).result
    if old.name == "linalg.fill":
        fill = old.clone().operation
        fill.operands[1] = empty
        fill.results[0].set_type(type_)
        empty = fill.results[0]
    op.operands[index] = empty


@dataclass
class LayoutPadding:
    """Padding of the buffers of one function in ``layouts``, or copies of buffers that cannot be padded.

    Each side of a conversion is padded to whole sticks of the other side's stick dim. An operand is padded to whole
    sticks of a dim that is the stick dim of another operand (``StickAssignment.padded_dims``). The source of a slice
    with steps is padded to a whole number of steps. ``fixed`` buffers are not changed.

    Operations between padded buffers fill the padding (``Space.granules``), if all their buffers have it: so their
    other buffers are padded as well, if all can be.
    """

    owner: RemarkEmitter
    func: ir.Operation
    layouts: dict[ir.Value, StickLayout]
    op_layouts: dict[ir.Value, OpLayout]
    fixed: set[ir.Value]
    views: Views
    _is_padded: bool = False

    def run(self) -> None:
        for op in all_ops(self.func):
            if op.name == "linalg.generic":
                op_layout = self.op_layouts.get(op.results[0])
                pad = self._operation if op_layout is not None and op_layout.assignment.padded_dims else None
            elif op.name == "tensor.extract_slice":
                pad = self._steps
            else:
                converts = op.name == "stick.restickify" or RESTICKIFY in op.attributes
                if not converts and op.name == "sdsc.clone":
                    # A copy between tiles of a dim whose size is not a multiple of the tile.
                    views = [self.views[value] for value in (op.operands[0], op.results[0])]
                    converts = any(view.shape[dim] % piece for view in views for dim, piece in pieces(view))
                pad = self._conversion if converts else None
            if pad is not None:
                with ir.InsertionPoint(op), op.location:
                    pad(op)
        generics = [op for op in all_ops(self.func) if op.name == "linalg.generic"] if self._is_padded else []
        # Padding spreads from operands to results and back.
        while any([self._spread(op) for op in (*generics, *reversed(generics))]):
            pass

    def _spread(self, op: ir.Operation) -> bool:
        """Pad the buffers of an op to the longest extent of each stick dim, if all can be; return whether any was."""
        generic = structured(op)
        assert generic is not None
        values = (*generic.inputs, generic.result)
        by_dim: dict[int, list[tuple[ir.Value, int]]] = {}
        for value, dims in zip(values, generic.maps, strict=True):
            for position, dim in enumerate(dims):
                if dim is not None and shape_of(value)[position] > 1:
                    by_dim.setdefault(dim, []).append((value, position))
        changed = False
        for places in by_dim.values():
            # Every operand has the dim in its stick.
            if any(position not in self.views[value].stick_dims for value, position in places):
                continue
            extents = [self.views[value].extent(position) for value, position in places]
            longest, sticks = max(extents), target_of(op).stick_bytes
            # An operation fills at most the last stick of the narrowest type, which has one element per byte.
            if longest > -(-shape_of(places[0][0])[places[0][1]] // sticks) * sticks:
                continue
            short = [place for place, extent in zip(places, extents, strict=True) if extent < longest]
            found = [root_dim(value, position) for value, position in short]
            roots = [(root, dim) for root, dim in found if root is not None and root in self.layouts]
            if short and len(roots) == len(short) and all(self._can_pad(*root, longest) for root in roots):
                for root, dim in roots:
                    self._set_layout(root, self.layouts[root].padded(dim, longest))
                changed = True
        return changed

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
        order = op_layout.assignment.inputs
        # The views in the original order of the operands, as in ``StickAssignment.stick_dims``.
        positions = (*(order.index(index) for index in range(len(generic.inputs))), len(generic.inputs))
        for original, dim in op_layout.assignment.padded_dims:
            ordered = [self.views[values[position]] for position in positions]
            last = original == len(generic.inputs)
            operand = original if last else op_layout.assignment.inputs.index(original)
            multiple = max(
                elements_per_stick(view.target, view.dtype)
                for view, stick_dim in zip(ordered, op_layout.assignment.stick_dims, strict=True)
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
        # Each side is padded to the tiles of the other side, because a copy moves whole tiles.
        for dim, piece in pieces(source):
            self._pad_result(op, dim, piece)
        for dim, piece in pieces(target):
            value = op.operands[0] = self._padded(value, dim, piece, op)
        if source.stick_dim == target.stick_dim:
            return
        try:
            refined([source, target])
        except ViewError:  # the pieces of the view are not aligned with the new sticks
            value = self._copied(value, op)
        if target.stick_dim is not None:
            value = self._padded(value, target.stick_dim, target.elements_per_stick, op)
        op.operands[0] = value
        if source.stick_dim is not None:
            self._pad_result(op, source.stick_dim, source.elements_per_stick)

    # -- buffers -----------------------------------------------------------------------------------------

    def _padded(self, value: ir.Value, dim: int, multiple: int, reader: ir.Operation) -> ir.Value:
        """Return the value, or a copy if necessary, with a non-stick dim padded to whole multiples.

        ``reader`` is the op that needs the padding.
        """
        if shape_of(value)[dim] % multiple == 0 or shape_of(value)[dim] == 1:
            return value
        root, source_dim = root_dim(value, dim)
        if root is None or root not in self.layouts or not self._can_pad(root, source_dim, multiple):
            value = root = self._copied(value, reader)
            source_dim = dim
        self._set_layout(root, self.layouts[root].padded(source_dim, multiple))
        self._is_padded = True
        return value

    def _pad_result(self, op: ir.Operation, dim: int, multiple: int) -> None:
        """Pad a result. If its buffer cannot be padded, the result is computed in another buffer and copied."""
        result = op.results[0]
        if shape_of(result)[dim] % multiple == 0 or shape_of(result)[dim] == 1:
            return
        self._is_padded = True
        if self._can_pad(result, dim, multiple):
            self._set_layout(result, self.layouts[result].padded(dim, multiple))
            return
        with ir.InsertionPoint.after(op):
            copy = sdsc.clone(result, op.location)
        layout = self.layouts[result]
        # Readers read the copy, which has the layout that was chosen for them.
        result.replace_all_uses_except(copy, defining_op(copy))
        self._set_layout(copy, layout)
        self._refresh(copy)
        self._set_layout(result, _dense(self.views[result]).padded(dim, multiple))

    def _can_pad(self, root: ir.Value, dim: int, multiple: int) -> bool:
        """Return whether a buffer can be padded: not if it is fixed or a copy of tiles, or if a view of it breaks."""
        if root in self.fixed:
            return False
        op = defining_op(root)
        if op is not None and op.name == "sdsc.clone":
            source = self.views[op.operands[0]]
            is_padded = any(tile == dim and source.shape[dim] % piece for tile, piece in pieces(source))
            # A copy of an unaddressable view gathers tiles, which along other dims need no padding.
            if source.why_not_addressable() is not None and not is_padded:
                return False
        pending = [(root, BufferView.of(self.layouts[root].padded(dim, multiple)))]
        while pending:
            value, view = pending.pop()
            for use in value.uses:
                op = use.owner.operation
                # Insertions and loops require the same layout as other buffers.
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

    def _copied(self, value: ir.Value, reader: ir.Operation) -> ir.Value:
        """Return a dense copy in a separate buffer, in the block of the source: once, not per iteration."""
        if not is_convertible(self.views[value].dtype):
            raise error_at(
                reader, f"its operand {value.type} is not padded to whole sticks, and no operation copies it"
            )
        # In the block of the value, outside of loops around the reader, so that it is copied once.
        with ir.InsertionPoint(ancestor_in(block_of(value), reader)):
            copy = sdsc.clone(value, reader.location)
        self._set_layout(copy, _dense(self.views[value]))
        self.owner.remark(
            defining_op(copy),
            "copy",
            "its buffer is not padded to whole sticks",
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

    This is required because a design can express gaps only in whole steps.
    """
    for dim, step in enumerate(ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
        stride = next((axis.stride for axis in view.axes if axis.dim == dim), None)
        if step == 1 or dim == view.stick_dim or stride is None:
            continue
        outer = min((axis.stride for axis in view.axes if axis.stride > stride), default=0)
        if view.shape[dim] % step == 0 and outer % (stride * step):
            return False
    return True


def _dense(view: BufferView) -> StickLayout:
    """Return a dense layout with the stick dim and, if possible, the dim order of a view."""
    return keep_order(
        view.target,
        view.shape,
        view.dtype,
        view.stick_dim,
        view if view.why_not_addressable() is None else None,
    )


# Views of values in their buffers while layouts are written, computed on demand from layouts and view ops.


class Views(dict[ir.Value, BufferView]):
    """The view of each value: the whole buffer from ``layouts``, or the view op applied to the view of its source.

    ``steps`` maps results of view ops to transforms that are already known; the dictionary is a cache.
    """

    def __init__(
        self, layouts: Mapping[ir.Value, StickLayout], steps: Mapping[ir.Value, ViewTransform]
    ) -> None:
        super().__init__()
        self._layouts = layouts
        self._steps = steps

    def __missing__(self, value: ir.Value) -> BufferView:
        op = defining_op(value)
        if op is not None and op.name in VIEWS:
            self[value] = self.after(op, self[op.operands[0]])
        else:
            self[value] = BufferView.of(self._layouts[value])
        return self[value]

    def after(self, op: ir.Operation, source: BufferView) -> BufferView:
        """Apply a view op to a view; ``ViewError`` if the result is not a view."""
        return applied(self._steps.get(op.results[0]) or step_of(op), source)


# Rewrite a function to the layouts of a plan: op layouts of operations, relayouts, copies of constants.


def has_arguments_by_price(source: LayoutGraph, plan: LayoutPlan, stick_outermost: bool) -> bool:
    """Return whether a plan gives some input a layout other than the default because it costs less."""
    return any(
        isinstance(node, ArgumentNode)
        and node.by_price
        and decision.state.produced.candidate is not candidate_of(_default(source, node, stick_outermost))
        for node, decision in zip(source.graph.nodes, plan.decisions, strict=True)
    )


def _default(source: LayoutGraph, node: ArgumentNode, stick_outermost: bool) -> StickLayout:
    return StickLayout.for_tensor(source.graph.target, node.shape, node.dtype, None, stick_outermost)


#: Advice to the user for a restickify of numbers that do not have 16 bits.
_REFUSED = (
    "the back end accepts only 16-bit elements and will likely refuse this restickify; compute the tensor in f16, or "
    "give the argument that it is computed from a layout with another dim in the stick"
)


def stick_text(stick_dim: int | None) -> str:
    """Return the stick dim as text for remarks."""
    return "nothing" if stick_dim is None else f"d{stick_dim}"


class LayoutRewrite:
    """One traversal of a function. Results: ``layouts`` of all buffers, and ``op_layouts`` of operations by result.

    ``by_tensor`` has the IR values of each tensor by layout candidate. A conversion is a clone that is created on
    demand, before its first reader.
    """

    def __init__(self, owner: RemarkEmitter, source: LayoutGraph, plan: LayoutPlan) -> None:
        self.owner = owner
        self.source = source
        self.plan = plan
        self.layouts: dict[ir.Value, StickLayout] = {}
        self.by_tensor: list[dict[LayoutCandidate, ir.Value]] = [{} for _ in plan.decisions]
        self.op_layouts: dict[ir.Value, OpLayout] = {}

    def run(self) -> None:
        block = self.source.func.regions[0].blocks[0]
        for argument in list(block.arguments):
            self._source(argument)
        self._visit_all(block)

    # -- arguments and constants ----------------------------------------------------------------------

    def _source(self, value: ir.Value) -> None:
        """Record an argument or constant; each additional layout of a free one is a copy that the host lays out."""
        tensor, node, decision = self.decision(value)
        assert isinstance(node, ArgumentNode)
        if not node.free:
            candidate = decision.state.produced.candidate
            is_outermost = bool(getattr(self.owner, "stick_outermost", False))
            default = _default(self.source, node, is_outermost)
            if node.by_price and candidate is not candidate_of(default):
                self.record(value, candidate)
                order = ", ".join(f"d{dim}" for dim in candidate.order)
                text = f"{node.name} comes with {stick_text(candidate.stick_dim)} in the stick, in the order {order}"
                self.owner.remark(self.source.func, "argument layout", text, after=candidate.bytes)
                return
            self.record(value, candidate, node.pin or default)
            return
        first, *others = decision.state.base
        self.record(value, first)
        for candidate in others:
            op = defining_op(value)
            if op is not None:
                duplicate = op.clone().operation.results[0]
            else:
                # A second argument with the same host array.
                func = self.source.func
                attrs = [ir.DictAttr(attribute) for attribute in func.attributes["arg_attrs"]]
                duplicate = func.regions[0].blocks[0].add_argument(value.type, func.location)
                attrs.append(sdsc.again(attrs, value.arg_number))
                func.attributes["arg_attrs"] = ir.ArrayAttr.get(attrs)
            self.by_tensor[tensor][candidate] = duplicate
            self.layouts[duplicate] = candidate.layout

    # -- loops ----------------------------------------------------------------------------------------

    def _loop(self, op: ir.Operation) -> None:
        """Rewrite a loop: all values of an iter_arg have the same layout, and the body is rewritten once."""
        carried = loops.carried_values(op)
        for iter_arg in carried:
            _, node, decision = self.decision(iter_arg.argument)
            assert isinstance(node, IterArg)
            candidate = decision.state.produced.candidate
            layout = self.layout_of(node, candidate)
            self.record(iter_arg.argument, candidate, layout)
            buffer = self.plan.decisions[node.initial]
            for read in zip(buffer.reads, buffer.in_place, strict=True):
                self.write_destination(op, iter_arg.operand, read, layout)
        self._visit_all(loops.body_block(op))
        end = loops.terminator(loops.body_block(op))
        for iter_arg in carried:
            _, node, decision = self.decision(iter_arg.argument)
            assert isinstance(node, IterArg)
            end.operands[iter_arg.operand - 3] = self.value(node.yielded, decision.reads[1], end)
        arguments = list(loops.body_block(op).arguments)
        # Read the values again, because conversions have replaced yielded values. Two iter_args that are swapped
        # would overwrite each other's buffer without a copy.
        for iter_arg in loops.carried_values(op):
            if iter_arg.yielded in arguments and iter_arg.yielded != iter_arg.argument:
                self._yield_copy(op, iter_arg, "the yielded value is another iter_arg of the loop")
        for iter_arg in carried:
            current = next(other for other in loops.carried_values(op) if other.operand == iter_arg.operand)
            if (why := why_not_in_place(op, current)) is not None:
                self._yield_copy(op, current, why)
            _, _, decision = self.decision(iter_arg.argument)
            self.record(iter_arg.result, decision.state.produced.candidate, self.layouts[iter_arg.argument])

    def _yield_copy(self, op: ir.Operation, iter_arg: loops.CarriedValue, why: str) -> None:
        """Let a loop yield a copy, written at the end of the iteration."""
        end, layout = loops.terminator(loops.body_block(op)), self.layouts[iter_arg.argument]
        with ir.InsertionPoint(end):
            clone = sdsc.clone(iter_arg.yielded, op.location)
        self.layouts[clone] = layout
        end.operands[iter_arg.operand - 3] = clone
        self.owner.remark(maker_of(clone), "copy", why, before=0, after=2 * layout.bytes)

    # -- ops ------------------------------------------------------------------------------------------

    def _visit_all(self, block: ir.Block) -> None:
        for op in [op.operation for op in block.operations]:
            with ir.InsertionPoint(op), op.location:
                self._visit(op)

    def _visit(self, op: ir.Operation) -> None:
        """Insert the copies that the chosen layouts of an op and of its operands require."""
        if op.name == loops.LOOP:
            self._loop(op)
            return
        if op.name in DESTINATION:
            # The destination becomes an empty tensor: insertions determine where the result is written.
            old = defining_op(op.operands[len(op.operands) - 1])
            if old is None or old.name not in ("tensor.empty", "linalg.fill"):
                op.operands[len(op.operands) - 1] = empty_like(op.results[0])
                if old is not None and use_empty(old.results[0]):
                    old.erase()
        if not op.results or op.results[0] not in self.source.tensors:
            return
        if op.name in VIEWS:
            self._view(op)
        elif op.name == "linalg.generic":
            self._compute(op)
        elif op.name in ("sdsc.clone", "stick.restickify"):
            tensor, node, decision = self.decision(op.results[0])
            produced, source = decision.state.produced.candidate, decision.reads[0]
            op.operands[0] = self.value(self.source.tensors[op.operands[0]], source, op)
            self.record(op.results[0], produced, self.layout_of(node, produced))
            if op.name == "stick.restickify":
                del op.attributes[stick.TO]
                self.owner.remark(
                    op, "restickify", "the program requests it", before=0, after=produced.bytes + source.bytes
                )
            elif produced.stick_dim != source.stick_dim:
                self.mark(op, source, produced, produced.bytes + source.bytes, self._reason(tensor, produced))
        elif op.name == "tensor.insert_slice":
            self._insertion(op)
        elif op.name == "stick.pin":
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        elif op.name == "arith.constant":
            self._source(op.results[0])

    def _compute(self, op: ir.Operation) -> None:
        tensor, node, decision = self.decision(op.results[0])
        produced = decision.state.produced
        assert isinstance(node, Compute)
        assert produced.op_layout is not None
        for position, (source, candidate) in enumerate(zip(node.operands, decision.reads, strict=True)):
            op.operands[position] = self.value(source, candidate, op)
        if produced.op_layout.assignment.opcode != node.signature.opcode:
            op.attributes[sdsc.OP] = sdsc.op_attr(produced.op_layout.assignment.opcode, sdsc.constants_of(op))
        result = op.results[0]
        if produced.op_layout.assignment.inputs != tuple(range(len(node.operands))):
            # Rebuild an operation with its inputs swapped, and replace it.
            op_layout = produced.op_layout
            generic = structured(op)
            assert generic is not None
            result = device_op(
                op_layout.assignment.opcode,
                [generic.inputs[operand] for operand in op_layout.assignment.inputs],
                [generic.maps[operand] for operand in op_layout.assignment.inputs],
                generic.extents,
                element_of(generic.result),
                location=op.location,
                reduced=generic.reduced,
                result_map=generic.maps[-1],
            )
            sdsc.inherit(maker_of(result), op)
            op.results[0].replace_all_uses_with(result)
            self.source.tensors[result] = self.source.tensors.pop(op.results[0])
            op.erase()
        self.by_tensor[tensor][produced.candidate] = result
        self.layouts[result] = self.layout_of(node, produced.candidate)
        self.op_layouts[result] = produced.op_layout
        if decision.options > 1:
            opcode, stick = produced.op_layout.assignment.opcode, stick_text(produced.candidate.stick_dim)
            reason = f"'{opcode}' with {stick} in the stick, of {decision.options} choices"
            self.owner.remark(maker_of(result), "layout", reason, after=produced.candidate.bytes)

    def _view(self, op: ir.Operation) -> None:
        """Rewrite a view to the layout that its readers need; clone it if they need several."""
        tensor, node, decision = self.decision(op.results[0])
        assert isinstance(node, ViewNode)
        for base, candidate in zip(decision.state.base, decision.reads, strict=True):
            source = self.value(node.source, candidate, op)
            # The op itself is the view in the first layout; clones of the op are the views in other layouts.
            view = op if not self.by_tensor[tensor] else op.clone().operation
            view.operands[0] = source
            self.by_tensor[tensor][base] = view.results[0]

    # -- destinations of insertions -----------------------------------------------------------------

    def _insertion(self, op: ir.Operation) -> None:
        """Rewrite an insertion: a slice computed in place gets the layout of its region, others are copied there."""
        tensor, node, decision = self.decision(op.results[0])
        produced, chain = decision.state.produced.candidate, self.source.insertions[tensor]
        layout = self.layout_of(node, produced)
        reads = list(zip(decision.reads, decision.in_place, strict=True))
        before = reads[: len(reads) - len(chain)]
        for read in before if op == chain[0] else []:
            self.write_destination(op, 1, read, layout)
        copied = any(not in_place for _, in_place in before)
        candidate, in_place = reads[len(before) + chain.index(op)]
        place = image(place_of(op), produced)
        assert place is not None
        self.write_slice(op, 0, (candidate, in_place and not copied), place.view.layout)
        self.layouts[op.results[0]] = layout
        if op == chain[-1]:
            self.by_tensor[tensor][produced] = op.results[0]

    # -- values of tensors in their layouts -----------------------------------------------------------

    def decision(self, value: ir.Value) -> tuple[int, TensorNode, Decision]:
        """Return the tensor of a value, the node of the tensor in the graph, and the decision about the tensor."""
        tensor = self.source.tensors[value]
        return tensor, self.source.graph.nodes[tensor], self.plan.decisions[tensor]

    def record(self, value: ir.Value, candidate: LayoutCandidate, layout: StickLayout | None = None) -> None:
        """Record a value as its tensor in a candidate; ``layout`` overrides the layout of the candidate."""
        self.by_tensor[self.source.tensors[value]][candidate] = value
        self.layouts[value] = candidate.layout if layout is None else layout

    def layout_of(self, node: TensorNode, candidate: LayoutCandidate) -> StickLayout:
        """Return the layout of a candidate, or the pinned layout that the candidate represents."""
        pinned = node.pin is not None and candidate_of(node.pin) is candidate
        return node.pin if pinned and node.pin is not None else candidate.layout

    def value(self, tensor: int, candidate: LayoutCandidate, reader: ir.Operation) -> ir.Value:
        """Return the value of a tensor in a layout.

        A conversion is inserted in the block that defines its source, before its first reader or the loop around it.
        """
        known = self.by_tensor[tensor]
        if candidate not in known:
            decision = self.plan.decisions[tensor]
            conversion = next(relayout for relayout in decision.relayouts if relayout.target is candidate)
            source = self.value(tensor, conversion.source, reader)
            with ir.InsertionPoint(loops.ancestor_in(loops.block_of(source), reader)):
                why = self._reason(tensor, candidate)
                known[candidate] = self._converted(source, conversion.source, candidate, conversion.cost, why)
        return known[candidate]

    def _converted(
        self, value: ir.Value, source: LayoutCandidate, target: LayoutCandidate, cost: int, why: str
    ) -> ir.Value:
        clone = sdsc.clone(value, ir.Location.current)
        self.layouts[clone] = target.layout
        self.mark(maker_of(clone), source, target, cost, why)
        return clone

    def mark(
        self, op: ir.Operation, source: LayoutCandidate, target: LayoutCandidate, cost: int, why: str
    ) -> None:
        """Mark a clone as a restickify if it changes the stick dim, and emit the remark."""
        kind = "restickify" if source.stick_dim != target.stick_dim else "copy"
        if source.stick_dim != target.stick_dim:
            op.attributes[RESTICKIFY] = ir.StringAttr.get(why)
            if not is_restickified(source.view.dtype):
                self.owner.remark(op, WARNING, f"a restickify of {source.view.dtype}: {_REFUSED}")
        reason = f"stick {stick_text(source.stick_dim)} -> {stick_text(target.stick_dim)}: {why}"
        self.owner.remark(op, kind, reason, before=0, after=round(cost / PICOSECONDS))

    def write_destination(
        self, op: ir.Operation, operand: int, read: tuple[LayoutCandidate, bool], layout: StickLayout
    ) -> None:
        """Write the initial value of a destination; if the stick dims differ, the relayout itself writes it."""
        candidate, in_place = read
        if in_place or candidate.stick_dim == BufferView.of(layout).stick_dim:
            self.write_slice(op, operand, read, layout)
            return
        value = self.value(self.source.tensors[op.operands[operand]], candidate, op)
        target, why = candidate_of(layout), "its destination has another stick"
        op.operands[operand] = self._converted(
            value, candidate, target, relayout_cost(candidate, target), why
        )
        self.layouts[op.operands[operand]] = layout

    def write_slice(
        self, op: ir.Operation, operand: int, read: tuple[LayoutCandidate, bool], layout: StickLayout
    ) -> None:
        """Write an operand in the layout of its buffer, with a copy if it is not computed in place."""
        candidate, in_place = read
        value = self.value(self.source.tensors[op.operands[operand]], candidate, op)
        if in_place:
            self.layouts[value] = layout
            return
        stick_dim = BufferView.of(layout).stick_dim
        if candidate.stick_dim != stick_dim:
            # Convert through a dense buffer: a slice may not consist of whole sticks of another stick dim.
            order = [dim for dim in range(len(layout.shape)) if dim != stick_dim]
            order.append(-1 if stick_dim is None else stick_dim)
            target = candidate_of(StickLayout.for_tensor(layout.target, layout.shape, layout.dtype, order))
            why = "the buffer that it is inserted into has another stick"
            value = self._converted(value, candidate, target, candidate.bytes + target.bytes, why)
        clone = sdsc.clone(value, ir.Location.current)
        self.layouts[clone] = layout
        op.operands[operand] = clone

    # -- reasons of relayouts: the first reader that does not accept the produced layout --------------

    # Computed on demand, not in __init__: most plans do not have a relayout, so no remark needs a reason.
    @functools.cached_property
    def readers(self) -> list[list[tuple[int, int]]]:
        """The readers of each tensor."""
        return self.source.graph.readers()

    def _reason(self, tensor: int, target: LayoutCandidate) -> str:
        """Return why a reader needs ``tensor`` in layout ``target``: a stick rule or a view, as a clause."""
        return (
            self._view_reason(tensor, target)
            or self._operation_reason(tensor, target)
            or "it is inserted into a buffer with this stick"
        )

    def _view_reason(self, tensor: int, target: LayoutCandidate) -> str | None:
        """Return the reason if a reader needs a view that the produced layout does not have; else None."""
        produced = self.plan.decisions[tensor].state.base[0]
        for reader, _ in self.readers[tensor]:
            node = self.source.graph.nodes[reader]
            if isinstance(node, ViewNode) and target in self.plan.decisions[reader].reads:
                try:
                    node.step.apply(produced.view)
                except ViewError as error:
                    return f"with {stick_text(produced.stick_dim)} in the stick it has no such view: {error}"
        return None

    def _operation_reason(self, tensor: int, target: LayoutCandidate) -> str | None:
        """Return the rule of an operation that reads the target, directly or through views; else None."""
        for reader, position in self.readers[tensor]:
            node, decision = self.source.graph.nodes[reader], self.plan.decisions[reader]
            if isinstance(node, Compute) and decision.reads[position] is target:
                opcode = node.signature.opcode
                stick_dim = stick_text(target.stick_dim)
                return f"'{opcode}' reads it with {stick_dim} in the stick, for {sentence(opcode)}"
            if isinstance(node, ViewNode) and target in decision.reads:
                base = decision.state.base[decision.reads.index(target)]
                reason = self._operation_reason(reader, base)
                if reason is not None:
                    return reason
        return None

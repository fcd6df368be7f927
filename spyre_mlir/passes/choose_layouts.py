# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assigns each device tensor a stick layout, the cheapest for the whole program, and inserts required restickifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import ClassVar, Literal

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import all_ops, argument_attributes, functions
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import LOOP, ancestor_in, block_of, carried_values, nested_ops
from spyre_mlir.analysis.plan_pins import argument_layouts, layout_value, pins_of, refused
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.analysis.view_ops import VIEWS, root_dim, step_of
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import DESTINATION, defining_op, shape_of, structured, use_empty
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.layout import BufferView, StickLayout, ViewError
from spyre_mlir.layout.requests import same_order
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.stick_layout import elements_per_stick, is_convertible
from spyre_mlir.layout.view import keep_order
from spyre_mlir.layout.view_transforms import ViewTransform, applied
from spyre_mlir.layout_search.layout_candidates import OpLayout
from spyre_mlir.layout_search.minimum_cost import LayoutError, LayoutPlan, choose
from spyre_mlir.layout_search.tensor_graph import ArgumentNode
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.passes.scratchpad_planning import replace_function
from spyre_mlir.plans.plan_file import json_text
from spyre_mlir.records import Statement, dataclass
from spyre_mlir.remarks import RemarkEmitter, Remarks, add
from spyre_mlir.rewriting.layout_rewriter import LayoutRewrite, has_arguments_by_price
from spyre_mlir.rewriting.outlining import set_function_type
from spyre_mlir.rewriting.tensor_builders import retyped
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
            source, plan = self._planned(func, by_price=self.argument_layouts == "price")
            is_other = has_arguments_by_price(source, plan, self.stick_outermost)
            default = self._default_time(func, evaluator) if is_other else None
            if default is None:
                self._lay_out(source, plan)
            else:
                self._lay_out_compared(source, plan, default, evaluator)

    def _planned(self, func: ir.Operation, *, by_price: bool) -> tuple[LayoutGraph, LayoutPlan]:
        source = LayoutGraph(func, by_price=by_price)
        return source, self._choose(source)

    def _lay_out_compared(
        self, source: LayoutGraph, plan: LayoutPlan, default: ProgramCost, evaluator: Evaluator
    ) -> None:
        """Lay out a function by a plan, or with all inputs in the default layout if that takes less time.

        The cost of conversions is only a part of the cost: the effect of a layout on divisions and loads is known only
        after the rest of the pipeline.
        """
        func, unchanged, remarks = source.func, module_of(source.func), Remarks()
        with remarks.collecting():
            is_possible = _is_possible(lambda: self._lay_out(source, plan))
        by_price = evaluator.time(module_of(func)) if is_possible else None
        if by_price is not None and not default.is_better_than(by_price):
            for remark in remarks:
                add(remark)
            return
        text = f"inputs keep the default layout: {default}; with the layouts of least conversion cost: "
        self.remark(func, "argument layouts", text + str(by_price or "not possible"))
        self._lay_out(*self._planned(functions(unchanged.operation)[0], by_price=False))
        replace_function(func, unchanged)

    def _default_time(self, func: ir.Operation, evaluator: Evaluator) -> ProgramCost | None:
        """Evaluate a copy of a function with all inputs in the default layout.

        Return None if no such layouts exist, or if the rest of the pipeline refuses them.
        """
        module = module_of(func)
        # Remarks about a copy are not remarks about the program.
        with Remarks().collecting(), problems.collecting(None):
            (copy,) = functions(module.operation)
            is_possible = _is_possible(lambda: self._lay_out(*self._planned(copy, by_price=False)))
        return evaluator.time(module) if is_possible else None

    def _lay_out(self, source: LayoutGraph, plan: LayoutPlan) -> None:
        func, rewrite = source.func, LayoutRewrite(self, source, plan)
        rewrite.run()
        # Only after the rewrite, which adds restickifies: their results must also be padded to whole sticks.
        layouts = rewrite.layouts
        views = Views(layouts, source.steps)
        LayoutPadding(self, func, layouts, rewrite.op_layouts, source.fixed, views).run()
        apply_layouts(func, layouts, Views(layouts, source.steps))
        self._report(func, plan)

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

    def _report(self, func: ir.Operation, plan: LayoutPlan) -> None:
        converted = sum(conversion.cost for decision in plan.decisions for conversion in decision.relayouts)
        chosen = ChosenLayouts(len(plan.decisions), converted, plan.cost, plan.bound)
        self.remark(func, "layouts", chosen, before=plan.bound / PICOSECONDS, after=plan.cost / PICOSECONDS)


def _is_possible(lay_out: Callable[[], None]) -> bool:
    """Call a function and return whether its layouts are possible; errors of user-defined algorithms are raised."""
    try:
        lay_out()
    except AlgorithmError:
        raise
    except (CompileError, ViewError):
        return False
    return True


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
    """

    owner: RemarkEmitter
    func: ir.Operation
    layouts: dict[ir.Value, StickLayout]
    op_layouts: dict[ir.Value, OpLayout]
    fixed: set[ir.Value]
    views: Views

    def run(self) -> None:
        for op in all_ops(self.func):
            pad = self._padding_rule(op)
            if pad is not None:
                with ir.InsertionPoint(op), op.location:
                    pad(op)

    def _padding_rule(self, op: ir.Operation) -> Callable[[ir.Operation], None] | None:
        """Return the method that pads the buffers of an op; None for most ops."""
        if op.name == "linalg.generic":
            op_layout = self.op_layouts.get(op.results[0])
            return self._operation if op_layout is not None and op_layout.assignment.padded_dims else None
        if op.name == "tensor.extract_slice":
            return self._steps
        converts = op.name == "stick.restickify" or RESTICKIFY in op.attributes
        if not converts and op.name == "sdsc.clone":
            # A copy between tiles of a dim whose size is not a multiple of the tile.
            views = [self.views[value] for value in (op.operands[0], op.results[0])]
            converts = any(view.shape[dim] % piece for view in views for dim, piece in pieces(view))
        return self._conversion if converts else None

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
        return value

    def _pad_result(self, op: ir.Operation, dim: int, multiple: int) -> None:
        """Pad a result. If its buffer cannot be padded, the result is computed in another buffer and copied."""
        result = op.results[0]
        if shape_of(result)[dim] % multiple == 0 or shape_of(result)[dim] == 1:
            return
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

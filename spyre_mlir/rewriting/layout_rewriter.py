"""Rewrites a function to the layouts of a plan: forms of operations, conversions, copies ahead of time."""

from __future__ import annotations

from spyre_mlir.analysis.carried_buffers import why_not_in_place
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.loops import (
    LOOP,
    CarriedValue,
    ancestor_in,
    block_of,
    body_block,
    carried_values,
    terminator,
)
from spyre_mlir.analysis.view_ops import VIEWS, place_of
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import (
    DESTINATION,
    defining_op,
    device_op,
    element_of,
    maker_of,
    structured,
)
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate, candidate_of, image, relayout_cost
from spyre_mlir.layout_search.minimum_cost import Decision, LayoutPlan
from spyre_mlir.layout_search.op_layouts import OpLayout
from spyre_mlir.layout_search.reasons import Reasons
from spyre_mlir.layout_search.tensor_graph import ArgumentNode, Compute, IterArg, TensorNode, ViewNode
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import RemarkEmitter
from spyre_mlir.target.device import device


class LayoutRewrite:
    """Goes through a function once. ``layouts`` are those of all buffers, ``ways`` those of operations, by result."""

    def __init__(self, owner: RemarkEmitter, source: LayoutGraph, plan: LayoutPlan) -> None:
        self.owner = owner
        self.source = source
        self.plan = plan
        self.layouts: dict[ir.Value, StickLayout] = {}
        self.ways: dict[ir.Value, OpLayout] = {}
        self._held: list[dict[LayoutCandidate, ir.Value]] = [{} for _ in plan.decisions]
        self._reasons = Reasons(source.graph, plan)

    def run(self) -> None:
        block = self.source.func.regions[0].blocks[0]
        for argument in list(block.arguments):
            self._given(argument)
        self._visit_all(block)

    # -- values ---------------------------------------------------------------------------------------

    def _decision(self, value: ir.Value) -> tuple[int, TensorNode, Decision]:
        tensor = self.source.tensors[value]
        return tensor, self.source.graph.nodes[tensor], self.plan.decisions[tensor]

    def _hold(self, value: ir.Value, held: LayoutCandidate, layout: StickLayout | None = None) -> None:
        self._held[self.source.tensors[value]][held] = value
        self.layouts[value] = held.layout if layout is None else layout

    def _given(self, value: ir.Value) -> None:
        """An argument or constant; each further layout of one that is free is a copy made ahead of time."""
        tensor, node, decision = self._decision(value)
        assert isinstance(node, ArgumentNode)
        if not node.free:
            held = decision.state.produced.candidate
            self._hold(
                value,
                held,
                node.pin or StickLayout.for_tensor(device(), node.shape, node.dtype, None, self._outermost),
            )
            return
        first, *others = decision.state.base
        self._hold(value, first)
        for held in others:
            self._held[tensor][held] = self._again(value)
            self.layouts[self._held[tensor][held]] = held.layout

    @property
    def _outermost(self) -> bool:
        return bool(getattr(self.owner, "stick_outermost", False))

    def _again(self, value: ir.Value) -> ir.Value:
        """The same weight or constant once more, for another layout."""
        op = defining_op(value)
        if op is not None:
            return op.clone().operation.results[0]
        return self.source.second_argument(value)

    def _value(self, tensor: int, held: LayoutCandidate, reader: ir.Operation) -> ir.Value:
        """The value of a tensor in a layout.

        A conversion is made before its first reader, or before the loop around that in which the tensor is not.
        """
        known = self._held[tensor]
        if held not in known:
            decision = self.plan.decisions[tensor]
            conversion = next(each for each in decision.relayouts if each.target is held)
            source = self._value(tensor, conversion.source, reader)
            with ir.InsertionPoint(ancestor_in(block_of(source), reader)):
                why = self._reasons.of(tensor, held)
                known[held] = self._converted(source, conversion.source, held, conversion.cost, why)
        return known[held]

    def _converted(
        self, value: ir.Value, source: LayoutCandidate, target: LayoutCandidate, cost: int, why: str
    ) -> ir.Value:
        made = sdsc.clone(value, ir.Location.current)
        self.layouts[made] = target.layout
        self._mark(maker_of(made), source, target, cost, why)
        return made

    def _mark(
        self, op: ir.Operation, source: LayoutCandidate, target: LayoutCandidate, cost: int, why: str
    ) -> None:
        """Makes a clone a conversion, if it changes the stick."""
        kind = "restickify" if source.stick_dim != target.stick_dim else "copy"
        if source.stick_dim != target.stick_dim:
            op.attributes[RESTICKIFY] = ir.StringAttr.get(why)
        reason = f"stick {_dim(source.stick_dim)} -> {_dim(target.stick_dim)}: {why}"
        self.owner.remark(op, kind, reason, before=0, after=round(cost / PICOSECONDS))

    # -- loops ----------------------------------------------------------------------------------------

    def _loop(self, op: ir.Operation) -> None:
        """What a loop carries in one layout at all its places; its body once."""
        carried = carried_values(op)
        for each in carried:
            self._enter(op, each)
        self._visit_all(body_block(op))
        end = terminator(body_block(op))
        for each in carried:
            _, node, decision = self._decision(each.argument)
            assert isinstance(node, IterArg)
            end.operands[each.operand - 3] = self._value(node.yielded, decision.reads[1], end)
        arguments = list(body_block(op).arguments)
        for each in carried_values(op):
            if each.yielded in arguments and each.yielded != each.argument:
                self._copy_on(op, each, "what another place of the loop carries goes on here")
        for each in carried:
            self._carry_on(op, each.operand)
            _, _, decision = self._decision(each.argument)
            self._hold(each.result, decision.state.produced.candidate, self.layouts[each.argument])

    def _carry_on(self, op: ir.Operation, operand: int) -> None:
        """A copy of the next value that cannot be written over the one before."""
        each = next(each for each in carried_values(op) if each.operand == operand)
        why = why_not_in_place(op, each)
        if why is not None:
            self._copy_on(op, each, why)

    def _copy_on(self, op: ir.Operation, each: CarriedValue, why: str) -> None:
        """Lets a loop go on with a copy, made at the end of the iteration."""
        end, layout = terminator(body_block(op)), self.layouts[each.argument]
        with ir.InsertionPoint(end):
            made = sdsc.clone(each.yielded, op.location)
        self.layouts[made] = layout
        end.operands[each.operand - 3] = made
        self.owner.remark(maker_of(made), "copy", why, before=0, after=2 * layout.bytes)

    def _enter(self, op: ir.Operation, each: CarriedValue) -> None:
        _, node, decision = self._decision(each.argument)
        assert isinstance(node, IterArg)
        layout = self._own_layout(node, decision.state.produced.candidate)
        self._hold(each.argument, decision.state.produced.candidate, layout)
        buffer = self.plan.decisions[node.initial]
        for read in zip(buffer.reads, buffer.in_place, strict=True):
            self._put_whole(op, each.operand, read, layout)

    # -- ops ------------------------------------------------------------------------------------------

    def _visit_all(self, block: ir.Block) -> None:
        for op in [op.operation for op in block.operations]:
            with ir.InsertionPoint(op), op.location:
                self._visit(op)

    def _visit(self, op: ir.Operation) -> None:
        if op.name == LOOP:
            self._loop(op)
            return
        if op.name in DESTINATION:
            _own_result(op)
        if not op.results or op.results[0] not in self.source.tensors:
            return
        if op.name in VIEWS:
            self._view(op)
        elif op.name == "linalg.generic":
            self._compute(op)
        elif op.name in ("sdsc.clone", "stick.restickify"):
            self._copy(op)
        elif op.name == "tensor.insert_slice":
            self._insertion(op)
        elif op.name == "stick.pin":
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        elif op.name == "arith.constant":
            self._given(op.results[0])

    def _compute(self, op: ir.Operation) -> None:
        tensor, node, decision = self._decision(op.results[0])
        own = decision.state.produced
        assert isinstance(node, Compute)
        assert own.op_layout is not None
        for position, (source, held) in enumerate(zip(node.operands, decision.reads, strict=True)):
            op.operands[position] = self._value(source, held, op)
        if own.op_layout.assignment.opcode != node.signature.opcode:
            op.attributes[sdsc.OP] = sdsc.op_attr(own.op_layout.assignment.opcode, sdsc.constants_of(op))
        result = op.results[0]
        if own.op_layout.assignment.inputs != tuple(range(len(node.operands))):
            result = self._turned(op, own.op_layout)
        self._held[tensor][own.candidate] = result
        self.layouts[result] = self._own_layout(node, own.candidate)
        self.ways[result] = own.op_layout
        if decision.options > 1:
            opcode, stick = own.op_layout.assignment.opcode, _dim(own.candidate.stick_dim)
            reason = f"'{opcode}' with {stick} in the stick, of {decision.options} choices"
            self.owner.remark(maker_of(result), "layout", reason, after=own.candidate.bytes)

    def _own_layout(self, node: TensorNode, held: LayoutCandidate) -> StickLayout:
        pinned = node.pin is not None and candidate_of(node.pin) is held
        return node.pin if pinned and node.pin is not None else held.layout

    def _turned(self, op: ir.Operation, way: OpLayout) -> ir.Value:
        """The operation with its inputs exchanged; readers of the old one read the new one."""
        generic = structured(op)
        assert generic is not None
        made = device_op(
            way.assignment.opcode,
            [generic.inputs[at] for at in way.assignment.inputs],
            [generic.maps[at] for at in way.assignment.inputs],
            generic.extents,
            element_of(generic.result),
            location=op.location,
            reduced=generic.reduced,
            result_map=generic.maps[-1],
        )
        sdsc.inherit(maker_of(made), op)
        op.results[0].replace_all_uses_with(made)
        self.source.tensors[made] = self.source.tensors.pop(op.results[0])
        op.erase()
        return made

    def _view(self, op: ir.Operation) -> None:
        """A view of the layout that its readers want; of two layouts, if they want both."""
        tensor, node, decision = self._decision(op.results[0])
        assert isinstance(node, ViewNode)
        for base, held in zip(decision.state.base, decision.reads, strict=True):
            source = self._value(node.source, held, op)
            view = op if not self._held[tensor] else op.clone().operation
            view.operands[0] = source
            self._held[tensor][base] = view.results[0]

    def _copy(self, op: ir.Operation) -> None:
        tensor, node, decision = self._decision(op.results[0])
        own, held = decision.state.produced.candidate, decision.reads[0]
        op.operands[0] = self._value(self.source.tensors[op.operands[0]], held, op)
        self._hold(op.results[0], own, self._own_layout(node, own))
        if op.name == "stick.restickify":
            del op.attributes[stick.TO]
            self.owner.remark(
                op, "restickify", "the program asks for it", before=0, after=own.bytes + held.bytes
            )
        elif own.stick_dim != held.stick_dim:
            self._mark(op, held, own, own.bytes + held.bytes, self._reasons.of(tensor, own))

    # -- buffers that insertions fill -----------------------------------------------------------------

    def _insertion(self, op: ir.Operation) -> None:
        """Parts that are made in place get the layout of the place, others are copied there."""
        tensor, node, decision = self._decision(op.results[0])
        own, chain = decision.state.produced.candidate, self.source.insertions[tensor]
        layout = self._own_layout(node, own)
        reads = list(zip(decision.reads, decision.in_place, strict=True))
        before = reads[: len(reads) - len(chain)]
        for read in before if op == chain[0] else []:
            self._put_whole(op, 1, read, layout)
        copied = any(not in_place for _, in_place in before)
        held, in_place = reads[len(before) + chain.index(op)]
        place = image(place_of(op), own)
        assert place is not None
        self._put(op, 0, (held, in_place and not copied), place.view.layout)
        self.layouts[op.results[0]] = layout
        if op == chain[-1]:
            self._held[tensor][own] = op.results[0]

    def _put_whole(
        self, op: ir.Operation, at: int, read: tuple[LayoutCandidate, bool], wanted: StickLayout
    ) -> None:
        """What a buffer holds at first: as a part of all of it, but a conversion goes right there."""
        held, in_place = read
        if in_place or held.stick_dim == BufferView.of(wanted).stick_dim:
            self._put(op, at, read, wanted)
            return
        value = self._value(self.source.tensors[op.operands[at]], held, op)
        target, why = candidate_of(wanted), "the buffer that goes on with it has another stick"
        op.operands[at] = self._converted(value, held, target, relayout_cost(held, target), why)
        self.layouts[op.operands[at]] = wanted

    def _put(
        self, op: ir.Operation, at: int, read: tuple[LayoutCandidate, bool], wanted: StickLayout
    ) -> None:
        """Operand ``at`` of what goes on with a buffer in the layout it has to have, copied if not in place."""
        held, in_place = read
        value = self._value(self.source.tensors[op.operands[at]], held, op)
        if in_place:
            self.layouts[value] = wanted
            return
        stick_dim = BufferView.of(wanted).stick_dim
        if held.stick_dim != stick_dim:
            target = candidate_of(
                StickLayout.for_tensor(device(), wanted.shape, wanted.dtype, _order(wanted, stick_dim))
            )
            why = "the buffer that it is put into has another stick"
            value = self._converted(value, held, target, held.bytes + target.bytes, why)
        made = sdsc.clone(value, ir.Location.current)
        self.layouts[made] = wanted
        op.operands[at] = made


def _own_result(op: ir.Operation) -> None:
    """A destination of an op's own instead of a part of a buffer: where its result goes, insertions say."""
    at = len(op.operands) - 1
    old = defining_op(op.operands[at])
    if old is not None and old.name in ("tensor.empty", "linalg.fill"):
        return
    op.operands[at] = ir.Operation.create("tensor.empty", results=[op.results[0].type]).result
    if old is not None and not any(True for _ in old.results[0].uses):
        old.erase()


def _order(layout: StickLayout, stick_dim: int | None) -> list[int]:
    others = [dim for dim in range(len(layout.shape)) if dim != stick_dim]
    return [*others, -1 if stick_dim is None else stick_dim]


def _dim(stick_dim: int | None) -> str:
    return "nothing" if stick_dim is None else f"d{stick_dim}"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrite a function to the layouts of a plan: op layouts of operations, relayouts, copies of constants."""

from __future__ import annotations

import functools

from spyre_mlir.analysis import loops
from spyre_mlir.analysis.carried_buffers import why_not_in_place
from spyre_mlir.analysis.layout_graph import LayoutGraph
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
    use_empty,
)
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.rules import sentence
from spyre_mlir.layout.stick_layout import is_restickified
from spyre_mlir.layout.view import ViewError
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    OpLayout,
    candidate_of,
    image,
    relayout_cost,
)
from spyre_mlir.layout_search.minimum_cost import Decision, LayoutPlan
from spyre_mlir.layout_search.tensor_graph import ArgumentNode, Compute, IterArg, TensorNode, ViewNode
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import WARNING, RemarkEmitter
from spyre_mlir.rewriting.tensor_builders import empty_like


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

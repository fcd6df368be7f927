# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of tensors in each of their layouts, converted where a reader first needs one."""

from __future__ import annotations

from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.loops import ancestor_in, block_of
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.stick_layout import is_restickified
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate, candidate_of, relayout_cost
from spyre_mlir.layout_search.minimum_cost import Decision, LayoutPlan
from spyre_mlir.layout_search.reasons import Reasons
from spyre_mlir.layout_search.tensor_graph import TensorNode
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import WARNING, RemarkEmitter

#: What a user can do about a restickify of other numbers than those of 16 bits.
_REFUSED = (
    "the back end takes it of 16-bit numbers alone and will likely refuse this one; compute the tensor in f16, or give "
    "the argument that it comes from a layout with another dim in the stick"
)


class LayoutValues:
    """The IR values of each tensor by layout candidate, and ``layouts`` of all buffers among them.

    A conversion is a clone that is written on demand, before its first reader.
    """

    def __init__(self, owner: RemarkEmitter, source: LayoutGraph, plan: LayoutPlan) -> None:
        self.owner = owner
        self.source = source
        self.plan = plan
        self.layouts: dict[ir.Value, StickLayout] = {}
        self.by_tensor: list[dict[LayoutCandidate, ir.Value]] = [{} for _ in plan.decisions]
        self.reasons = Reasons(source.graph, plan)

    def decision(self, value: ir.Value) -> tuple[int, TensorNode, Decision]:
        """The tensor that a value stands for, its node in the graph, and the decision about it."""
        tensor = self.source.tensors[value]
        return tensor, self.source.graph.nodes[tensor], self.plan.decisions[tensor]

    def record(self, value: ir.Value, candidate: LayoutCandidate, layout: StickLayout | None = None) -> None:
        """Record a value as its tensor in a candidate; ``layout`` if it is not that of the candidate."""
        self.by_tensor[self.source.tensors[value]][candidate] = value
        self.layouts[value] = candidate.layout if layout is None else layout

    def layout_of(self, node: TensorNode, candidate: LayoutCandidate) -> StickLayout:
        """The layout of a candidate, or the pinned one that the candidate stands for."""
        pinned = node.pin is not None and candidate_of(node.pin) is candidate
        return node.pin if pinned and node.pin is not None else candidate.layout

    def value(self, tensor: int, candidate: LayoutCandidate, reader: ir.Operation) -> ir.Value:
        """The value of a tensor in a layout.

        A conversion is written before its first reader, or before the loop around that in which the tensor is not.
        """
        known = self.by_tensor[tensor]
        if candidate not in known:
            decision = self.plan.decisions[tensor]
            conversion = next(relayout for relayout in decision.relayouts if relayout.target is candidate)
            source = self.value(tensor, conversion.source, reader)
            with ir.InsertionPoint(ancestor_in(block_of(source), reader)):
                why = self.reasons.of(tensor, candidate)
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
        """Mark a clone as a conversion, if it changes the stick."""
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
        """Write the initial value of a destination, by the conversion itself if the stick differs."""
        candidate, in_place = read
        if in_place or candidate.stick_dim == BufferView.of(layout).stick_dim:
            self.write_slice(op, operand, read, layout)
            return
        value = self.value(self.source.tensors[op.operands[operand]], candidate, op)
        target, why = candidate_of(layout), "the buffer that goes on with it has another stick"
        op.operands[operand] = self._converted(
            value, candidate, target, relayout_cost(candidate, target), why
        )
        self.layouts[op.operands[operand]] = layout

    def write_slice(
        self, op: ir.Operation, operand: int, read: tuple[LayoutCandidate, bool], layout: StickLayout
    ) -> None:
        """Write an operand in the layout that its buffer has to have, copied if it is not computed in place."""
        candidate, in_place = read
        value = self.value(self.source.tensors[op.operands[operand]], candidate, op)
        if in_place:
            self.layouts[value] = layout
            return
        stick_dim = BufferView.of(layout).stick_dim
        if candidate.stick_dim != stick_dim:
            # By way of a dense buffer: a slice may not hold whole sticks of another stick dim.
            target = candidate_of(
                StickLayout.for_tensor(layout.target, layout.shape, layout.dtype, _order(layout, stick_dim))
            )
            why = "the buffer that it is put into has another stick"
            value = self._converted(value, candidate, target, candidate.bytes + target.bytes, why)
        clone = sdsc.clone(value, ir.Location.current)
        self.layouts[clone] = layout
        op.operands[operand] = clone


def _order(layout: StickLayout, stick_dim: int | None) -> list[int]:
    others = [dim for dim in range(len(layout.shape)) if dim != stick_dim]
    return [*others, -1 if stick_dim is None else stick_dim]


def stick_text(stick_dim: int | None) -> str:
    """The stick dim as remarks name it."""
    return "nothing" if stick_dim is None else f"d{stick_dim}"

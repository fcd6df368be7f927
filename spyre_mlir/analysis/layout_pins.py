# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layouts that a plan file pins, as constraints on the layout choice."""

from __future__ import annotations

from spyre_mlir.analysis.aliasing import all_ops, argument_attributes
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.plan_facts import layout_value
from spyre_mlir.analysis.plan_pins import argument_layouts, pins_of, refused
from spyre_mlir.dialects import sdsc
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.layout_text import same_order
from spyre_mlir.layout_search.minimum_cost import LayoutError, LayoutPlan
from spyre_mlir.layout_search.tensor_graph import ArgumentNode
from spyre_mlir.mlir import ir
from spyre_mlir.plans.plan_file import json_text
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class PinnedTensor:
    """A tensor of a graph, its layouts in the plan file (one per copy of an argument), and its defining op."""

    tensor: int
    layouts: tuple[StickLayout, ...]
    op: ir.Operation


class LayoutPins:
    """Adds pins as constraints in rounds, and only those that the choice would not keep anyway.

    So a plan that is applied unchanged changes no choice, nor the order among equal ones.
    """

    def __init__(self, source: LayoutGraph) -> None:
        self.source = source
        self.pinned = {pin.tensor: pin for pin in _pinned(source)}
        self._imposed: set[int] = set()

    def impose(self, plan: LayoutPlan) -> bool:
        """Add the pins that a choice breaks as constraints; return whether there are new ones."""
        broken = [pin for pin in self.pinned.values() if not self._holds(pin, plan)]
        new = [pin for pin in broken if pin.tensor not in self._imposed]
        for pin in new:
            self._imposed.add(pin.tensor)
            self._impose(pin)
        return bool(new)

    def error(self, error: LayoutError) -> CompileError:
        """The error of a choice that has no solution under the constraints so far."""
        pinned = self.pinned.get(error.node)
        if pinned is not None and pinned.tensor in self._imposed and pinned.op != self.source.func:
            return refused(pinned.op, f"the layout {json_text(layout_value(pinned.layouts[0]))}", str(error))
        return self.source.error(error)

    def _holds(self, pinned: PinnedTensor, plan: LayoutPlan) -> bool:
        node, state = self.source.graph.nodes[pinned.tensor], plan.decisions[pinned.tensor].state
        # Only a free argument may have several layouts, one for each of its copies.
        layouts = state.base if isinstance(node, ArgumentNode) and node.free else (state.produced.candidate,)
        if len(layouts) != len(pinned.layouts):
            return False
        return all(
            same_order(candidate.layout, layout)
            for candidate, layout in zip(layouts, pinned.layouts, strict=True)
        )

    def _impose(self, pinned: PinnedTensor) -> None:
        node = self.source.graph.nodes[pinned.tensor]
        if isinstance(node, ArgumentNode) and node.free:
            node.layouts = pinned.layouts
        elif isinstance(node, ArgumentNode) and node.by_price and self._is_default(node, pinned.layouts[0]):
            # No pin: the device converts the argument to the same orders as where it may have no other layout.
            node.by_price = False
        else:
            self.source.shared_layouts.pin(pinned.op, pinned.tensor, pinned.layouts[0])

    def _is_default(self, node: ArgumentNode, layout: StickLayout) -> bool:
        return same_order(StickLayout.for_tensor(self.source.graph.target, node.shape, node.dtype), layout)


def _pinned(source: LayoutGraph) -> list[PinnedTensor]:
    pins = []
    arguments = source.func.regions[0].blocks[0].arguments
    for value, attributes in zip(arguments, argument_attributes(source.func), strict=True):
        layouts = argument_layouts(attributes, value.type, source.graph.target)
        if layouts:
            pins.append(PinnedTensor(source.tensors[value], layouts, source.func))
    for op in all_ops(source.func):
        layout = pins_of(op).layout if sdsc.PINS in op.attributes else None
        if layout is not None:
            pins.append(PinnedTensor(source.tensors[op.results[0]], (layout,), op))
    return pins

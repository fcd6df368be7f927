# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reasons of relayouts, for remarks: the first reader that cannot do with the layout that is produced."""

from __future__ import annotations

import functools

from spyre_mlir.layout.rules import sentence
from spyre_mlir.layout.view import ViewError
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate
from spyre_mlir.layout_search.minimum_cost import LayoutPlan
from spyre_mlir.layout_search.tensor_graph import Compute, Graph, ViewNode


class Reasons:
    """The reasons of one plan, as texts for remarks."""

    def __init__(self, graph: Graph, plan: LayoutPlan) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.decisions = plan.decisions

    # Cached and not in __init__: most plans have no relayout, and so no remark that asks for a reason.
    @functools.cached_property
    def readers(self) -> list[list[tuple[int, int]]]:
        """The readers of each tensor."""
        return self.graph.readers()

    def of(self, tensor: int, target: LayoutCandidate) -> str:
        """Return the rule or the view for which a reader needs ``tensor`` in layout ``target``, as a clause."""
        return (
            self._view(tensor, target)
            or self._operation(tensor, target)
            or "it is put into a buffer with this stick"
        )

    def _view(self, tensor: int, target: LayoutCandidate) -> str | None:
        """A view of the target that the produced layout does not have."""
        produced = self.decisions[tensor].state.base[0]
        for reader, _ in self.readers[tensor]:
            node = self.nodes[reader]
            if isinstance(node, ViewNode) and target in self.decisions[reader].reads:
                try:
                    node.step.apply(produced.view)
                except ViewError as error:
                    return f"with {_dim(produced.stick_dim)} in the stick it has no such view: {error}"
        return None

    def _operation(self, tensor: int, target: LayoutCandidate) -> str | None:
        """The rule of an operation that reads the target, itself or through views."""
        for reader, position in self.readers[tensor]:
            node, decision = self.nodes[reader], self.decisions[reader]
            if isinstance(node, Compute) and decision.reads[position] is target:
                opcode = node.signature.opcode
                return (
                    f"'{opcode}' reads it with {_dim(target.stick_dim)} in the stick, for {sentence(opcode)}"
                )
            if isinstance(node, ViewNode) and target in decision.reads:
                base = decision.state.base[decision.reads.index(target)]
                reason = self._operation(reader, base)
                if reason is not None:
                    return reason
        return None


def _dim(stick_dim: int | None) -> str:
    return "nothing" if stick_dim is None else f"d{stick_dim}"

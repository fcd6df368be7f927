# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Origins of the outputs of an exported graph: computed values, known values, or views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.complex_numbers import ComplexParts
from spyre_mlir.frontend.locations import refusal_at
from spyre_mlir.frontend.signature import Argument, Complex, Fixed, Leaf, Number, Update, View, view_origin

aten = torch.ops.aten

#: Kinds of outputs that are new values of an input, a buffer or a parameter.
UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class _Outputs:
    """Origin of each output of a graph: a known value, a view of an argument or of a result, or a result.

    If several outputs are views of one tensor, they share one result, so that they share memory as in PyTorch. A view
    that is returned alone is computed like any other result.
    """

    def __init__(
        self, values: Sequence[Any], arguments: Mapping[Node, Argument], known: Mapping[Node, Any]
    ) -> None:
        self.results: list[Node] = []
        self._arguments = arguments
        self._known = known
        self._changed: dict[Any, Argument] = {}
        nodes = dict.fromkeys(value for value in pytree.tree_leaves(list(values)) if isinstance(value, Node))
        self._views = Counter(view_origin(node)[0] for node in nodes)

    def update(self, argument: Argument, value: Any) -> Update:
        """In-place update of an argument; later outputs that are views of the new value view the argument."""
        # A new value that is another argument keeps its views.
        if value not in self._arguments:
            self._changed[value] = argument
        return Update(argument, self._leaf(value))

    def returned(self, value: Any) -> Leaf:
        """Return the origin of a leaf of the model's return value."""
        if isinstance(value, ComplexParts):
            return View(self._changed[value]) if value in self._changed else self._leaf(value)
        if not isinstance(value, Node):
            return Fixed(value)
        if not isinstance(value.meta.get("val"), Tensor):
            # A number is the element of a tensor.
            if value in self._known:
                return Fixed(self._known[value])
            if value.target is not aten._local_scalar_dense.default:
                message = "The result is a number that depends on tensors; return it as a tensor."
                raise refusal_at(value, message)
            return Number(self._leaf(cast(Node, value.args[0])))
        if value in self._changed:
            return View(self._changed[value])
        origin, steps = view_origin(value)
        return View(self._changed[origin], steps) if origin in self._changed else self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        """Origin of a tensor; for a complex tensor, the origins of both parts."""
        if isinstance(value, ComplexParts):
            return Complex(*map(self._leaf, value))
        origin, steps = view_origin(value)
        if origin in self._arguments:
            return View(self._arguments[origin], steps)
        if value in self._known:
            return Fixed(self._known[value])
        if self._views[origin] > 1:
            return View(self._result(origin), steps)
        return View(self._result(value))

    def _result(self, node: Node) -> int:
        """Return the index of a result, which is added if it is new."""
        if node not in self.results:
            self.results.append(node)
        return self.results.index(node)


def split_outputs(
    program: ExportedProgram, arguments: dict[Node, Argument], known: Mapping[Node, Any]
) -> tuple[list[Node], list[Leaf], list[Update]]:
    """Reduce the output of the graph to computed tensors; return them, the model's leaves and its updates."""
    output = program.graph.output_node()
    values = cast(Sequence, output.args[0])
    outputs = _Outputs(values, arguments, known)
    inputs = {node.name: argument for node, argument in arguments.items() if argument.leaf is not None}
    state = {argument.name: argument for argument in arguments.values() if argument.leaf is None}
    leaves: list[Leaf] = []
    updates: list[Update] = []
    for value, spec in zip(values, program.graph_signature.output_specs, strict=True):
        if spec.kind in UPDATES:
            named = inputs if spec.kind == OutputKind.USER_INPUT_MUTATION else state
            updates.append(outputs.update(named[cast(str, spec.target)], value))
        elif spec.kind == OutputKind.USER_OUTPUT:
            leaves.append(outputs.returned(value))
        else:
            raise CompileError(f"Outputs of kind {spec.kind.name.lower()} are not supported.")
    # The graph computes only results; a call replays views and updates on the results.
    output.args = (tuple(outputs.results),)
    return outputs.results, leaves, updates

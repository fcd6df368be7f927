"""Where the outputs of an exported graph come from: what it computes, what is known, what is a view of something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.signature import Argument, Fixed, Leaf, Number, Step, Update, View, is_view, replayed

aten = torch.ops.aten

#: What an output is that an input, a buffer or a parameter takes in place.
UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class _Outputs:
    """Where each output of a graph comes from: known, a view of an argument or of a result, or a result.

    What several outputs are views of is one result, so that they lie in one memory as in PyTorch; a view that is
    returned alone is computed like everything else.
    """

    def __init__(
        self, values: Sequence[Any], arguments: Mapping[Node, Argument], known: Mapping[Node, Any]
    ) -> None:
        self.results: list[Node] = []
        self._arguments = arguments
        self._known = known
        self._changed: dict[Node, Argument] = {}
        nodes = dict.fromkeys(value for value in values if isinstance(value, Node))
        self._views = Counter(_origin(node)[0] for node in nodes)

    def update(self, argument: Argument, value: Node) -> Update:
        """An argument that takes a new value in place; what is a view of that is from now on one of the argument."""
        if value not in self._arguments:
            self._changed[value] = argument
        return Update(argument, self._leaf(value))

    def returned(self, value: Any) -> Leaf:
        """A leaf of what the model returns."""
        if not isinstance(value, Node):
            return Fixed(value)
        if not isinstance(value.meta.get("val"), Tensor):
            return self._number(value)
        if value in self._changed:
            return View(self._changed[value])
        origin, steps = _origin(value)
        return View(self._changed[origin], steps) if origin in self._changed else self._leaf(value)

    def _number(self, value: Node) -> Leaf:
        """What is no tensor: the element of one; of no other number a program has operations."""
        if value in self._known:
            return Fixed(self._known[value])
        if value.target is not aten._local_scalar_dense.default:
            message = (
                f"The result of {value.target} is a number that depends on tensors; return it as a tensor."
            )
            raise CompileError(message, source_of(value))
        return Number(self._leaf(cast(Node, value.args[0])))

    def _leaf(self, value: Node) -> Fixed | View:
        origin, steps = _origin(value)
        if origin in self._arguments:
            return View(self._arguments[origin], steps)
        if value in self._known:
            return Fixed(self._known[value])
        if self._views[origin] > 1:
            return View(self._result(origin), steps)
        return View(self._result(value))

    def _result(self, node: Node) -> int:
        if node not in self.results:
            self.results.append(node)
        return self.results.index(node)


def _origin(node: Node) -> tuple[Node, tuple[Step, ...]]:
    """The tensor that a node is a view of, itself if of none, and the steps from there."""
    steps: list[Step] = []
    while is_view(node):
        source, *args = node.args
        if not isinstance(source, Node):
            break
        steps.append(Step(replayed(cast(Callable, node.target)), tuple(args), dict(node.kwargs)))
        node = source
    return node, tuple(reversed(steps))


def split_outputs(
    program: ExportedProgram, arguments: dict[Node, Argument], known: Mapping[Node, Any]
) -> tuple[list[Node], list[Leaf], list[Update]]:
    """Leave only computed tensors in the output of the graph: these, the model's leaves, and what it changes."""
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
    output.args = (tuple(outputs.results),)
    return outputs.results, leaves, updates

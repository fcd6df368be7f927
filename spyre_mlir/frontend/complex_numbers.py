"""Complex tensors as pairs of real ones: rotary embeddings are often written as products of complex numbers.

A node with a complex result becomes two nodes, its parts; what reads it takes them. What is not in the table stays
complex, which ``exported.py`` refuses with its place in the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from spyre_mlir.frontend.content_reads import note_read
from spyre_mlir.frontend.graph_edits import call_before
from spyre_mlir.frontend.signature import Argument

aten = torch.ops.aten

#: What moves elements moves those of both parts.
_MOVES = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.expand.default, aten.permute.default, aten.transpose.int, aten.slice.Tensor,
    aten.select.int, aten.clone.default, aten.alias.default, aten.index.Tensor, aten.index_select.default,
}  # fmt: skip
_SUMS = {aten.add.Tensor, aten.sub.Tensor}


class ComplexParts(NamedTuple):
    """A complex value as its real and its imaginary part, nodes or numbers."""

    real: Any
    imaginary: Any


def split_complex_numbers(graph: Graph, arguments: dict[Node, Argument]) -> None:
    """Rewrite complex nodes as real ones, in place; a complex argument becomes two, ``<name>.real`` and ``.imag``."""
    if any(_is_complex(node) for node in graph.nodes):
        _Splitting(graph, arguments).run()


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


class _Splitting:
    def __init__(self, graph: Graph, arguments: dict[Node, Argument]) -> None:
        self.graph = graph
        self.arguments = arguments
        self.parts: dict[Node, ComplexParts] = {}
        self.insertion_point: Node | None = None

    def run(self) -> None:
        """Split node by node, in order, so that the parts of all operands are known."""
        replaced = []
        for node in list(self.graph.nodes):
            self.insertion_point = node
            if node.op == "placeholder" and _is_complex(node):
                replacement = self._argument(node)
            elif node.op == "call_function":
                replacement = self._split(node)
            else:
                continue
            if isinstance(replacement, ComplexParts):
                self.parts[node] = replacement
            elif isinstance(replacement, Node):
                node.replace_all_uses_with(replacement)
            if replacement is not None:
                replaced.append(node)
        # From the last one, so that readers go before what they read.
        for node in reversed(replaced):
            if not node.users:
                self.graph.erase_node(node)
                self.arguments.pop(node, None)

    def _call(self, target: Any, *args: Any, **named: Any) -> Node:
        assert self.insertion_point is not None
        return call_before(self.insertion_point, target, *args, **named)

    def _argument(self, node: Node) -> ComplexParts | None:
        """Two arguments in place of a complex parameter or constant; None for an input."""
        argument = self.arguments.get(node)
        if (
            argument is None
            or argument.leaf is not None
            or argument.kind == "input"
            or argument.tensor is None
        ):
            return None
        note_read(argument.name)
        parts = []
        for name, data in (("real", argument.tensor.real), ("imag", argument.tensor.imag)):
            with self.graph.inserting_after(node):
                part = self.graph.placeholder(f"{node.name}_{name}")
            part.meta["val"] = node.meta["val"].fake_mode.from_tensor(data.contiguous(), static_shapes=True)
            self.arguments[part] = Argument(f"{argument.name}.{name}", argument.kind, data.contiguous())
            parts.append(part)
        return ComplexParts(*parts)

    def _split(self, node: Node) -> ComplexParts | Node | None:
        """Parts of a complex result, or the real node in its place; None for a real operation or one without a rule."""
        args: list[Any] = [
            self.parts.get(operand, operand) if isinstance(operand, Node) else operand
            for operand in node.args
        ]
        target = node.target
        if target is aten.view_as_complex.default:
            return ComplexParts(*(self._call(aten.select.int, args[0], -1, index) for index in (0, 1)))
        if target is aten.polar.default:
            return ComplexParts(
                self._call(aten.mul.Tensor, args[0], self._call(aten.cos.default, args[1])),
                self._call(aten.mul.Tensor, args[0], self._call(aten.sin.default, args[1])),
            )
        if target is aten.complex.default:
            return ComplexParts(*args)
        if not any(isinstance(operand, ComplexParts) for operand in args):
            return None
        if target is aten.view_as_real.default:
            return self._call(
                aten.cat.default, [self._call(aten.unsqueeze.default, part, -1) for part in args[0]], -1
            )
        # Parts is a pair: index 0 is the real part, 1 the imaginary one.
        if target in (aten.real.default, aten.imag.default):
            return args[0][target is aten.imag.default]
        if target is aten._conj.default:
            return ComplexParts(args[0].real, self._call(aten.neg.default, args[0].imaginary))
        if target is aten.mul.Tensor:
            return self._product(*args)
        if target in _SUMS and all(isinstance(operand, ComplexParts) for operand in args) and not node.kwargs:
            return ComplexParts(*(self._call(target, *parts) for parts in zip(*args, strict=True)))
        if target in _MOVES:
            return ComplexParts(*(self._call(target, part, *args[1:], **node.kwargs) for part in args[0]))
        return None

    def _product(self, one: Any, other: Any) -> ComplexParts:
        """(a + bi) (c + di) = (ac - bd) + (ad + bc) i; a real factor scales both parts."""
        if not isinstance(one, ComplexParts):
            one, other = other, one
        if not isinstance(other, ComplexParts):
            multiply = aten.mul.Tensor if isinstance(other, Node) else aten.mul.Scalar
            return ComplexParts(*(self._call(multiply, part, other) for part in one))
        products = [[self._call(aten.mul.Tensor, a, b) for b in other] for a in one]
        return ComplexParts(
            self._call(aten.sub.Tensor, products[0][0], products[1][1]),
            self._call(aten.add.Tensor, products[0][1], products[1][0]),
        )

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex tensors as pairs of real tensors: rotary embeddings are often written as products of complex numbers.

A node with a complex result becomes two nodes, its parts; the readers of the node read the parts. A complex argument
becomes two arguments: a call passes the two parts of a tensor to the program, and joins the parts that it returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.complex_operations import (
    REAL_TYPES,
    ComplexParts,
    expanded,
    is_complex,
    is_transform,
)
from spyre_mlir.frontend.content_reads import note_read
from spyre_mlir.frontend.graph_edits import call_before, metadata_for
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.signature import INPUT, Argument
from spyre_mlir.frontend.views import view_origin

aten = torch.ops.aten

#: Operations that move elements apply to each part separately.
_MOVES = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.expand.default, aten.permute.default, aten.transpose.int, aten.slice.Tensor,
    aten.select.int, aten.clone.default, aten.alias.default, aten.index.Tensor, aten.index_select.default,
}  # fmt: skip
_CONVERT = torch.ops.prims.convert_element_type.default
_SUMS = {aten.add.Tensor, aten.sub.Tensor}


def split_complex_numbers(
    graph: Graph, arguments: dict[Node, Argument], table: Mapping[Any, Callable[..., Any]]
) -> None:
    """Rewrite complex nodes as real nodes, in place. A complex argument becomes ``<name>.real`` and ``<name>.imag``.

    The output gets ``ComplexParts`` in place of a complex result that is not a view of an argument. ``table`` contains
    the decompositions of the operations that PyTorch's rules compute on parts.
    """
    if any(map(is_complex, graph.nodes)) or any(map(is_transform, graph.nodes)):
        _Splitting(graph, arguments, table).run()


class _Splitting:
    def __init__(
        self, graph: Graph, arguments: dict[Node, Argument], table: Mapping[Any, Callable[..., Any]]
    ) -> None:
        self.graph = graph
        self.arguments = arguments
        self.table = table
        self.parts: dict[Node, Any] = {}
        self.insertion_point: Node | None = None

    def run(self) -> None:
        """Split the nodes in order, so that the parts of all operands are known."""
        replaced = []
        for node in list(self.graph.nodes):
            self.insertion_point = node
            if node.op == "placeholder" and is_complex(node):
                replacement = self._argument(node)
            elif node.target is aten._assert_tensor_metadata.default:
                self.graph.erase_node(node)
                continue
            elif node.op == "call_function":
                replacement = self._split(node)
            else:
                continue
            if isinstance(replacement, Node):
                node.replace_all_uses_with(replacement)
            elif replacement is not None:
                self.parts[node] = replacement
            if replacement is not None:
                replaced.append(node)
        self._split_output()
        # In reverse order, so that readers are erased before their operands.
        for node in reversed(replaced):
            if not node.users and node.op != "placeholder":
                self.graph.erase_node(node)

    def _split_output(self) -> None:
        """Return parts in place of complex results, except views of arguments, which a call returns as views."""
        output = self.graph.output_node()
        output.args = (tuple(self._returned(value) for value in output.args[0]),)  # type: ignore[union-attr]

    def _returned(self, value: Any) -> Any:
        if value not in self.parts or view_origin(value)[0].op == "placeholder":
            return value
        return self.parts[value]

    def _call(self, target: Any, *args: Any, **named: Any) -> Node:
        assert self.insertion_point is not None
        return call_before(self.insertion_point, target, *args, **named)

    def _argument(self, node: Node) -> ComplexParts | None:
        """Two arguments in place of a complex argument; None for random numbers."""
        argument = self.arguments.get(node)
        if argument is None or argument.draw is not None:
            return None
        is_given = argument.leaf is not None or argument.kind == INPUT
        if not is_given:
            note_read(argument.name)
        parts = []
        # In reverse order, because each placeholder is inserted right after the node.
        for part in ("imag", "real"):
            with self.graph.inserting_after(node):
                placeholder = self.graph.placeholder(f"{node.name}_{part}")
            placeholder.meta = metadata_for(node, getattr(node.meta["val"], part).contiguous())
            split = argument._replace(name=f"{argument.name}.{part}")
            if is_given:
                split = split._replace(part=part)
            elif argument.tensor is not None:
                split = split._replace(tensor=getattr(argument.tensor.resolve_conj(), part).contiguous())
            self.arguments[placeholder] = split
            parts.append(placeholder)
        return ComplexParts(*reversed(parts))

    def _split(self, node: Node) -> ComplexParts | Node | None:
        """Parts of a complex result, or the real node in its place; None for a real operation or if no rule exists."""
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
        if target is operator.getitem and node.args[0] in self.parts:
            return args[0][node.args[1]]
        is_split = any(source in self.parts for source in node.all_input_nodes)
        if not is_split and not is_complex(node) and not is_transform(node):
            return None
        simple = self._split_simply(node, args) if is_split else None
        if simple is not None:
            return simple
        if not node.all_input_nodes:
            return self._constant(node)
        if target is operator.getitem:
            source = node.all_input_nodes[0].target
            raise CompileError(f"{source} gives complex numbers, which is not supported.", source_of(node))
        return expanded(node, self.parts, self.table)

    def _constant(self, node: Node) -> ComplexParts:
        """Parts of a tensor that contains one complex number."""
        real = REAL_TYPES[node.meta["val"].dtype]
        if node.target not in (aten.full.default, aten.scalar_tensor.default):
            raise CompileError(f"{node.target} of complex numbers is not supported.", source_of(node))
        size, number = ([], *node.args)[-2:]
        numbers = complex(number).real, complex(number).imag  # type: ignore[arg-type]
        return ComplexParts(*(self._call(aten.full.default, size, part, dtype=real) for part in numbers))

    def _split_simply(self, node: Node, args: list[Any]) -> ComplexParts | Node | None:
        """Parts of a result by the fewest operations; None for an operation without a simple rule."""
        target = node.target
        if target is aten.view_as_real.default:
            return self._call(
                aten.cat.default, [self._call(aten.unsqueeze.default, part, -1) for part in args[0]], -1
            )
        # ComplexParts is a pair: index 0 is the real part, index 1 the imaginary part.
        if target is _CONVERT:
            return self._converted(*args)
        if target in (aten.real.default, aten.imag.default):
            return args[0][target is aten.imag.default]
        if target is aten._conj.default:
            return ComplexParts(args[0].real, self._call(aten.neg.default, args[0].imaginary))
        if target is aten.mul.Tensor and not any(isinstance(factor, complex) for factor in args):
            return self._product(node, *args)
        if target in _SUMS and all(isinstance(operand, ComplexParts) for operand in args) and not node.kwargs:
            return ComplexParts(*(self._call(target, *parts) for parts in zip(*args, strict=True)))
        if target in _MOVES and isinstance(args[0], ComplexParts):
            return ComplexParts(*(self._call(target, part, *args[1:], **node.kwargs) for part in args[0]))
        return None

    def _converted(self, parts: ComplexParts, dtype: torch.dtype) -> ComplexParts | Node:
        """Convert parts: to a complex type both parts, in its type of parts; to a real type the real part alone."""
        if dtype in REAL_TYPES:
            return ComplexParts(*(self._call(_CONVERT, part, REAL_TYPES[dtype]) for part in parts))
        if dtype == torch.bool:
            return self._call(
                aten.logical_or.default, *(self._call(aten.ne.Scalar, part, 0) for part in parts)
            )
        return self._call(_CONVERT, parts.real, dtype)

    def _product(self, node: Node, one: Any, other: Any) -> ComplexParts | None:
        """(a + bi) (c + di) = (ac - bd) + (ad + bc) i; a real factor scales both parts."""
        if not isinstance(one, ComplexParts):
            one, other = other, one
        # A product of complex32 numbers is rounded once.
        if node.meta["val"].dtype == torch.complex32:
            return None
        if not isinstance(other, ComplexParts):
            multiply = aten.mul.Tensor if isinstance(other, Node) else aten.mul.Scalar
            return ComplexParts(*(self._call(multiply, part, other) for part in one))
        products = [[self._call(aten.mul.Tensor, a, b) for b in other] for a in one]
        return ComplexParts(
            self._call(aten.sub.Tensor, products[0][0], products[1][1]),
            self._call(aten.add.Tensor, products[0][1], products[1][0]),
        )

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A piece of a model: the PyTorch calls between two points at which Python needs numbers, as a graph and its key.

Equal calls on tensors of equal types are one program. A number in a call is part of the key, but a number that has
changed between calls and only scales or shifts is an input: a tensor without dims.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.fx import Graph, Interpreter, Node
from torch.fx.node import map_aggregate
from torch.utils.weak import WeakIdKeyDictionary

from spyre_mlir.frontend.graph_edits import argument_key
from spyre_mlir.frontend.hints import dim_sizes, names_of
from spyre_mlir.records import dataclass

#: Functions that accept a tensor without dims wherever they accept a number, with the same result.
_ARITHMETIC = {
    "add", "radd", "iadd", "sub", "rsub", "isub", "subtract", "mul", "rmul", "imul", "multiply", "div", "divide",
    "truediv", "rtruediv", "itruediv", "true_divide", "gt", "ge", "lt", "le", "eq", "ne",
}  # fmt: skip
#: Range of numbers that all float formats represent, including the device's, and of integers exact in float16.
_LEAST, _MOST, _MOST_INTEGER = 2**-14, 65504, 2048
#: Placeholder for a number in a key.
_NUMBER = "number"


@dataclass(frozen=True)
class Cause:
    """Reason why a piece ends: the operation whose result Python needs, and its line in the model."""

    operation: str
    location: str

    def __str__(self) -> str:
        return f"{self.operation} ({self.location})" if self.location else self.operation


@dataclass(frozen=True)
class ModelPiece:
    """A function of tensors, called with ``inputs``; ``key`` is equal for pieces that one program computes."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: list[Tensor]
    key: Hashable
    cause: Cause
    calls: int


class _NumberOperand(NamedTuple):
    """A number among the arguments of a call that may become an input."""

    node: Node
    position: int
    value: float
    dtype: torch.dtype


@dataclass
class ChangingNumbers:
    """Memory of the numbers in pieces that differ only in numbers, from one call of a model to the next."""

    _values: dict[Hashable, list[float]] = field(default_factory=dict)
    _changing: dict[Hashable, set[int]] = field(default_factory=dict)

    def changing(self, key: Hashable, values: Sequence[float]) -> set[int]:
        """Indices of the numbers that have had several values in pieces with this key."""
        before = self._values.setdefault(key, list(values))
        positions = self._changing.setdefault(key, set())
        positions |= {index for index, value in enumerate(values) if repr(value) != repr(before[index])}
        return positions


class PieceBuilder:
    """Graph of the calls of a piece, whose tensors have no data (``FakeTensor``) until the piece has run.

    ``leaves`` are the tensors that the piece reads and does not compute, in the order of its inputs.
    """

    def __init__(self) -> None:
        self._graph = Graph()
        self._names: set[str] = set()
        self._keys: list[Hashable] = []
        self._order: dict[Node, int] = {}
        self._numbers: list[_NumberOperand] = []
        self.nodes: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.leaves: list[Tensor] = []
        self.calls = 0

    def add_leaf(self, tensor: Tensor, name: str) -> None:
        """Make a tensor an input of the piece, unless it is already an input or a result."""
        if tensor in self.nodes:
            return
        node = self.nodes[tensor] = self._placeholder(name)
        self.leaves.append(tensor)
        bits = isinstance(tensor, torch.nn.Parameter), tensor.is_conj(), tensor.is_neg()
        self._add(node, ("input", (tensor.dtype, tuple(tensor.shape), tensor.stride(), *bits)))

    def _placeholder(self, name: str) -> Node:
        """New input after all others; its name is a Python identifier and differs from all other names."""
        base = "".join(letter if letter.isalnum() else "_" for letter in name) or "x"
        base = f"x{base}" if base[0].isdigit() else base
        unique, count = base, 1
        while unique in self._names:
            unique, count = f"{base}_{count}", count + 1
        self._names.add(unique)
        placeholders = self._graph.find_nodes(op="placeholder")
        with self._graph.inserting_after(placeholders[-1] if placeholders else self._graph._root):
            return self._graph.placeholder(unique)

    def add_call(
        self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any, metadata: dict[str, Any]
    ) -> None:
        """Append a call; its operands are leaves or results of the piece."""
        self.calls += 1
        operands = list(tensors_in((args, kwargs)))

        def node_of(value: Any) -> Any:
            return self.nodes[value] if isinstance(value, Tensor) else value

        args, kwargs = (map_aggregate(value, node_of) for value in (args, kwargs))
        node = self._graph.call_function(function, args, kwargs)
        node.meta = dict(metadata)
        numbers = list(_numbers_of(node, operands))
        shown = list(args)
        for number in numbers:
            shown[number.position] = _NUMBER
        self._numbers += numbers
        order = self._order.__getitem__
        self._add(
            node, (function, argument_key(tuple(shown), Node, order), argument_key(kwargs, Node, order))
        )
        self._bind_results(result, node)

    def finish(
        self, results: Sequence[Node], inputs: Sequence[Tensor], memory: ChangingNumbers, cause: Cause
    ) -> ModelPiece:
        """Return the piece with these results, called with the tensors that the leaves stand for."""
        key = (*self._keys, tuple(self._order[node] for node in results), tuple(dim_sizes().items()))
        values = [number.value for number in self._numbers]
        changing = memory.changing(key, values)
        fixed = [repr(value) for index, value in enumerate(values) if index not in changing]
        operands = list(inputs)
        for number in (self._numbers[index] for index in sorted(changing)):
            # The number becomes an input, a tensor without dims.
            args = list(number.node.args)
            args[number.position] = self._placeholder(f"number_{len(operands)}")
            number.node.args = tuple(args)
            operands.append(torch.tensor(number.value, dtype=number.dtype))
        self._graph.output(tuple(results))
        key = (key, tuple(sorted(changing)), tuple(fixed), tuple(names_of(tensor) for tensor in inputs))
        graph, root = self._graph, torch.nn.Module()

        def replay(*inputs: Any) -> Any:
            """Run the graph node by node, so that the called operations keep the metadata of the nodes."""
            return Interpreter(root, graph=graph).run(*inputs)

        names = [str(node.target) for node in graph.find_nodes(op="placeholder")]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        replay.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        return ModelPiece(replay, operands, key, cause, self.calls)

    def _add(self, node: Node, key: Hashable) -> None:
        self._order[node] = len(self._order)
        self._keys.append(key)

    def _bind_results(self, result: Any, node: Node) -> None:
        """Map the tensors of a result to the nodes that compute them."""
        if isinstance(result, Tensor):
            if result not in self.nodes:
                self.nodes[result] = node
            return
        if isinstance(result, dict):
            items: Iterable[tuple[Any, Any]] = result.items()
        else:
            items = enumerate(result) if isinstance(result, (tuple, list)) else ()
        for index, item in items:
            if next(tensors_in(item), None) is not None:
                part = self._graph.call_function(operator.getitem, (node, index))
                part.meta = dict(node.meta)
                self._add(part, ("item", self._order[node], index))
                self._bind_results(item, part)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in the arguments or the result of a call."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from (tensor for item in value.values() for tensor in tensors_in(item))
    elif isinstance(value, (tuple, list)):
        yield from (tensor for item in value for tensor in tensors_in(item))
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))


def _numbers_of(node: Node, operands: Sequence[Tensor]) -> Iterator[_NumberOperand]:
    """Yield the number, if any, in an arithmetic call on a float tensor, if every format represents the number."""
    name = getattr(node.target, "__name__", "").strip("_")
    if name not in _ARITHMETIC or len(node.args) != 2 or node.kwargs or len(operands) != 1:
        return
    (tensor,) = operands
    if not tensor.dtype.is_floating_point or not tensor.ndim:
        return
    for position, value in enumerate(cast(Sequence[Any], node.args)):
        if type(value) is int:
            is_represented = abs(value) <= _MOST_INTEGER
        else:
            is_represented = type(value) is float and (value == 0 or _LEAST <= abs(value) <= _MOST)
        if is_represented:
            dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            yield _NumberOperand(node, position, value, dtype)
